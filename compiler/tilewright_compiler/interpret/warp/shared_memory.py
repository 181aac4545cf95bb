"""Shared memory of one program, byte for byte, with the traces of who touched what.

What an asynchronous copy writes belongs to nobody until the thread that started it has waited for
it; from then on it is a write of that thread. Two accesses that are not ordered (`traces`) are an
error whatever their values, in whatever order the checker happens to run them.

What copies and matrix instructions do of their own is `proxies`'; kernels without roles have none.

Memory starts as 0xFF, NaN in every float type. Bytes that nothing wrote, or that another allocation
wrote last, may not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

import numpy as np

from tilewright.errors import ScheduleError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.agreement import differ
from tilewright_compiler.interpret.warp.clocks import Clocks, Mbarrier
from tilewright_compiler.interpret.warp.proxies import Conflict, Proxies
from tilewright_compiler.interpret.warp.traces import (
    NOBODY,
    SEVERAL,
    Access,
    Accesses,
    Trace,
    access_text,
    placed,
    race_text,
    thread_text,
)
from tilewright_compiler.ir.core import Operation

_POISON = 0xFF


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Bytes on their way to shared memory: [n] units, the threads that sent them, their source.

    `end` is called when a wait has covered the copy.
    """

    units: Array
    threads: Array
    fetch: Callable[[], Array]
    end: Callable[[], None]
    access: Access


