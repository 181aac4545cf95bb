"""The state of emitting one kernel: which SSA names hold each value of the IR.

A tile is a *fragment*: one name for each register of its layout, in order. A scalar is a fragment
of one name, equal in all threads, and so is a tile in shared memory: its address. Registers that
hold equal elements share a name, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.analysis.prefix_masks import PrefixMasks
from tilewright_compiler.emit.indices import ThreadIndices
from tilewright_compiler.emit.shared import SharedMemory
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import TileType, TokenType, Type
from tilewright_compiler.layout.linear import LinearLayout

Fragment = tuple[str, ...]


@dataclass(slots=True)
class KernelEmitter:
    """What the emitters of all operation families share.

    `contracts` says whether a product may become part of the addition that follows it.
    """

    text: FunctionText
    threads: ThreadIndices
    shared: SharedMemory
    axis_info: Mapping[Value, AxisInfo]
    prefix_masks: PrefixMasks
    fragments: dict[Value, Fragment] = field(default_factory=dict)
    contracts: bool = True

    def fragment(self, value: Value) -> Fragment:
        """Return the names that hold `value`."""
        return self.fragments[value]

    def scalar(self, value: Value) -> str:
        """Return the name that holds a scalar."""
        (name,) = self.fragments[value]
        return name

    def define(self, value: Value, names: Sequence[str]) -> None:
        """Record the names that hold `value`: as many as its layout has registers."""
        expected = num_registers(value.type)
        if len(names) != expected:
            msg = f"{value.type} takes {expected} registers, emission made {len(names)}"
            raise InternalCompilerError(msg)
        self.fragments[value] = tuple(names)

    def elementwise(self, operation: Operation, compute: Callable[..., str]) -> None:
        """Define the result by `compute(*names)` for each register, once for equal operands."""
        computed: dict[tuple[str, ...], str] = {}
        names = []
        operands = zip(*(self.fragment(value) for value in operation.operands), strict=True)
        for arguments in operands:
            if arguments not in computed:
                computed[arguments] = compute(*arguments)
            names.append(computed[arguments])
        self.define(operation.result, names)


Emit = Callable[[KernelEmitter, Operation], None]


def layout_of(type_: Type) -> LinearLayout:
    """Return a tile's layout; raises InternalCompilerError if the schedule gave it none."""
    if not isinstance(type_, TileType) or type_.layout is None:
        msg = f"{type_} has no layout: only a scheduled module can be emitted"
        raise InternalCompilerError(msg)
    return type_.layout


def num_registers(type_: Type) -> int:
    """Return how many names hold a value of this type."""
    match type_:
        case TileType():
            return layout_of(type_).num_registers
        case TokenType():
            return 0  # the hardware keeps count
        case _:
            return 1
