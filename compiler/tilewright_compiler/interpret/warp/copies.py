"""Asynchronous copies of one warp, in groups that are committed and waited for as the hardware
counts them (PTX ISA, cp.async.wait_group).

A copy may arrive at any time from its start to the wait that covers it, and may read its source at
either end: a generator of random numbers decides, so that no order is taken for granted.
"""

from __future__ import annotations

from random import Random

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.shared_memory import Copy, SharedMemory

_ARRIVES_EARLY = 0.2
_READS_EARLY = 0.5


class Copies:
    """The copies of a warp that are under way."""

    def __init__(self, memory: SharedMemory, random: Random) -> None:
        self._memory = memory
        self._random = random
        self._open: list[Copy] = []
        self._groups: list[list[Copy]] = []
        self._completed = 0
        self._fetched: dict[Copy, Array] = {}
        self._travelling: list[Copy] = []

    @property
    def under_way(self) -> list[Copy]:
        """Copies that no wait has covered."""
        return [copy for group in self._groups[self._completed :] for copy in group] + self._open

    def start(self, copy: Copy) -> None:
        """Add a copy to the group that is open."""
        self._open.append(copy)
        self._travelling.append(copy)
        if self._random.random() < _READS_EARLY:
            self._fetched[copy] = copy.fetch()

    def commit(self) -> int:
        """Close the open group and return its number."""
        self._groups.append(self._open)
        self._open = []
        return len(self._groups) - 1

    def wait(self, pending: int) -> int:
        """Wait until at most `pending` of the latest groups are under way; return how many groups,
        from the first on, have arrived.
        """
        arrived = max(self._completed, len(self._groups) - pending)
        for group in self._groups[self._completed : arrived]:
            for copy in group:
                if copy in self._travelling:
                    self._deliver(copy)
                self._memory.complete(copy)
        self._completed = arrived
        return arrived

    def let_some_arrive(self) -> None:
        """Deliver a random choice of what is under way."""
        for copy in tuple(self._travelling):
            if self._random.random() < _ARRIVES_EARLY:
                self._deliver(copy)

    def _deliver(self, copy: Copy) -> None:
        self._travelling.remove(copy)
        fetched = self._fetched.pop(copy, None)
        self._memory.deliver(copy, copy.fetch() if fetched is None else fetched)
