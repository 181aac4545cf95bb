"""Tiles from nothing, changes of shape, and the plans of `layout.convert`, `flip` and `reduce`.

This executes what the docstrings of the plans say, for one warp. Plans that go through shared
memory write their part, pause until all warps have, and read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

import numpy as np

from tilewright_compiler.interpret import numerics
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops import hints
from tilewright_compiler.interpret.warp.agreement import differ
from tilewright_compiler.interpret.warp.fragments import from_bytes, vector_offsets
from tilewright_compiler.interpret.warp.places import elements, images, threads
from tilewright_compiler.interpret.warp.state import Held, Meeting, Stop, Warp, layout_of
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.ops.reduction import COMBINE
from tilewright_compiler.ir.types import TileType, Type, element_bytes, element_dtype
from tilewright_compiler.layout.convert import (
    Conversion,
    Identity,
    LaneSelect,
    RegisterMove,
    ShuffleExchange,
    broadcast_sources,
    part_registers,
    plan_conversion,
    register_sources,
)
from tilewright_compiler.layout.flip import plan_flip
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout
from tilewright_compiler.layout.reduce import combine_order, plan_reduce
from tilewright_compiler.layout.shared import SharedExchange

Compute = Callable[[Warp, Operation], Held | None]
Exchange = Callable[[Warp, Operation], Generator[Stop, None, Held | None]]


def _arange(warp: Warp, operation: Operation) -> Array:
    places = elements(layout_of(operation.result.type), warp.index)
    result: Array = (places + operation.attributes["start"]).astype(np.int32)
    return result


def _splat(warp: Warp, operation: Operation) -> Array:
    registers = layout_of(operation.result.type).num_registers
    scalar = warp.array(operation.operands[0])
    return np.full((NUM_LANES, registers), scalar, scalar.dtype)


def _reshape(warp: Warp, operation: Operation) -> Array:
    source, target = _layouts(operation)
    return _taken(warp, operation, register_sources(source.reshape(target.shape), target))


def _transpose(warp: Warp, operation: Operation) -> Array:
    source, target = _layouts(operation)
    turned = source.transpose(operation.attributes["order"])
    return _taken(warp, operation, register_sources(turned, target))


def _broadcast(warp: Warp, operation: Operation) -> Array:
    return _taken(warp, operation, broadcast_sources(*_layouts(operation)))


def _part(warp: Warp, operation: Operation) -> Array:
    axis, start = operation.attributes["axis"], operation.attributes["start"]
    sources = part_registers(*_layouts(operation), axis=axis, start=start)
    return _taken(warp, operation, sources)


def _convert_layout(warp: Warp, operation: Operation) -> Generator[Meeting, None, Array]:
    (operand,) = operation.operands
    source, target = _layouts(operation)
    plan = plan_conversion(source, target, size_bytes=element_bytes(operand.type))
    return (yield from _carried_out(warp, operation, plan))


def _flip(warp: Warp, operation: Operation) -> Generator[Meeting, None, Array]:
    type_ = operation.result.type
    axis: int = operation.attributes["axis"]
    plan = plan_flip(layout_of(type_), axis, size_bytes=element_bytes(type_))
    return (yield from _carried_out(warp, operation, plan))


def _carried_out(
    warp: Warp, operation: Operation, plan: Conversion
) -> Generator[Meeting, None, Array]:
    values = warp.array(operation.operands[0])
    match plan:
        case Identity():
            result = values
        case RegisterMove():
            result = values[:, list(plan.sources)]
        case ShuffleExchange():
            result = _shuffled(values, plan)
        case SharedExchange():
            result = yield from _through_shared(warp, operation, values, plan)
        case _:
            assert_never(plan)
    warp.agree(operation, result)
    return result


def _reduce(warp: Warp, operation: Operation) -> Generator[Meeting, None, Array]:
    (operand,) = operation.operands
    dtype, result_type = element_dtype(operand.type), operation.result.type
    plan = plan_reduce(
        layout_of(operand.type),
        operation.attributes["axis"],
        size_bytes=element_bytes(operand.type),
    )
    if isinstance(result_type, TileType) and layout_of(result_type) != plan.result:
        raise warp.error(operation, f"the result has layout {plan.result}")
    name = COMBINE[operation.attributes["kind"]]

    def combine(left: Array, right: Array) -> Array:
        return numerics.binary(name, left, right, dtype)

    partial = _combined(warp.array(operand), plan.groups, combine)
    for mask in plan.lane_masks:
        partial = combine(partial, partial[np.arange(NUM_LANES) ^ mask])
    if plan.across_warps is not None:
        exchange = plan.across_warps.exchange
        gathered = yield from _through_shared(warp, operation, partial, exchange)
        partial = _combined(gathered, plan.across_warps.groups, combine)
    return as_result(warp, operation, operation.result, partial)


def _layouts(operation: Operation) -> tuple[LinearLayout, LinearLayout]:
    return layout_of(operation.operands[0].type), layout_of(operation.result.type)


def _taken(warp: Warp, operation: Operation, sources: Sequence[int] | None) -> Array:
    if sources is None:
        raise warp.error(operation, "these layouts would move data between threads")
    return warp.array(operation.operands[0]).take(sources, axis=1)


def _shuffled(values: Array, plan: ShuffleExchange) -> Array:
    for step in plan.send:
        values = _selected(values, step)
    sender = images(plan.sender)
    rounds = [values[sender ^ turn.lane_xor, turn.register] for turn in plan.rounds]
    values = np.stack(rounds, axis=1)
    for step in plan.receive:
        values = _selected(values, step)
    return values


def _selected(values: Array, step: LaneSelect) -> Array:
    swaps = (np.arange(NUM_LANES) >> step.lane_bit & 1).astype(np.bool_)
    swapped = values[:, np.arange(values.shape[1]) ^ step.mask]
    return np.where(swaps[:, None], swapped, values)


def _through_shared(
    warp: Warp, operation: Operation, values: Array, plan: SharedExchange
) -> Generator[Meeting, None, Array]:
    start = scratch_start(warp, operation, plan.scratch_bytes)
    parts: dict[int, Array] = {}
    for turn, part in enumerate(plan.rounds):
        if turn:
            yield Meeting(operation, warp.turns[operation])
        write_exchange(warp, operation, part, values, start=start)
        yield Meeting(operation, warp.turns[operation])
        parts |= read_exchange(warp, operation, part, operation.operands[0].type, start=start)
    return in_order(parts)


def scratch_start(warp: Warp, operation: Operation, size: int) -> int:
    """Return where the operation's scratch starts; raises ScheduleError if it has none."""
    start: int | None = operation.attributes.get("shared_offset")
    if start is None:
        raise warp.error(operation, f"needs {size} bytes and has no shared_offset")
    return start


