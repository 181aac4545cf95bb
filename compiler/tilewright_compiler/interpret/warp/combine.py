"""Reductions and scans by a region, for one warp: executes the plans of `layout.ordered`.

The lanes of the warp take the places that programs have when whole tiles are interpreted, so that
the region runs by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType

import numpy as np

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.combine import Combine as Region
from tilewright_compiler.interpret.tile import BlockEvaluator
from tilewright_compiler.interpret.warp.moves import (
    as_result,
    read_exchange,
    scratch_start,
    write_exchange,
)
from tilewright_compiler.interpret.warp.state import Meeting, Walk, Warp, layout_of
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_bytes
from tilewright_compiler.layout.linear import NUM_LANES
from tilewright_compiler.layout.ordered import (
    Choose,
    Combine,
    Exchange,
    OrderedPlan,
    Shuffle,
    ThreadTest,
    plan_ordered_reduction,
    plan_scan,
)

# One array [lanes] for each operand.
Values = list[Array]
Control = Callable[[Warp, Operation], Walk]


def _reduce_with(warp: Warp, operation: Operation) -> Walk:
    axis: int = operation.attributes["axis"]
    layout = layout_of(operation.operands[0].type)
    plan = plan_ordered_reduction(layout, axis, sizes=_sizes(operation))
    return (yield from _carried_out(warp, operation, plan))


def _scan(warp: Warp, operation: Operation) -> Walk:
    axis: int = operation.attributes["axis"]
    is_reversed: bool = operation.attributes["reverse"]
    layout = layout_of(operation.operands[0].type)
    plan = plan_scan(layout, axis, sizes=_sizes(operation), is_reversed=is_reversed)
    return (yield from _carried_out(warp, operation, plan))


def _sizes(operation: Operation) -> tuple[int, ...]:
    return tuple(element_bytes(operand.type) for operand in operation.operands)


def _carried_out(warp: Warp, operation: Operation, plan: OrderedPlan) -> Walk:
    for operand in operation.operands[1:]:
        if layout_of(operand.type) != layout_of(operation.operands[0].type):
            raise warp.error(operation, "operands have one layout")
    combine = _Function(warp, operation)
    tiles = [warp.array(operand) for operand in operation.operands]
    registers = range(layout_of(operation.operands[0].type).num_registers)
    values: list[Values] = [[tile[:, register] for tile in tiles] for register in registers]
    for step in plan.steps:
        match step:
            case Combine():
                values.append(combine(values[step.left], values[step.right]))
            case Shuffle():
                lanes = np.arange(NUM_LANES) ^ step.lane_xor
                values.append([array[lanes] for array in values[step.value]])
            case Choose():
                passes = _passes(warp, step.test)
                pairs = zip(values[step.value], values[step.otherwise], strict=True)
                values.append([np.where(passes, value, other) for value, other in pairs])
            case Exchange():
                sources = [values[source] for source in step.values]
                values += yield from _exchanged(warp, operation, plan, step, sources)
    results = []
    for index, result in enumerate(operation.results):
        held = np.stack([values[number][index] for number in plan.results], axis=1)
        results.append(as_result(warp, operation, result, held))
    return tuple(results)


class _Function:
    """The operation's region, applied to one element of each lane."""

    def __init__(self, warp: Warp, operation: Operation) -> None:
        (region,) = operation.regions
        evaluator = BlockEvaluator({})
        held = {v: array for v, array in warp.held.items() if isinstance(array, np.ndarray)}
        captured = evaluator.captured(region, held)
        self._region = Region(region, captured, warp.program.batch, evaluator)

    def __call__(self, left: Values, right: Values) -> Values:
        columns = [[array[:, None] for array in values] for values in (left, right)]
        run = self._region(*columns)
        while True:
            try:
                next(run)
            except StopIteration as end:
                return [result[:, 0] for result in end.value]


def _passes(warp: Warp, test: ThreadTest) -> Array:
    lanes, warps = np.arange(NUM_LANES), np.array(warp.index)
    if test.is_clear:
        lanes, warps = ~lanes, ~warps
    result: Array = (lanes & test.lanes != 0) | (warps & test.warps != 0)
    return result


def _exchanged(
    warp: Warp, operation: Operation, plan: OrderedPlan, step: Exchange, sources: list[Values]
) -> Generator[Meeting, None, list[Values]]:
    start = scratch_start(warp, operation, plan.scratch_bytes)
    parts = list(zip(step.plans, plan.places, operation.operands, strict=False))
    for index, (exchange, place, _) in enumerate(parts):
        written = np.stack([values[index] for values in sources], axis=1)
        write_exchange(warp, operation, exchange, written, start=start + place)
    yield Meeting(operation, warp.turns[operation])
    read = [
        read_exchange(warp, operation, exchange, operand.type, start=start + place)
        for exchange, place, operand in parts
    ]
    return [[part[register] for part in read] for register in range(step.count)]


CONTROL: Mapping[str, Control] = MappingProxyType({"reduce_with": _reduce_with, "scan": _scan})
