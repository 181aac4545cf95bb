"""Reductions and scans by a function that the operation brings along, in the order of the elements.

| operation | operands -> results | attributes | region |
|---|---|---|---|
| reduce_with | n tiles of one shape -> the same without the axis | axis | combine |
| scan | n tiles of one shape -> tiles of the same types | axis, reverse | combine |

The region `combine(a_1 .. a_n, b_1 .. b_n)` is on scalars of the tiles' elements and yields n of
them. It must be associative, and is not asked to be commutative: `a` are elements before `b` along
the axis, or with `reverse` behind them. In a scan each element becomes what all before it and
itself combine to. The region computes only: no loads, stores or calls once calls are inlined.
"""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    TileType,
    element_type,
    shape_of,
)

NAMES = ("reduce_with", "scan")
_MANY = 1 << 30


def _verify_combine(operation: Operation) -> str | None:
    types = [value.type for value in operation.operands]
    shapes = {shape_of(type_) for type_ in types}
    if len(shapes) != 1 or not all(isinstance(type_, TileType) for type_ in types):
        return "operands are tiles of one shape"
    (shape,) = shapes
    if not 0 <= operation.attributes["axis"] < len(shape):
        return f"axis {operation.attributes['axis']} is not in a tile of shape {shape}"
    elements = [element_type(type_) for type_ in types]
    if any(isinstance(element, PointerType) for element in elements):
        return "pointers are not combined"
    (region,) = operation.regions
    scalars = [ScalarType(element.dtype) for element in elements]
    if [argument.type for argument in region.arguments] != scalars * 2:
        return "the region takes two scalars for each operand"
    if [value.type for value in region.terminator.operands] != scalars:
        return "the region yields one scalar for each operand"
    for inner in region.walk():
        if any(isinstance(value.type, TileType) for value in (*inner.operands, *inner.results)):
            return f"the region computes with scalars, {inner.name} has a tile"
    return None


def _verify_reduce_with(operation: Operation) -> str | None:
    complaint = _verify_combine(operation)
    if complaint is not None:
        return complaint
    axis: int = operation.attributes["axis"]
    if len(operation.results) != len(operation.operands):
        return "there is a result for each operand"
    for operand, result in zip(operation.operands, operation.results, strict=True):
        shape = shape_of(operand.type)
        expected = (*shape[:axis], *shape[axis + 1 :])
        same = element_type(result.type) == element_type(operand.type)
        if not same or shape_of(result.type) != expected:
            return f"results have the operands' elements and shape {expected}"
    return None


def _verify_scan(operation: Operation) -> str | None:
    operands, results = operation.operands, operation.results
    if [value.type for value in operands] != [value.type for value in results]:
        return "results have the operands' types"
    return _verify_combine(operation)


SPECS = (
    OperationSpec(
        "reduce_with",
        (1, _MANY),
        ("axis",),
        Effect.CONTROL,
        regions=1,
        results=None,
        optional_attributes=("shared_offset",),
        verify=_verify_reduce_with,
    ),
    OperationSpec(
        "scan",
        (1, _MANY),
        ("axis", "reverse"),
        Effect.CONTROL,
        regions=1,
        results=None,
        optional_attributes=("shared_offset",),
        verify=_verify_scan,
    ),
)
