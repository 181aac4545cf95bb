"""What copies and matrix instructions do to shared memory behind the warps' backs, unit by unit.

Among the warps' own accesses, `shared_memory` finds what no barrier orders. Here are the other
pairs, ordered by `clocks`:

- bytes that a bulk copy brings may be touched by who has heard of their phase;
- a bulk copy may bring bytes where all that touched the place before is heard of by who starts it;
- what reads behind the warps' backs (a matrix instruction, a copy to global memory) reads until it
  is waited for, and until then nobody may write there;
- it sees what a warp wrote only behind that warp's `async_fence`;
- a warp's write must be heard of by another one that reads or writes there, and so must its reads
  by one that writes: barriers of groups of warps order no others.
"""

from __future__ import annotations

import numpy as np

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.clocks import Clocks

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Conflict:
    """Which units are wrong, what is wrong with them, and the access that they were last in."""

    units: Array
    what: str
    access: Array


class Proxies:
    """The traces of each unit, for one program. Accesses are numbers of `SharedMemory`."""

    def __init__(self, size: int, *, clocks: Clocks, num_warps: int) -> None:
        self._clocks = clocks
        self._actor, self._time = np.full(size, _NOBODY), np.zeros(size, np.int64)
        self._brought = np.full(size, -1)
        self._touched = np.zeros((size, num_warps), np.int64)
        self._toucher = np.full(size, -1)
        self._reading, self._reader = np.zeros(size, np.int64), np.full(size, -1)
        self._ended = np.zeros((size, num_warps), np.int64)
        self._wrote, self._wrote_time = np.full(size, _NOBODY), np.zeros(size, np.int64)
        self._fences: list[list[int]] = [[0] for _ in range(num_warps)]

    def touch(self, units: Array, warp: int, *, access: int, writes: bool) -> Conflict | None:
        """Note a warp's own access."""
        conflict = self._unheard(units, warp) or self._of_others(units, warp, access, writes=writes)
        if conflict is None and writes:
            conflict = self._read_behind(units, warp)
        if conflict is not None:
            return conflict
        self._touched[units, warp], self._toucher[units] = self._clocks.time(warp), access
        if writes:
            self._wrote[units], self._wrote_time[units] = warp, self._clocks.time(warp)
        return None

    def bring(
        self, units: Array, warp: int, *, actor: int, time: int, access: int
    ) -> Conflict | None:
        """Note that a warp starts a copy to units, which arrives at `time` of an mbarrier."""
        conflict = self._unheard(units, warp) or self._read_behind(units, warp)
        if conflict is not None:
            return conflict
        heard = self._clocks.heard(warp)[: self._touched.shape[1]]
        early: Array = np.any(self._touched[units] > heard, axis=1)
        if early.any():
            what = "brings bytes where a warp may still be at work: it is not known to be done"
            return Conflict(early, what, self._toucher[units])
        self._actor[units], self._time[units], self._brought[units] = actor, time, access
        self._wrote[units] = _NOBODY
        return None

    def begin_reading(self, units: Array, warp: int, *, access: int) -> Conflict | None:
        """Note that something that a warp started reads units from now on."""
        conflict = self._unheard(units, warp)
        if conflict is not None:
            return conflict
        heard = self._clocks.heard(warp)
        writers, times = self._wrote[units], self._wrote_time[units]
        for writer, fences in enumerate(self._fences):
            known = max(time for time in fences if time <= heard[writer])
            unfenced: Array = (writers == writer) & (times > known)
            if unfenced.any():
                what = "reads what a warp wrote without an async_fence behind it"
                return Conflict(unfenced, what, self._toucher[units])
        np.add.at(self._reading, units, 1)
        self._reader[units] = access
        return None

    def end_reading(self, units: Array, warp: int) -> None:
        """Note that the reading is over, since a warp has waited for it."""
        np.subtract.at(self._reading, units, 1)
        self._ended[units, warp] = self._clocks.time(warp)

    def fence(self, warp: int) -> None:
        """Note a warp's `async_fence`: it covers what the warp wrote before it, not after."""
        self._fences[warp].append(self._clocks.time(warp))
        self._clocks.release(warp)

    def _unheard(self, units: Array, warp: int) -> Conflict | None:
        actors = self._actor[units]
        heard = self._clocks.heard(warp)[np.maximum(actors, 0)]
        early: Array = (actors != _NOBODY) & (heard < self._time[units])
        if not early.any():
            return None
        what = "finds bytes that a copy brings: nobody has waited for the phase of its mbarrier"
        return Conflict(early, what, self._brought[units])

    def _of_others(self, units: Array, warp: int, access: int, *, writes: bool) -> Conflict | None:
        heard = self._clocks.heard(warp)
        if writes:
            unlike: Array = np.any(self._touched[units] > heard[: self._touched.shape[1]], axis=1)
            # Replicas are written by several warps in one access.
            unlike &= self._toucher[units] != access
        else:
            writer = self._wrote[units]
            unlike = (writer != _NOBODY) & (self._wrote_time[units] > heard[np.maximum(writer, 0)])
        if not unlike.any():
            return None
        what = "races with another warp, which this one has not met since"
        return Conflict(unlike, what, self._toucher[units])

    def _read_behind(self, units: Array, warp: int) -> Conflict | None:
        reading: Array = self._reading[units] > 0
        if reading.any():
            what = "writes what is still being read: no wait covers the reader"
            return Conflict(reading, what, self._reader[units])
        heard = self._clocks.heard(warp)[: self._ended.shape[1]]
        unheard: Array = np.any(self._ended[units] > heard, axis=1)
        if unheard.any():
            what = "writes what was read until a wait of another warp, which this one has not met"
            return Conflict(unheard, what, self._reader[units])
        return None
