"""Races of the threads of one program in global memory.

The order of a kernel's loads and stores is that of its text, whichever thread makes them: a load
gives what an earlier store of the program wrote. So where two threads touch one address and one of
them writes, a barrier must lie between, unless both write the same value, or both do an atomic
operation of one kind whose order nobody can tell. Copies under way read their source at any time.
Programs of a grid are not ordered; what they write in common is the kernel's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from tilewright.errors import ScheduleError
from tilewright_compiler.interpret.memory import SLOT_BITS, Memory
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.traces import (
    SEVERAL,
    Access,
    Accesses,
    Trace,
    access_text,
    placed,
    race_text,
    thread_text,
)


class GlobalTraces:
    """What the warps of one program did in global memory since the last barrier.

    Programs of a launch use one after the other, so that the traces are allocated once.
    """

    def __init__(self, memory: Memory, *, granule: int) -> None:
        self._memory = memory
        self._granule = granule
        self._bases: dict[int, int] = {}
        size = 0
        for slot, (start, end) in memory.extents().items():
            self._bases[slot] = size - start // granule
            size += end // granule - start // granule + 1
        self._wrote, self._read, self._met = (Trace.empty(size) for _ in range(3))
        self._values = np.zeros(size, np.uint64)
        self._kinds = np.zeros(size, np.int64)
        self._copied = np.zeros(size, np.int64)
        self._epoch = 0
        self._accesses = Accesses()
        self.where = ""

    def begin(self, where: str) -> None:
        """Begin with another program, whose name is for messages."""
        self.where = where
        self._epoch += 1
        self._accesses.clear()

    def meet(self) -> None:
        """Begin the next epoch: all warps passed a barrier."""
        self._epoch += 1

    def load(self, addresses: Array, threads: Array, *, access: Access, size_bytes: int) -> None:
        """Note a load of elements at addresses that are in bounds, [n]; threads likewise."""
        units, by = self._spread(addresses, threads, size_bytes)
        self._refuse(units, by, access, self._wrote, self._met)
        others = self._read.others(units, by, self._epoch)
        self._read.record(units, by, self._epoch, self._accesses.number(access))
        self._read.thread[units[others]] = SEVERAL

    def store(self, addresses: Array, threads: Array, values: Array, *, access: Access) -> None:
        """Note a store of values to addresses that are in bounds, [n]; threads likewise."""
        units, by = self._spread(addresses, threads, values.dtype.itemsize)
        bits = np.ascontiguousarray(values).view(f"u{self._granule}").astype(np.uint64).ravel()
        number = self._accesses.number(access)
        copied = self._copied[units] > 0
        if copied.any():
            self._fail(units, by, copied, access, "writes what a copy under way reads")
        racing = self._wrote.others(units, by, self._epoch) & (self._values[units] != bits)
        # Which of the lanes of one store stays is the kernel's affair.
        racing &= self._wrote.access[units] != number
        if racing.any():
            self._race(units, by, racing, access, self._wrote)
        self._refuse(units, by, access, self._read, self._met)
        self._wrote.record(units, by, self._epoch, number)
        self._values[units] = bits

    def atomic(
        self, addresses: Array, threads: Array, *, access: Access, size_bytes: int, kind: int
    ) -> None:
        """Note an atomic operation on elements at addresses that are in bounds, [n].

        Operations of one `kind` may come in any order; 0 stands for those that may not.
        """
        units, by = self._spread(addresses, threads, size_bytes)
        number = self._accesses.number(access)
        if (self._copied[units] > 0).any():
            copied = self._copied[units] > 0
            self._fail(units, by, copied, access, "changes what a copy under way reads")
        self._refuse(units, by, access, self._wrote, self._read)
        others = self._met.others(units, by, self._epoch)
        # Which of the lanes of one operation comes first is nobody's affair.
        racing = others & (self._met.access[units] != number)
        racing &= (self._kinds[units] != kind) | (kind == 0)
        if racing.any():
            self._race(units, by, racing, access, self._met)
        self._met.record(units, by, self._epoch, number)
        self._met.thread[units[others]] = SEVERAL
        self._kinds[units] = kind

    def start_copy(
        self, addresses: Array, threads: Array, *, access: Access, size_bytes: int
    ) -> Callable[[], None]:
        """Note a copy that reads addresses from now on; return what to call when it has ended."""
        self.load(addresses, threads, access=access, size_bytes=size_bytes)
        units, by = self._spread(addresses, threads, size_bytes)
        np.add.at(self._copied, units, 1)

        def end() -> None:
            np.subtract.at(self._copied, units, 1)
            self._read.record(units, by, self._epoch, self._accesses.number(access))

        return end

    def _spread(self, addresses: Array, threads: Array, size_bytes: int) -> tuple[Array, Array]:
        """Return the units of all elements and the thread of each."""
        slots = addresses >> SLOT_BITS
        if slots.size and (slots == slots[0]).all():
            base: Array | int = self._bases[int(slots[0])]
        else:
            present, which = np.unique(slots, return_inverse=True)
            base = np.array([self._bases[int(slot)] for slot in present], np.int64)[which]
        units = addresses // self._granule + base
        count = size_bytes // self._granule
        if count == 1:
            return units, threads
        return (units[:, None] + np.arange(count)).ravel(), np.repeat(threads, count)

    def _refuse(self, units: Array, threads: Array, access: Access, *traces: Trace) -> None:
        """Raise ScheduleError if another thread's access of this epoch is in one of the traces."""
        for trace in traces:
            racing = trace.others(units, threads, self._epoch)
            if racing.any():
                self._race(units, threads, racing, access, trace)

    def _race(
        self, units: Array, threads: Array, racing: Array, access: Access, trace: Trace
    ) -> NoReturn:
        first = units[int(racing.argmax())]
        other = self._accesses[int(trace.access[first])]
        verb = "read" if trace is self._read else "write"
        what = race_text(verb, other, int(trace.thread[first]))
        self._fail(units, threads, racing, access, what, other)

    def _fail(
        self,
        units: Array,
        threads: Array,
        wrong: Array,
        access: Access,
        what: str,
        other: Access | None = None,
    ) -> NoReturn:
        first = int(wrong.argmax())
        thread = thread_text(int(threads[first]))
        place = self._place(int(units[first]))
        msg = f"{access_text(access)} by {thread}, {place}: {what}"
        raise ScheduleError(placed(self.where, msg, access, other))

    def _place(self, unit: int) -> str:
        """Return a unit as the element offset in an argument, for messages."""
        slot = max((s for s in self._bases if self._first(s) <= unit), key=self._first)
        return self._memory.describe((unit - self._bases[slot]) * self._granule)

    def _first(self, slot: int) -> int:
        return self._bases[slot] + self._memory.extents()[slot][0] // self._granule
