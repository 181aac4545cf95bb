"""Layout conversions and flips: carries out the plans of `layout.convert`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

from tilewright_compiler.emit.indices import add_or_xor
from tilewright_compiler.emit.kernel import Emit, Fragment, KernelEmitter, layout_of
from tilewright_compiler.emit.lanes import shuffle
from tilewright_compiler.emit.types import element_text
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import ElementType, element_bytes, element_type
from tilewright_compiler.layout.convert import (
    Conversion,
    Identity,
    LaneSelect,
    RegisterMove,
    ShuffleExchange,
    plan_conversion,
)
from tilewright_compiler.layout.flip import plan_flip
from tilewright_compiler.layout.shared import SharedExchange


def _emit_convert_layout(emitter: KernelEmitter, operation: Operation) -> None:
    (operand,) = operation.operands
    plan = plan_conversion(
        layout_of(operand.type),
        layout_of(operation.result.type),
        size_bytes=element_bytes(operand.type),
    )
    _carry_out(emitter, operation, plan)


def _emit_flip(emitter: KernelEmitter, operation: Operation) -> None:
    type_ = operation.result.type
    axis: int = operation.attributes["axis"]
    _carry_out(
        emitter,
        operation,
        plan_flip(layout_of(type_), axis, size_bytes=element_bytes(type_)),
    )
    emitter.flips.add(operation.result)


def _carry_out(emitter: KernelEmitter, operation: Operation, plan: Conversion) -> None:
    (operand,) = operation.operands
    source, element = emitter.fragment(operand), element_type(operand.type)
    match plan:
        case Identity():
            result = source
        case RegisterMove():
            result = tuple(source[register] for register in plan.sources)
        case ShuffleExchange():
            result = _shuffle_exchange(emitter, plan, source, element)
        case SharedExchange():
            offset = operation.attributes["shared_offset"]
            result = emitter.shared.exchange(plan, source, element, offset=offset)
        case _:
            assert_never(plan)
    emitter.define(operation.result, result)


def _shuffle_exchange(
    emitter: KernelEmitter, plan: ShuffleExchange, source: Fragment, element: ElementType
) -> Fragment:
    text = emitter.text
    values = _apply_selects(emitter, plan.send, source, element)
    received = []
    for step in plan.rounds:
        value = values[step.register]
        if plan.is_butterfly:
            if step.lane_xor:
                distance = text.i32(step.lane_xor)
                value = shuffle(text, value, element, mode="bfly", lane=distance)
        else:
            sender = emitter.threads.linear(lane=plan.sender, warp=())
            lane = text.i32(step.lane_xor)
            if sender is not None and step.lane_xor:
                lane = add_or_xor(text, sender, lane, disjoint=False)
            elif sender is not None:
                lane = sender
            value = shuffle(text, value, element, mode="idx", lane=lane)
        received.append(value)
    return _apply_selects(emitter, plan.receive, received, element)


def _apply_selects(
    emitter: KernelEmitter,
    selects: Sequence[LaneSelect],
    values: Sequence[str],
    element: ElementType,
) -> Fragment:
    type_ = element_text(element)
    current = tuple(values)
    for select in selects:
        condition = emitter.threads.lane_bit(select.lane_bit)
        current = tuple(
            value
            if value == current[index ^ select.mask]
            else emitter.text.value(
                f"llvm.select {condition}, {current[index ^ select.mask]}, {value} : i1, {type_}"
            )
            for index, value in enumerate(current)
        )
    return current


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {"convert_layout": _emit_convert_layout, "flip": _emit_flip}
)
