"""Reductions: carries out the plans of `layout.reduce` in registers, across lanes, across warps.

The order of combination is the plan's, and additions here never contract, so equal inputs give
equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tilewright.errors import InternalCompilerError
from tilewright_compiler.emit.arithmetic import binary
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.lanes import shuffle
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.reduction import COMBINE
from tilewright_compiler.ir.types import TileType, element_bytes, element_dtype, element_type
from tilewright_compiler.layout.reduce import combine_order, plan_reduce


def _emit_reduce(emitter: KernelEmitter, operation: Operation) -> None:
    (operand,) = operation.operands
    element, dtype, text = element_type(operand.type), element_dtype(operand.type), emitter.text
    plan = plan_reduce(
        layout_of(operand.type), operation.attributes["axis"], size_bytes=element_bytes(element)
    )
    result_type = operation.result.type
    if isinstance(result_type, TileType) and result_type.layout != plan.result:
        msg = f"reduce gives layout {plan.result}, the schedule wants {result_type.layout}"
        raise InternalCompilerError(msg)
    name = COMBINE[operation.attributes["kind"]]

    def combine(left: str, right: str) -> str:
        return binary(text, name, left, right, dtype, contract=False)

    source = emitter.fragment(operand)
    partials = [
        _combine_tree([source[register] for register in group], combine) for group in plan.groups
    ]
    for mask in plan.lane_masks:
        distance = text.i32(mask)
        partials = [
            combine(value, shuffle(text, value, element, mode="bfly", lane=distance))
            for value in partials
        ]
    if plan.across_warps is not None:
        offset = operation.attributes["shared_offset"]
        gathered = emitter.shared.exchange(
            plan.across_warps.exchange, partials, element, offset=offset
        )
        partials = [
            _combine_tree([gathered[register] for register in group], combine)
            for group in plan.across_warps.groups
        ]
    emitter.define(operation.result, partials)


def _combine_tree(values: Sequence[str], combine: Callable[[str, str], str]) -> str:
    current = list(values)
    for left, right in combine_order(len(current)):
        current[left] = combine(current[left], current[right])
    return current[0]


EMITTERS: Mapping[str, Emit] = MappingProxyType({"reduce": _emit_reduce})