def write_exchange(
    warp: Warp, operation: Operation, plan: SharedExchange, values: Array, *, start: int
) -> None:
    """Write the warp's part of an exchange, [lanes, registers]."""
    places, registers = vector_offsets(plan.write, warp.index)
    warp.program.shared.write(
        start + places * plan.size_bytes,
        values[:, registers],
        threads(warp.index),
        access=warp.access(operation, operation),
    )


def read_exchange(
    warp: Warp, operation: Operation, plan: SharedExchange, type_: Type, *, start: int
) -> dict[int, Array]:
    """Return the warp's part of what went through an exchange: the lanes of each register."""
    places, registers = vector_offsets(plan.read, warp.index)
    read = warp.program.shared.read(
        start + places * plan.size_bytes,
        threads(warp.index),
        plan.size_bytes,
        access=warp.access(operation, operation),
    )
    values = from_bytes(read, type_)
    return {register: values[:, index] for index, register in enumerate(registers.tolist())}


def in_order(parts: Mapping[int, Array]) -> Array:
    """Return [lanes, registers] of the lanes of each register."""
    return np.stack([parts[register] for register in range(len(parts))], axis=1)


def as_result(warp: Warp, operation: Operation, result: Value, values: Array) -> Array:
    """Return a result from [lanes, registers]: a scalar's lanes are one. Replicas must agree."""
    if isinstance(result.type, TileType):
        warp.agree(operation, values, result=result)
        return values
    if differ(values, np.broadcast_to(values[0], values.shape)).any():
        raise warp.error(operation, "lanes have different results")
    scalar: Array = values[0]
    warp.agree(operation, scalar, result=result)
    return scalar


def _combined(
    values: Array, groups: Sequence[Sequence[int]], combine: Callable[[Array, Array], Array]
) -> Array:
    """Combine the members of each group by the plan's tree; all groups have one length."""
    members = np.array(groups)
    current = [values[:, members[:, position]] for position in range(members.shape[1])]
    for left, right in combine_order(len(current)):
        current[left] = combine(current[left], current[right])
    return current[0]


def _promise(warp: Warp, operation: Operation) -> Array | None:
    """Return the value: who runs tile IR has checked the promise, here its runs are scattered."""
    return warp.array(operation.operands[0]) if operation.results else None


COMPUTE: Mapping[str, Compute] = MappingProxyType(
    {
        **dict.fromkeys((*hints.COMPUTE, "print"), _promise),
        "arange": _arange,
        "splat": _splat,
        "expand_dims": _reshape,
        "reshape": _reshape,
        "transpose": _transpose,
        "broadcast": _broadcast,
        "tile_part": _part,
    }
)
EXCHANGES: Mapping[str, Exchange] = MappingProxyType(
    {"convert_layout": _convert_layout, "flip": _flip, "reduce": _reduce}
)