class SharedMemory:
    """The bytes, and what is known of each unit of `granule` bytes.

    Every access is a multiple of the granule: the size of the smallest element that the kernel has
    in shared memory.
    """

    def __init__(
        self,
        *,
        size_bytes: int,
        granule: int,
        where: str,
        clocks: Clocks | None = None,
        num_warps: int = 0,
    ) -> None:
        self.actor = 0  # the warp that runs
        self._granule = granule
        self._where = where
        size = size_bytes // granule
        self._units = np.full(size * granule, _POISON, np.uint8).view(f"u{granule}")
        self._wrote, self._read = Trace.empty(size), Trace.empty(size)
        self._owner = np.full(size, -1)
        self._flight = np.full(size, -1)
        self._flight_thread = np.full(size, NOBODY)
        self._proxies: Proxies | None = None
        if clocks is not None:
            self._proxies = Proxies(size, clocks=clocks, num_warps=num_warps)
        self._last_epoch = 0
        self._epochs: dict[int, int] = {}  # of warps; 0 before the first barrier
        self._accesses = Accesses()
        self._allocations: dict[Operation, int] = {}

    @property
    def has_proxies(self) -> bool:
        """Whether the kernel has roles."""
        return self._proxies is not None

    @property
    def proxies(self) -> Proxies:
        """The traces of bulk copies and asynchronous dots."""
        assert self._proxies is not None, "only kernels with roles have copies of blocks"
        return self._proxies

    def meet(self, warps: Iterable[int]) -> None:
        """Begin the next epoch of warps that passed a barrier."""
        self._last_epoch += 1
        self._epochs.update(dict.fromkeys(warps, self._last_epoch))

    @property
    def _epoch(self) -> int:
        """The epoch of the warp that runs: it shares it with those that it met last."""
        return self._epochs.get(self.actor, 0)

    def read(self, starts: Array, threads: Array, size_bytes: int, *, access: Access) -> Array:
        """Return the bytes of elements at `starts`, [..., size_bytes]; threads likewise [...]."""
        units, by = self._spread(starts, threads, size_bytes, access)
        number, epoch = self._accesses.number(access), self._epoch
        self._refuse_in_flight(units, by, access)
        self._touch(units, by, access, writes=False)
        racing = self._wrote.others(units, by, epoch)
        if racing.any():
            self._race(units, by, racing, access, self._wrote)
        foreign = self._owner[units] != self._allocation(access)
        if foreign.any():
            self._refuse_foreign(units, by, foreign, access)
        seen = self._read.epoch[units] == epoch
        earlier = self._read.access[units]
        others = self._read.others(units, by, epoch)
        self._read.record(units, by, epoch, number)
        # Of several readers the first stays, as one that the next writer may have to wait for.
        self._read.access[units[seen]] = earlier[seen]
        self._read.thread[units[others]] = SEVERAL
        return self._units[units].view(np.uint8).reshape(*starts.shape, size_bytes)

    def write(self, starts: Array, values: Array, threads: Array, *, access: Access) -> None:
        """Write the elements `values` [...] at `starts` [...].

        Threads that write one place in one access must write one value: they hold replicas.
        """
        units, by = self._spread(starts, threads, values.dtype.itemsize, access)
        new = np.ascontiguousarray(values).view(self._units.dtype).ravel()
        number = self._accesses.number(access)
        self._refuse_in_flight(units, by, access)
        self._touch(units, by, access, writes=True)
        replica = (self._wrote.access[units] == number) & (self._wrote.epoch[units] == self._epoch)
        racing = self._wrote.others(units, by, self._epoch) & ~replica
        if racing.any():
            self._race(units, by, racing, access, self._wrote)
        self._refuse_readers(units, by, access)
        earlier = np.where(replica, self._units[units], new)
        self._units[units] = new
        unlike = _unlike(earlier, new, values.dtype)
        unlike |= _unlike(self._units[units], new, values.dtype)
        if unlike.any():
            self._fail(units, by, unlike, access, "disagrees with a replica of the same element")
        shared = replica & (self._wrote.thread[units] != by)
        self._wrote.record(units, by, self._epoch, number)
        self._wrote.thread[units[shared]] = SEVERAL
        self._owner[units] = self._allocation(access)

    def add(self, starts: Array, values: Array, threads: Array, *, access: Access) -> None:
        """Add integers `values` [n] to those at `starts` [n], one at a time: atomically.

        Threads of one access meet without a race.
        """
        size_bytes = values.dtype.itemsize
        units, by = self._spread(starts, threads, size_bytes, access)
        number = self._accesses.number(access)
        self._refuse_in_flight(units, by, access)
        own = (self._wrote.access[units] == number) & (self._wrote.epoch[units] == self._epoch)
        racing = self._wrote.others(units, by, self._epoch) & ~own
        if racing.any():
            self._race(units, by, racing, access, self._wrote)
        self._refuse_readers(units, by, access)
        foreign = self._owner[units] != self._allocation(access)
        if foreign.any():
            self._refuse_foreign(units, by, foreign, access)
        elements = self._units.view(values.dtype)
        np.add.at(elements, starts // size_bytes, values)
        self._wrote.record(units, by, self._epoch, number)
        self._wrote.thread[units[own]] = SEVERAL

    def start(
        self,
        starts: Array,
        threads: Array,
        size_bytes: int,
        *,
        fetch: Callable[[], Array],
        end: Callable[[], None],
        access: Access,
    ) -> Copy:
        """Start copying what `fetch` gives, [..., size_bytes]; the bytes are in flight from here
        on.
        """
        units, by = self._spread(starts, threads, size_bytes, access)
        self._refuse_in_flight(units, by, access)
        racing = self._wrote.others(units, by, self._epoch)
        if racing.any():
            self._race(units, by, racing, access, self._wrote)
        self._refuse_readers(units, by, access)
        self._flight[units], self._flight_thread[units] = self._accesses.number(access), by
        if np.unique(units).size != units.size:
            self._fail(units, by, np.ones(units.shape, np.bool_), access, "copies to a place twice")
        return Copy(units, by, fetch, end, access)

    def deliver(self, copy: Copy, fetched: Array) -> None:
        """Let the bytes arrive. Nobody may look yet."""
        self._units[copy.units] = fetched.view(self._units.dtype).ravel()

    def complete(self, copy: Copy) -> None:
        """Make delivered bytes visible to the threads that sent them."""
        copy.end()
        self._flight[copy.units] = -1
        self._wrote.record(
            copy.units, copy.threads, self._epoch, self._accesses.number(copy.access)
        )
        self._owner[copy.units] = self._allocation(copy.access)

    # What warps start and do not do themselves

    def bring(self, starts: Array, size_bytes: int, *, mbarrier: Mbarrier, access: Access) -> None:
        """Start bringing elements to `starts` [n], on the present phase of an mbarrier."""
        units, by = self._spread(starts, np.array(SEVERAL), size_bytes, access)
        conflict = self.proxies.bring(
            units,
            self.actor,
            actor=mbarrier.actor,
            time=mbarrier.phase + 1,
            access=self._accesses.number(access),
        )
        self._refuse(conflict, units, by, access)
        self._units[units] = np.iinfo(self._units.dtype).max
        self._owner[units] = self._allocation(access)

    def place(self, starts: Array, stored: Array, access: Access) -> None:
        """Let the bytes [n, size] that were to be brought arrive."""
        units, _ = self._spread(starts, np.array(SEVERAL), stored.shape[-1], access)
        self._units[units] = np.ascontiguousarray(stored).view(self._units.dtype).ravel()

    def begin_reading(self, starts: Array, size_bytes: int, *, access: Access) -> Array:
        """Start reading elements at `starts` [n] behind the warp's back; return their units."""
        units, by = self._spread(starts, np.array(SEVERAL), size_bytes, access)
        conflict = self.proxies.begin_reading(
            units, self.actor, access=self._accesses.number(access)
        )
        self._refuse(conflict, units, by, access)
        racing = self._wrote.others(units, by, self._epoch)
        if racing.any():
            self._race(units, by, racing, access, self._wrote)
        foreign = self._owner[units] != self._allocation(access)
        if foreign.any():
            self._refuse_foreign(units, by, foreign, access)
        return units

    def end_reading(self, units: Array, warp: int) -> None:
        """End a reading, which a warp has waited for."""
        self.proxies.end_reading(units, warp)

    def peek(self, starts: Array, size_bytes: int) -> Array:
        """Return the bytes of elements at `starts` [n], [n, size_bytes], as they are now."""
        within = np.arange(size_bytes // self._granule)
        units = starts[:, None] // self._granule + within
        return self._units[units].view(np.uint8).reshape(*starts.shape, size_bytes)

    def _touch(self, units: Array, threads: Array, access: Access, *, writes: bool) -> None:
        if self._proxies is not None:
            number = self._accesses.number(access)
            conflict = self._proxies.touch(units, self.actor, access=number, writes=writes)
            self._refuse(conflict, units, threads, access)

    def _refuse(
        self, conflict: Conflict | None, units: Array, threads: Array, access: Access
    ) -> None:
        if conflict is None:
            return
        last = int(conflict.access[int(conflict.units.argmax())])
        other = self._accesses[last] if last >= 0 else None
        what = conflict.what if other is None else f"{conflict.what} ({access_text(other)})"
        self._fail(units, threads, conflict.units, access, what, other)

    def _spread(
        self, starts: Array, threads: Array, size_bytes: int, access: Access
    ) -> tuple[Array, Array]:
        """Return the units of all elements and the thread of each."""
        within = np.arange(size_bytes // self._granule)
        units = starts[..., None] // self._granule + within
        threads_of_units = np.broadcast_to(threads[..., None], units.shape).ravel()
        units = units.ravel()
        if (starts % size_bytes).any():
            msg = (
                f"{access_text(access)}: an element is not at a multiple of its {size_bytes} bytes"
            )
            raise ScheduleError(placed(self._where, msg, access))
        outside = (units < 0) | (units >= self._units.size)
        if outside.any():
            what = f"reaches beyond the {self._units.nbytes} bytes of shared memory"
            self._fail(units, threads_of_units, outside, access, what)
        return units, threads_of_units

    def _allocation(self, access: Access) -> int:
        return self._allocations.setdefault(access.allocation, len(self._allocations))

    def _refuse_in_flight(self, units: Array, threads: Array, access: Access) -> None:
        in_flight = self._flight[units] >= 0
        if not in_flight.any():
            return
        first = units[int(in_flight.argmax())]
        copy = self._accesses[int(self._flight[first])]
        sender = thread_text(int(self._flight_thread[first]))
        what = f"finds {access_text(copy)} by {sender} still under way: no wait covers it"
        self._fail(units, threads, in_flight, access, what, copy)

    def _refuse_readers(self, units: Array, threads: Array, access: Access) -> None:
        racing = self._read.others(units, threads, self._epoch)
        if racing.any():
            self._race(units, threads, racing, access, self._read)

    def _refuse_foreign(
        self, units: Array, threads: Array, foreign: Array, access: Access
    ) -> NoReturn:
        last = int(self._wrote.access[units[int(foreign.argmax())]])
        if last < 0:
            self._fail(units, threads, foreign, access, "reads what nothing wrote")
        writer = self._accesses[last]
        what = f"reads what {access_text(writer)} wrote to another allocation at the same place"
        self._fail(units, threads, foreign, access, what, writer)

    def _race(
        self, units: Array, threads: Array, racing: Array, access: Access, trace: Trace
    ) -> NoReturn:
        first = units[int(racing.argmax())]
        other = self._accesses[int(trace.access[first])]
        verb = "write" if trace is self._wrote else "read"
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
        low = int(units[first]) * self._granule
        places = f"bytes {low}..{low + self._granule - 1}"
        count = int(np.unique(units[wrong]).size) * self._granule
        if count > self._granule:
            places += f" (and {count - self._granule} more)"
        thread = thread_text(int(threads[first]))
        msg = f"{access_text(access)} by {thread}, {places}: {what}"
        raise ScheduleError(placed(self._where, msg, access, other))


def _unlike(left: Array, right: Array, dtype: np.dtype[np.generic]) -> Array:
    """Return which units [n] differ between elements of a type that differ."""
    unlike: Array = left != right
    if unlike.any():
        elements = differ(left.view(dtype), right.view(dtype))
        unlike &= np.repeat(elements, left.size // elements.size)
    return unlike
