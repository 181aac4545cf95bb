"""Elements found by their values: looked up by index, and counted.

| operation | operands -> result | attributes |
|---|---|---|
| gather | source, index -> tile of the index' shape: along the axis, the source's element there \
| axis |
| histogram | tile of integers, optional mask -> tile<N x i32> | |

The index of `gather` is taken modulo the extent, so that -1 is the last element; along the other
axes source and index have the same extents. `histogram` counts how often each of 0 .. N - 1 occurs
where the mask is true; other values count nowhere.
"""

from __future__ import annotations

from tilewright.abi.dtypes import int1, int32
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import OperationSpec
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    TileType,
    Type,
    element_type,
    shape_of,
)


def _is_integer(type_: Type) -> bool:
    element = element_type(type_)
    return not isinstance(element, PointerType) and element.dtype.kind in ("int", "uint")


def _verify_gather(operation: Operation) -> str | None:
    source, index = (value.type for value in operation.operands)
    axis: int = operation.attributes["axis"]
    extents, wanted = list(shape_of(source)), list(shape_of(index))
    if not 0 <= axis < len(extents) or len(extents) != len(wanted):
        return f"axis {axis} of tiles of one rank, got {source} and {index}"
    if not _is_integer(index):
        return f"the index is a tile of integers, got {index}"
    if isinstance(element_type(source), PointerType):
        return "pointers are not gathered"
    extents[axis] = wanted[axis]
    if extents != wanted:
        return f"{source} and {index} agree along all axes but {axis}"
    result = operation.result.type
    good = element_type(result) == element_type(source) and shape_of(result) == shape_of(index)
    return None if good else "the result has the source's elements and the index' shape"


def _verify_histogram(operation: Operation) -> str | None:
    source, *masks = (value.type for value in operation.operands)
    if not _is_integer(source) or not isinstance(source, TileType):
        return f"counts a tile of integers, got {source}"
    if masks and (element_type(masks[0]) != ScalarType(int1) or shape_of(masks[0]) != source.shape):
        return f"the mask is a tile of bools of shape {source.shape}"
    result = operation.result.type
    good = len(shape_of(result)) == 1 and element_type(result) == ScalarType(int32)
    return None if good else "the result is a tile of i32 of rank 1"


SPECS = (
    OperationSpec(
        "gather", (2, 2), ("axis",), verify=_verify_gather, optional_attributes=("shared_offset",)
    ),
    OperationSpec(
        "histogram", (1, 2), verify=_verify_histogram, optional_attributes=("shared_offset",)
    ),
)
