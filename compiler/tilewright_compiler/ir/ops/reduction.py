"""Reductions of a tile along one axis, in a fixed order, so that equal inputs give equal bits.

`reduce {axis, kind}` with kind sum, max, min, and, or or xor removes the axis; a rank-1 tile gives
a scalar. Sums of f16 and bf16 accumulate in f32 and are rounded once by a later cast: the frontend
converts first. max and min give NaN if any element is NaN; and, or and xor are of integers. Any
other function is `reduce_with` (`ir.ops.combine`), which keeps the order of the elements.
"""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import OperationSpec
from tilewright_compiler.ir.types import PointerType, element_type, lacks_arithmetic, shape_of

# The elementwise operation that each kind applies.
COMBINE = {"sum": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}
_BITWISE = ("and", "or", "xor")


def _verify(operation: Operation) -> str | None:
    source, axis = operation.operands[0].type, operation.attributes["axis"]
    shape = shape_of(source)
    if not 0 <= axis < len(shape):
        return f"axis {axis} is not in a tile of shape {shape}"
    kind = operation.attributes["kind"]
    if kind not in COMBINE:
        return f"kind is one of {tuple(COMBINE)}"
    if isinstance(element_type(source), PointerType):
        return "pointers cannot be reduced"
    if kind in _BITWISE and element_type(source).dtype.is_float:
        return f"{kind} is of integers"
    result, expected = operation.result.type, shape[:axis] + shape[axis + 1 :]
    if element_type(result) != element_type(source) or shape_of(result) != expected:
        return f"result has the operand's elements and shape {expected}"
    return lacks_arithmetic(source)


SPECS = (
    OperationSpec(
        "reduce", (1, 1), ("axis", "kind"), verify=_verify, optional_attributes=("shared_offset",)
    ),
)
