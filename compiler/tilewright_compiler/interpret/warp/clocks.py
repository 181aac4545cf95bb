"""Which of the accesses by different warps, copies and matrix instructions are ordered: vector
clocks, and the mbarriers that hand them on.

A warp's clock holds, for each actor, up to which of its times the warp has heard of it. Actors are
the warps, whose time grows where they release (a barrier, an arrival), and the mbarriers, whose
time counts completed phases: bytes that a copy brings are heard of by who waited for their phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

import numpy as np

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array


class Clocks:
    """The clocks of the warps of one program, the producer's included."""

    def __init__(self, *, num_warps: int, num_mbarriers: int) -> None:
        self._now = np.zeros((num_warps, num_warps + num_mbarriers), np.int64)
        self._next_mbarrier = num_warps
        for warp in range(num_warps):
            self._now[warp, warp] = 1

    def new_actor(self) -> int:
        """Return the number of one more mbarrier."""
        self._next_mbarrier += 1
        return self._next_mbarrier - 1

    def time(self, warp: int) -> int:
        """Return a warp's own time."""
        return int(self._now[warp, warp])

    def heard(self, warp: int) -> Array:
        """Return what a warp has heard of each actor."""
        result: Array = self._now[warp]
        return result

    def release(self, warp: int) -> Array:
        """Return what others hear of a warp that releases now; its time goes on."""
        told: Array = self._now[warp].copy()
        self._now[warp, warp] += 1
        return told

    def acquire(self, warp: int, told: Array) -> None:
        """Let a warp hear what was told."""
        np.maximum(self._now[warp], told, out=self._now[warp])

    def meet(self, warps: Iterable[int]) -> None:
        """Let warps hear all of each other: a barrier."""
        warps = list(warps)
        told = np.max([self.release(warp) for warp in warps], axis=0)
        for warp in warps:
            self.acquire(warp, told)


@dataclass(slots=True, eq=False)
class Mbarrier:
    """An mbarrier: what is still to come in its phase, and how many phases are complete.

    `actor` is its number among the clocks, `started` when which warp initialised it.
    """

    arrivals: int
    actor: int
    started: tuple[int, int]
    name: str
    phase: int = 0
    pending: int = field(init=False)
    bytes: int = 0
    collected: Array | None = None
    told: Array | None = None

    def __post_init__(self) -> None:
        self.pending = self.arrivals

    def is_complete(self, parity: int) -> bool:
        """Whether the phase of that parity is complete (PTX ISA, mbarrier.try_wait.parity)."""
        return self.phase & 1 != parity

    def arrive(self, told: Array) -> bool:
        """Count an arrival; False if the phase expects no more."""
        if not self.pending:
            return False
        self.pending -= 1
        self._collect(told)
        self._complete()
        return True

    def deliver(self, size_bytes: int) -> None:
        """Count bytes that a copy brought."""
        self.bytes -= size_bytes
        self._complete()

    def _collect(self, told: Array) -> None:
        self.collected = told if self.collected is None else np.maximum(self.collected, told)

    def _complete(self) -> None:
        if self.pending or self.bytes:
            return
        assert self.collected is not None, "a phase has at least one arrival"
        self.phase += 1
        self.told = self.collected
        self.told[self.actor] = self.phase
        self.pending, self.collected = self.arrivals, None
