"""Groups of tile values that share a layout, and what ties groups together.

This is what `group_values` finds in a module and `layout_choice` chooses layouts for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_cost import Access
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.layout.atoms import FMA, DotLayouts
from tilewright_compiler.layout.linear import LinearLayout


@dataclass(frozen=True, slots=True)
class Use:
    """An anchored or moved operand wanted in the layout of `group`; `weight` counts executions."""

    operand: Value
    group: Group
    weight: int


@dataclass(frozen=True, slots=True)
class Feed:
    """Operand `index` of a dot, moved perhaps, wanted in a fixed `layout`."""

    dot: Operation
    index: int
    layout: LinearLayout
    weight: int

    @property
    def operand(self) -> Value:
        """The operand's value."""
        return self.dot.operands[self.index]

    @property
    def is_accumulator(self) -> bool:
        """Whether it is what the dot adds to."""
        return self.index == 2

    @property
    def is_home(self) -> bool:
        """Whether what leads to the operand may be computed in its layout.

        Multiply-adds want so many copies of their factors that these are best left in shared
        memory, from which the dot reads them.
        """
        return self.is_accumulator or self.dot.attributes["atom"] != FMA.name


@dataclass(frozen=True, slots=True)
class AccessUse:
    """A load whose result, or a store whose stored value, belongs to a group.

    An atomic operation counts as a store. `value` is the load's result or the value whose layout is
    natural for the store: what it stores, or gives. With `is_tied`
    the pointer itself is anchored in the group, so that no other layout is possible; then `value`
    is the pointer.
    """

    operation: Operation
    access: Access
    value: Value
    is_tied: bool
    weight: int


@dataclass(eq=False, slots=True)
class Group:
    """Values of one shape that share a layout, in program order.

    `reductions` consume values of this group, and `flips` turn them round. `given` are operations
    with a result in it whose layout is theirs to say: reductions, dots, and loads that are tied to
    another group. All come with weights. `operands` are moved or foreign values that this group
    wants, `users` what others want of it, and `feeds` what dots want of it.
    """

    index: int
    shape: tuple[int, ...]
    values: list[Value] = field(default_factory=list)
    accesses: list[AccessUse] = field(default_factory=list)
    reductions: list[tuple[Operation, int]] = field(default_factory=list)
    flips: list[tuple[Operation, int]] = field(default_factory=list)
    given: list[tuple[Operation, int]] = field(default_factory=list)
    operands: list[Use] = field(default_factory=list)
    users: list[Use] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of elements of one value."""
        return prod(self.shape)

    @property
    def is_streamed(self) -> bool:
        """Whether this is what a loop loads for a dot, which reaches its layout through memory."""
        has_dot = any(operation.name == "dot" for operation, _ in self.given)
        return not has_dot and any(f.weight > 1 and not f.is_accumulator for f in self.feeds)


@dataclass(frozen=True, slots=True)
class LayoutGroups:
    """The groups of a module in program order, and how each tile value is defined."""

    groups: tuple[Group, ...]
    group_of: Mapping[Value, Group]
    definitions: Mapping[Value, Operation]
    cheap: frozenset[Value]
    stores: tuple[AccessUse, ...]
    block_stores: tuple[Operation, ...]
    reduces: tuple[Operation, ...]
    lookups: tuple[Operation, ...]
    dots: Mapping[Operation, DotLayouts]

    def origin(self, value: Value) -> tuple[Value, tuple[Operation, ...]] | None:
        """Return the anchored value behind moves, and the chain from it; None if cheap."""
        chain: list[Operation] = []
        while value not in self.group_of:
            if value in self.cheap:
                return None
            operation = self.definitions[value]
            chain.append(operation)
            value = operation.operands[0]
        return value, tuple(reversed(chain))


def leading_operand(operation: Operation, groups: LayoutGroups) -> Value:
    """Return the operand whose layout a reduction or scan goes by: the first that has one."""
    for operand in operation.operands:
        if groups.origin(operand) is not None:
            return operand
    return operation.operands[0]
