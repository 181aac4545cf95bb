"""What the compiler knows of each operation: counts, attributes, regions, effect, type rule."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Operation


class Effect(Enum):
    """What an operation does besides computing its results."""

    PURE = "pure"  # may be removed, merged, moved
    READ = "read"  # reads global memory: removable, not movable over writes
    WRITE = "write"  # must stay, in order
    ATOMIC = "atomic"  # reads and writes: must stay, in order, though nobody uses the results
    CONTROL = "control"  # has regions or ends a block; effect is that of what is inside


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """An operation of the IR.

    `operands` is the allowed (lowest, highest) count, `results` the exact one or None for any;
    `optional_attributes` are set by the schedule. `verify` returns a complaint or None; it is asked
    only when counts and attributes are right.
    """

    name: str
    operands: tuple[int, int]
    attributes: tuple[str, ...] = ()
    effect: Effect = Effect.PURE
    regions: int = 0
    terminator: bool = False
    results: int | None = 1
    optional_attributes: tuple[str, ...] = ()
    verify: Callable[[Operation], str | None] = lambda _operation: None
