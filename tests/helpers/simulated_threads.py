"""Execute layout plans on arrays [warps, lanes, registers]: one element per thread and register."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tilewright_compiler.layout.convert import (
    Conversion,
    Identity,
    LaneSelect,
    RegisterMove,
    ShuffleExchange,
)
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout
from tilewright_compiler.layout.ordered import (
    Choose,
    Exchange,
    OrderedPlan,
    Shuffle,
    ThreadTest,
)
from tilewright_compiler.layout.ordered import Combine as CombineStep
from tilewright_compiler.layout.reduce import ReducePlan, combine_order
from tilewright_compiler.layout.shared import SharedAccess, SharedExchange

Array = NDArray[np.object_]
Combine = Callable[[object, object], object]


def flat_indices(layout: LinearLayout) -> NDArray[np.int64]:
    """Return the flat index held at each place, [warps, lanes, registers]."""
    warp, lane, register = (linear(bases) for bases in (layout.warp, layout.lane, layout.register))
    return warp[:, None, None] ^ lane[None, :, None] ^ register[None, None, :]


def linear(columns: Sequence[int]) -> NDArray[np.int64]:
    """Return the images of 0, 1, 2, ... under the map with these columns."""
    result = np.zeros(1, dtype=np.int64)
    for column in columns:
        result = np.concatenate([result, result ^ column])
    return result


def distribute(values: Sequence[object], layout: LinearLayout) -> Array:
    """Give every place of the layout the value of the element that it holds."""
    elements = np.empty(len(values), dtype=object)
    elements[:] = list(values)
    return elements[flat_indices(layout)]


def convert(values: Array, plan: Conversion) -> Array:
    """Execute a conversion."""
    match plan:
        case Identity():
            return values
        case RegisterMove(sources):
            return values[:, :, list(sources)]
        case ShuffleExchange():
            return _shuffle(values, plan)
        case SharedExchange():
            return _through_shared(values, plan)


def reduce(values: Array, plan: ReducePlan, combine: Combine) -> Array:
    """Execute a reduction with a Python function."""
    partial = _combine_groups(values, plan.groups, combine)
    for mask in plan.lane_masks:
        other = partial[:, [lane ^ mask for lane in range(NUM_LANES)], :]
        partial = _combined(partial, other, combine)
    if plan.across_warps is None:
        return partial
    gathered = _through_shared(partial, plan.across_warps.exchange)
    return _combine_groups(gathered, plan.across_warps.groups, combine)


def in_order(values: Array, plan: OrderedPlan, combine: Combine) -> Array:
    """Execute an ordered reduction or scan with a Python function."""
    held = [values[:, :, register] for register in range(values.shape[2])]
    for step in plan.steps:
        match step:
            case CombineStep(left, right):
                held.append(_combined(held[left], held[right], combine))
            case Shuffle(value, lane_xor):
                held.append(held[value][:, [lane ^ lane_xor for lane in range(NUM_LANES)]])
            case Choose(test, value, otherwise):
                passes = _passes(test, values.shape[0])
                held.append(np.where(passes, held[value], held[otherwise]))
            case Exchange(sources, count, (exchange,)):
                written = np.stack([held[source] for source in sources], axis=2)
                read = _through_shared(written, exchange)
                assert read.shape[2] == count
                held += [read[:, :, index] for index in range(count)]
    return np.stack([held[result] for result in plan.results], axis=2)


def _passes(test: ThreadTest, num_warps: int) -> NDArray[np.bool_]:
    lanes, warps = np.arange(NUM_LANES)[None, :], np.arange(num_warps)[:, None]
    if test.is_clear:
        lanes, warps = ~lanes, ~warps
    passes: NDArray[np.bool_] = (lanes & test.lanes != 0) | (warps & test.warps != 0)
    return passes


def bank_ways(access: SharedAccess, group_offset: int, warp: int, size_bytes: int) -> int:
    """Count words of the busiest bank in any phase of one access by looking at every byte."""
    access_bytes = access.vector * size_bytes
    lanes_per_phase = min(NUM_LANES, 128 // max(4, access_bytes))
    starts = _offsets(access, group_offset)[warp] * size_bytes
    worst = 0
    for first in range(0, NUM_LANES, lanes_per_phase):
        words = {
            int(byte + i) // 4
            for byte in starts[first : first + lanes_per_phase]
            for i in range(access_bytes)
        }
        worst = max(worst, *Counter(word % 32 for word in words).values())
    return worst


def _select(values: Array, step: LaneSelect) -> Array:
    result = values.copy()
    lanes = [lane for lane in range(NUM_LANES) if lane >> step.lane_bit & 1]
    swapped = [register ^ step.mask for register in range(values.shape[2])]
    result[:, lanes, :] = values[:, lanes, :][:, :, swapped]
    return result


def _shuffle(values: Array, plan: ShuffleExchange) -> Array:
    assert values.shape[2] == plan.num_source_registers
    for step in plan.send:
        values = _select(values, step)
    sender = linear(plan.sender)
    turns = [values[:, sender ^ turn.lane_xor, turn.register] for turn in plan.rounds]
    received = np.stack(turns, axis=2)
    for step in plan.receive:
        received = _select(received, step)
    return received


def _offsets(access: SharedAccess, group_offset: int) -> NDArray[np.int64]:
    return group_offset ^ linear(access.warp)[:, None] ^ linear(access.lane)[None, :]


def _through_shared(values: Array, plan: SharedExchange) -> Array:
    registers = sum(len(group.registers) for group in plan.read.groups)
    result = np.empty((*values.shape[:2], registers), dtype=object)
    for part in plan.rounds:
        _one_round(values, part, result)
    return result


def _one_round(values: Array, plan: SharedExchange, result: Array) -> None:
    memory = np.full(plan.scratch_bytes // plan.size_bytes, None, dtype=object)
    written = np.zeros(memory.shape, dtype=bool)
    for group in plan.write.groups:
        start = _offsets(plan.write, group.offset)
        assert (start % plan.write.vector == 0).all(), "a vector must be naturally aligned"
        for i, register in enumerate(group.registers):
            agrees = (memory[start + i] == values[:, :, register]) | ~written[start + i]
            assert agrees.all(), "replicas must write the same value"
            written[start + i] = True
            memory[start + i] = values[:, :, register]
            assert (memory[start + i] == values[:, :, register]).all()
    for group in plan.read.groups:
        start = _offsets(plan.read, group.offset)
        assert (start % plan.read.vector == 0).all(), "a vector must be naturally aligned"
        for i, register in enumerate(group.registers):
            result[:, :, register] = memory[start + i]


def _combine_groups(values: Array, groups: Sequence[tuple[int, ...]], combine: Combine) -> Array:
    columns = []
    for group in groups:
        members = [values[:, :, register] for register in group]
        for left, right in combine_order(len(members)):
            members[left] = _combined(members[left], members[right], combine)
        columns.append(members[0])
    return np.stack(columns, axis=2)


def _combined(left: Array, right: Array, combine: Combine) -> Array:
    return cast("Array", np.frompyfunc(combine, 2, 1)(left, right))
