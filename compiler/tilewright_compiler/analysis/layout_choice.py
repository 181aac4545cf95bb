"""Groups of values -> one layout each, and one for each load, store and reduction.

Groups are decided from the largest tile to the smallest, since a layout flows down for free (a
reduction slices it, a broadcast projects it) but not up. Those of dots come before: accumulators,
then operands, whose layouts are as good as given. For each group the candidates are what its dots
give and want, what its loads and stores like best, what decided neighbours give or want, and a
plain coalesced layout; the cheapest wins. Costs are instructions and memory sectors of one warp,
times 8 for each loop around.

What a loop loads for a dot is loaded as memory likes it, at whatever cost of converting: a ring in
shared memory will stand between the two, and read from there, every layout is as good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_cost import Access, coalesced_layouts
from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.analysis.group_values import group_values
from tilewright_compiler.analysis.layout_groups import (
    AccessUse,
    Group,
    LayoutGroups,
    leading_operand,
)
from tilewright_compiler.analysis.moves import backward, forward
from tilewright_compiler.capabilities import BASELINE_SHARED_BYTES
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import TileType, element_bytes, shape_of
from tilewright_compiler.layout.blocked import blocked
from tilewright_compiler.layout.convert import (
    BARRIER_COST,
    Conversion,
    Identity,
    RegisterMove,
    ShuffleExchange,
    plan_conversion,
)
from tilewright_compiler.layout.flip import plan_flip
from tilewright_compiler.layout.linear import LANE_BITS, LinearLayout
from tilewright_compiler.layout.ordered import is_ordered, plan_ordered_reduction, plan_scan
from tilewright_compiler.layout.reduce import plan_reduce

# What a conversion costs that no shared memory is large enough for: more than any other choice.
_IMPOSSIBLE = 1 << 40


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """Layouts decided for a module.

    `homes` holds the layout of each anchored value's group; `operations` the layout in which each
    load, store, reduction and scan of a tile works, and in which a look-up has its source (a
    reduction's is that of its operands). Dots work in the layouts of `groups.dots`.
    """

    groups: LayoutGroups
    homes: Mapping[Value, LinearLayout]
    operations: Mapping[Operation, LinearLayout]


def choose_layouts(module: Module, axis_info: Mapping[Value, AxisInfo]) -> LayoutChoice:
    """Decide the layouts of a kernel without calls."""
    return _Chooser(group_values(module, axis_info), module.signature.num_warps).run()


def conversion_cost(source: LinearLayout, target: LinearLayout, *, size_bytes: int) -> int:
    """Return instructions and passes of one warp to convert, the barrier included."""
    return _plan_cost(plan_conversion(source, target, size_bytes=size_bytes), size_bytes)


def _plan_cost(plan: Conversion, size_bytes: int) -> int:
    match plan:
        case Identity() | RegisterMove():
            return 0
        case ShuffleExchange():
            return plan.cost * max(1, size_bytes // 4)
        case _ if plan.scratch_bytes > BASELINE_SHARED_BYTES:
            return _IMPOSSIBLE
        case _:
            # Between two rounds the warps meet once more.
            return plan.cost + BARRIER_COST * (2 * len(plan.rounds) - 1)


class _Chooser:
    def __init__(self, groups: LayoutGroups, num_warps: int) -> None:
        self._groups = groups
        self._num_warps = num_warps
        self._layouts: dict[Group, LinearLayout] = {}

    def run(self) -> LayoutChoice:
        left = list(self._groups.groups)
        while left:
            group = max(left, key=self._urgency)
            left.remove(group)
            candidates = dict.fromkeys(self._candidates(group))
            self._layouts[group] = min(candidates, key=lambda layout: self._cost(group, layout))
        homes = {value: self._layouts[g] for g in self._groups.groups for value in g.values}
        return LayoutChoice(self._groups, homes, dict(self._operations()))

    def _urgency(self, group: Group) -> tuple[int, ...]:
        """Order groups: those of dots, large ones, those that move much or are next to decided."""
        dots = sum(operation.name == "dot" for operation, _ in group.given)
        traffic = sum(use.weight * use.access.bytes for use in group.accesses)
        decided = [use for use in group.users if use.group in self._layouts]
        given = [use for use in group.operands if self._natural(use.operand) is not None]
        results = [operation for operation, _ in group.given if self._given(operation)]
        neighbours = len(decided) + len(given) + len(results)
        return min(dots, 1), min(len(group.feeds), 1), group.size, traffic, neighbours, -group.index

    # Candidates

    def _candidates(self, group: Group) -> Iterator[LinearLayout]:
        # Of equally cheap ones the first wins: accumulators stay where the dots leave them, and
        # what leads to operands happens behind the conversion, which then moves what was loaded.
        for dot in (operation for operation, _ in group.given if operation.name == "dot"):
            yield self._groups.dots[dot].acc
        for feed in group.feeds:
            if feed.is_home:
                yield backward(self._origin(feed.operand)[1], feed.layout)
        for use in group.accesses:
            origin = self._groups.origin(use.value)
            assert origin is not None
            for layout in self._preferred(use.access):
                yield backward(origin[1], layout)
        for operation, _ in group.given:
            given = self._given(operation)
            if given is not None:
                yield given
        for wanted in group.users:
            if wanted.group in self._layouts:
                _, chain = self._origin(wanted.operand)
                yield backward(chain, self._layouts[wanted.group])
        for operand in group.operands:
            natural = self._natural(operand.operand)
            if natural is not None:
                yield natural
        # What follows each other in registers is scanned and sorted without asking other threads.
        for operation, _ in group.reductions:
            # A reshape between the two may have left the group fewer axes.
            if operation.name == "scan" and operation.attributes["axis"] < len(group.shape):
                yield self._in_registers(group.shape, operation.attributes["axis"])
        if group.flips:
            flat = (group.size,)
            yield self._in_registers(flat, 0).reshape(group.shape)
        yield from self._default(group.shape)

    def _in_registers(self, shape: tuple[int, ...], axis: int) -> LinearLayout:
        """Return a layout with as many neighbours along the axis in a thread as it has elements."""
        vector = max(1, prod(shape) // (self._num_warps << LANE_BITS))
        others = tuple(other for other in reversed(range(len(shape))) if other != axis)
        return blocked(
            shape,
            (axis, *others),
            vector=min(vector, shape[axis]),
            num_warps=self._num_warps,
            warp_order=(*others, axis),
        )

    def _preferred(self, access: Access) -> tuple[LinearLayout, ...]:
        return access.preferred_layouts(num_warps=self._num_warps)

    def _default(self, shape: tuple[int, ...]) -> tuple[LinearLayout, ...]:
        order = tuple(reversed(range(len(shape))))
        return coalesced_layouts(shape, order, vector=1, num_warps=self._num_warps)

    # Costs

    def _cost(self, group: Group, layout: LinearLayout) -> int:
        total = 0
        for use in group.accesses:
            _, chain = self._origin(use.value)
            natural = forward(chain, layout)
            cost, _ = self._best_access(use, natural, is_streamed=group.is_streamed)
            total += use.weight * cost
        for operation, weight in group.reductions:
            _, chain = self._origin(leading_operand(operation, self._groups))
            total += weight * self._reduce_cost(operation, forward(chain, layout))
        for operation, weight in group.flips:
            size = element_bytes(operation.result.type)
            plan = plan_flip(layout, operation.attributes["axis"], size_bytes=size)
            total += weight * _plan_cost(plan, size)
        for operation, weight in group.given:
            given = self._given(operation)
            if given is not None and not (operation.name == "load" and group.is_streamed):
                costs = (_cost_of_value(result, given, layout) for result in operation.results)
                total += weight * sum(costs)
        for feed in group.feeds:
            total += feed.weight * self._want_cost(feed.operand, layout, feed.layout)
        for operand in group.operands:
            natural_group = self._groups.group_of[self._origin(operand.operand)[0]]
            if natural_group in self._layouts:
                home = self._layouts[natural_group]
                total += operand.weight * self._want_cost(operand.operand, home, layout)
        for wanted in group.users:
            if wanted.group in self._layouts:
                target = self._layouts[wanted.group]
                total += wanted.weight * self._want_cost(wanted.operand, layout, target)
        return total

    def _want_cost(self, operand: Value, home: LinearLayout, target: LinearLayout) -> int:
        """Cost of having a moved operand in `target` if the value behind it is at `home`."""
        value, chain = self._origin(operand)
        return _cost_of_value(value, home, backward(chain, target))

    def _reduce_cost(self, operation: Operation, layout: LinearLayout) -> int:
        if operation.name != "reduce":
            return self._ordered_cost(operation, layout)
        axis = operation.attributes["axis"]
        source = operation.operands[0]
        working = self._working_layout(operation, layout)
        plan = plan_reduce(working, axis, size_bytes=element_bytes(source.type))
        cost = _cost_of_value(source, layout, working) + working.num_registers
        cost += 3 * len(plan.lane_masks) * len(plan.groups)
        if plan.across_warps is not None:
            cost += plan.across_warps.exchange.cost + BARRIER_COST
        if operation.result in self._groups.group_of:
            target = self._layouts.get(self._groups.group_of[operation.result])
            if target is not None:
                cost += _cost_of_value(operation.result, plan.result, target)
        return cost

    def _ordered_cost(self, operation: Operation, layout: LinearLayout) -> int:
        """Cost of a reduction or scan by a function on operands that come in `layout`."""
        operands = operation.operands
        working = self._working_layout(operation, layout)
        cost = sum(_cost_of_value(operand, layout, working) for operand in operands)
        axis: int = operation.attributes["axis"]
        sizes = tuple(element_bytes(operand.type) for operand in operands)
        if operation.name == "scan":
            is_reversed: bool = operation.attributes["reverse"]
            plan = plan_scan(working, axis, sizes=sizes, is_reversed=is_reversed)
            cost += sum(_cost_of_value(result, working, layout) for result in operation.results)
        else:
            plan = plan_ordered_reduction(working, axis, sizes=sizes)
        return cost + plan.cost(len(operands)) + (BARRIER_COST if plan.exchange else 0)

    def _best_access(
        self, use: AccessUse, natural: LinearLayout, *, is_streamed: bool
    ) -> tuple[int, LinearLayout]:
        """Return the cheapest way to load or store where the group gives layout `natural`."""
        best = (use.access.cost(natural), natural)
        if use.is_tied:
            return best
        is_load = use.operation.name == "load"
        if is_load and is_streamed:
            costs = [(use.access.cost(layout), layout) for layout in self._preferred(use.access)]
            return min(costs, key=lambda cost: cost[0])
        stored = (*use.operation.results, *use.operation.operands[1:])[0]
        for layout in self._preferred(use.access):
            source, target = (layout, natural) if is_load else (natural, layout)
            cost = use.access.cost(layout) + _cost_of_value(stored, source, target)
            if cost < best[0]:
                best = (cost, layout)
        return best

    # Layouts of operations

    def _operations(self) -> Iterator[tuple[Operation, LinearLayout]]:
        for group in self._groups.groups:
            for use in group.accesses:
                natural = forward(self._origin(use.value)[1], self._layouts[group])
                _, layout = self._best_access(use, natural, is_streamed=group.is_streamed)
                yield use.operation, layout
        for store in self._groups.stores:
            if self._groups.origin(store.value) is None:  # cheap: as the pointer likes it
                yield store.operation, self._preferred(store.access)[0]
        for operation in self._groups.block_stores:
            value = operation.operands[1]
            yield operation, self._natural(value) or self._default(shape_of(value.type))[0]
        for operation in self._groups.reduces:
            yield operation, self._reduce_layout(operation)
        for operation in self._groups.lookups:
            source = operation.operands[0]
            yield operation, self._natural(source) or self._default(shape_of(source.type))[0]

    def _reduce_layout(self, operation: Operation) -> LinearLayout:
        operand = leading_operand(operation, self._groups)
        natural = self._natural(operand)
        if natural is not None:
            return self._working_layout(operation, natural)
        axis: int = operation.attributes["axis"]
        return reduction_layout(shape_of(operand.type), axis, num_warps=self._num_warps)

    def _working_layout(self, operation: Operation, layout: LinearLayout) -> LinearLayout:
        """Return the layout in which to reduce: the operands' own if it can be reduced."""
        axis = operation.attributes["axis"]
        suits = layout.is_separable if operation.name == "reduce" else partial(is_ordered, layout)
        if suits(axis):
            return layout
        return reduction_layout(layout.shape, axis, num_warps=self._num_warps)

    def _given(self, operation: Operation) -> LinearLayout | None:
        """Return the layout in which an operation leaves its result, if that is decided."""
        if operation.name == "dot":
            return self._groups.dots[operation].acc
        if operation.name not in ("reduce", "reduce_with"):
            return self._natural(operation.operands[0])
        natural = self._natural(leading_operand(operation, self._groups))
        if natural is None:
            return None
        return self._working_layout(operation, natural).slice(operation.attributes["axis"])

    def _natural(self, value: Value) -> LinearLayout | None:
        """Return the layout that a value has for free, or None if that is not decided."""
        origin = self._groups.origin(value)
        if origin is None:
            return None
        layout = self._layouts.get(self._groups.group_of[origin[0]])
        return None if layout is None else forward(origin[1], layout)

    def _origin(self, value: Value) -> tuple[Value, tuple[Operation, ...]]:
        origin = self._groups.origin(value)
        assert origin is not None, "only values that are not cheap are recorded as uses"
        return origin


def reduction_layout(shape: tuple[int, ...], axis: int, *, num_warps: int) -> LinearLayout:
    """Return a layout for reducing a tile that has none: lanes along the axis, warps across it."""
    others = tuple(other for other in reversed(range(len(shape))) if other != axis)
    return blocked(
        shape, (axis, *others), vector=1, num_warps=num_warps, warp_order=(*others, axis)
    )


def _cost_of_value(value: Value, source: LinearLayout, target: LinearLayout) -> int:
    assert isinstance(value.type, TileType)
    return conversion_cost(source, target, size_bytes=element_bytes(value.type))
