"""Where tiles come from and how their shape changes; reads of the program's place in the grid.

| operation | operands -> result | attributes |
|---|---|---|
| program_id, num_programs | -> i64 | axis 0..2 |
| constant | -> scalar | value: int in range, float (rounded to the dtype) or bool |
| arange | -> tile<N x i32>, `start + i` | start, end; N = end - start, a power of two |
| splat | scalar or pointer -> tile of it | |
| expand_dims | tile -> tile with an extent 1 at axis | axis |
| broadcast | tile -> tile of the same rank, extents 1 repeated | |
| reshape | tile -> tile of as many elements, row-major order kept | |
| transpose | tile -> tile; result dim i is operand dim order[i] | order |
| flip | tile -> tile; element i along the axis is the operand's N - 1 - i | axis |
"""

from __future__ import annotations

from math import prod

from tilewright.abi.dtypes import int32, int64
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import OperationSpec
from tilewright_compiler.ir.types import ScalarType, TileType, element_type, shape_of


def _verify_grid(operation: Operation) -> str | None:
    if operation.attributes["axis"] not in (0, 1, 2):
        return "axis is 0, 1 or 2"
    return None if operation.result.type == ScalarType(int64) else "result is i64"


def _verify_constant(operation: Operation) -> str | None:
    type_, value = operation.result.type, operation.attributes["value"]
    if not isinstance(type_, ScalarType):
        return "result is a scalar"
    match type_.dtype.kind:
        case "float":
            good = type(value) is float
        case "bool":
            good = type(value) is bool
        case "int":
            half = 1 << (type_.dtype.bits - 1)
            good = type(value) is int and -half <= value < half
        case "uint":
            good = type(value) is int and 0 <= value < 1 << type_.dtype.bits
    return None if good else f"{value!r} is no value of {type_}"


def _verify_arange(operation: Operation) -> str | None:
    extent = operation.attributes["end"] - operation.attributes["start"]
    type_ = operation.result.type
    good = shape_of(type_) == (extent,) and element_type(type_) == ScalarType(int32)
    return None if good else f"result is a tile of {extent} x i32"


def _verify_splat(operation: Operation) -> str | None:
    source, target = operation.operands[0].type, operation.result.type
    good = isinstance(target, TileType) and target.element == source
    return None if good else "a scalar becomes a tile of it"


def _verify_expand_dims(operation: Operation) -> str | None:
    axis = operation.attributes["axis"]
    shape = shape_of(operation.operands[0].type)
    expected = (*shape[:axis], 1, *shape[axis:])
    return None if shape_of(operation.result.type) == expected else f"result shape is {expected}"


def _verify_broadcast(operation: Operation) -> str | None:
    source, target = shape_of(operation.operands[0].type), shape_of(operation.result.type)
    good = len(source) == len(target)
    good = good and all(s in (1, t) for s, t in zip(source, target, strict=True))
    return None if good else f"{source} does not broadcast to {target}"


def _verify_reshape(operation: Operation) -> str | None:
    source, target = shape_of(operation.operands[0].type), shape_of(operation.result.type)
    return None if prod(source) == prod(target) else f"{source} and {target} differ in size"


def _verify_transpose(operation: Operation) -> str | None:
    shape, order = shape_of(operation.operands[0].type), operation.attributes["order"]
    if sorted(order) != list(range(len(shape))):
        return f"order {order} is no permutation of the {len(shape)} axes"
    expected = tuple(shape[axis] for axis in order)
    return None if shape_of(operation.result.type) == expected else f"result shape is {expected}"


def _verify_flip(operation: Operation) -> str | None:
    type_, axis = operation.result.type, operation.attributes["axis"]
    if operation.operands[0].type != type_:
        return "operand and result have one type"
    return None if 0 <= axis < len(shape_of(type_)) else f"axis {axis} is none of {type_}"


SPECS = (
    OperationSpec("program_id", (0, 0), ("axis",), verify=_verify_grid),
    OperationSpec("num_programs", (0, 0), ("axis",), verify=_verify_grid),
    OperationSpec("constant", (0, 0), ("value",), verify=_verify_constant),
    OperationSpec("arange", (0, 0), ("start", "end"), verify=_verify_arange),
    OperationSpec("splat", (1, 1), verify=_verify_splat),
    OperationSpec("expand_dims", (1, 1), ("axis",), verify=_verify_expand_dims),
    OperationSpec("broadcast", (1, 1), verify=_verify_broadcast),
    OperationSpec("reshape", (1, 1), verify=_verify_reshape),
    OperationSpec("transpose", (1, 1), ("order",), verify=_verify_transpose),
    OperationSpec(
        "flip", (1, 1), ("axis",), verify=_verify_flip, optional_attributes=("shared_offset",)
    ),
)
