"""Who touched which unit of memory last, and whether accesses of two threads are ordered.

Warps pass a barrier together, so two accesses are ordered if they are of one thread or a barrier
lies between them: it is enough to know who wrote and who read in the present *epoch*, the time
since the last barrier. Where groups of warps have barriers of their own, those of different groups
have different epochs, and `proxies` knows what is ordered between them.
"""

from __future__ import annotations

import numpy as np

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.layout.linear import NUM_LANES

# Stands for the thread where several threads access a unit at once, or it is not known which.
SEVERAL = -1
NOBODY = -2


@dataclass(frozen=True, slots=True)
class Access:
    """One execution of an operation by all warps.

    `allocation` is the operation that owns the shared memory: an `alloc_shared`, or one with
    scratch; for global memory, the operation itself.
    """

    operation: Operation
    turn: int
    allocation: Operation


class Accesses:
    """The accesses of one program, numbered as they first occur."""

    def __init__(self) -> None:
        self._accesses: list[Access] = []
        self._numbers: dict[tuple[Operation, int], int] = {}

    def __getitem__(self, number: int) -> Access:
        return self._accesses[number]

    def number(self, access: Access) -> int:
        """Return the number of an access, a new one if it was not seen before."""
        key = access.operation, access.turn
        if key not in self._numbers:
            self._numbers[key] = len(self._accesses)
            self._accesses.append(access)
        return self._numbers[key]

    def clear(self) -> None:
        """Begin with another program."""
        self._accesses.clear()
        self._numbers.clear()


@dataclass(frozen=True, slots=True)
class Trace:
    """For each unit of memory, the last access of a kind: its epoch, thread, and number."""

    epoch: Array
    thread: Array
    access: Array

    @classmethod
    def empty(cls, size: int) -> Trace:
        """Return the traces of memory that nobody touched."""
        return cls(np.full(size, -1), np.full(size, NOBODY), np.full(size, -1))

    def others(self, units: Array, threads: Array, epoch: int) -> Array:
        """Return which units another thread accessed in this epoch."""
        result: Array = self.epoch[units] == epoch
        if result.any():
            result &= (self.thread[units] != threads) | (threads == SEVERAL)
        return result

    def record(self, units: Array, threads: Array, epoch: int, access: int) -> None:
        """Note an access; where several of its threads meet, it is none of them."""
        self.epoch[units], self.access[units] = epoch, access
        self.thread[units] = threads
        repeated = self.thread[units] != threads
        self.thread[units[repeated]] = SEVERAL


def access_text(access: Access) -> str:
    """Return an access for messages."""
    names = ", ".join(f"%{result.name}" for result in access.operation.results if result.name)
    return f"{access.operation.name}{' ' if names else ''}{names} (turn {access.turn})"


def thread_text(thread: int) -> str:
    """Return a thread for messages."""
    if thread == SEVERAL:
        return "several threads"
    return f"warp {thread // NUM_LANES} lane {thread % NUM_LANES}"


def race_text(verb: str, other: Access, thread: int) -> str:
    """Return what is wrong with an access that races with another one, for messages."""
    by = thread_text(thread)
    return f"races with the {verb} of {access_text(other)} by {by}: no barrier between them"


def placed(where: str, message: str, *accesses: Access | None) -> str:
    """Return a message with the program and the source lines of the accesses."""
    lines = [f"{where}: {message}"]
    for access in accesses:
        if access is not None and access.operation.location is not None:
            location = access.operation.location.render()
            lines.append(f"  {access.operation.name} at {location}")
    return "\n".join(lines)
