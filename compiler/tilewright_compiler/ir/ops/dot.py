"""The product of two tiles.

| operation | operands | attributes |
|---|---|---|
| dot | a `[M, K]`, b `[K, N]`, acc `[M, N]` -> `acc + a @ b` | precision; atom, warps |

Operands have one dtype, or two of 8 bits of one kind (i8 with u8, f8e4m3 with f8e5m2). The
accumulator is f32 for floats of at most 32 bits, f64 for f64, i32 for 8-bit integers (which wrap).
Products of floats narrower than 32 bits are exact; sums are in the accumulator's dtype, in any
order, but for those of 8-bit floats: up to 128 products may be added up with 14 bits first.
`precision` says what becomes of f32 operands: "ieee" multiplies and adds in f32, "tf32" rounds them
to tf32 (11 bits, ties away from zero) first, "tf32x3" adds the three products of their high and low
parts that matter, and gives NaN for infinite operands, whose low part is one. For other dtypes it
is "ieee".

The schedule sets `atom`, the name of an instruction of `layout.atoms`, and `warps`, how many share
M and N; then operands may lie in shared memory, from which the dot reads fragments by itself.
"""

from __future__ import annotations

from tilewright.abi.dtypes import DType, float32, float64, int32
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import OperationSpec
from tilewright_compiler.ir.types import (
    PointerType,
    TileType,
    Type,
    element_dtype,
    element_type,
    shape_of,
)

PRECISIONS = ("ieee", "tf32", "tf32x3")


def accumulator_dtype(a: DType, b: DType) -> DType | None:
    """Return the dtype in which products of `a` and `b` are summed; None if they do not match."""
    if a != b and not (a.bits == b.bits == 8 and a.is_float == b.is_float):
        return None
    if a.is_float:
        return float64 if a == float64 else float32
    return int32 if a.bits == 8 else None


def _verify_dot(operation: Operation) -> str | None:
    a, b, acc = (value.type for value in operation.operands)
    if not isinstance(acc, TileType) or acc != operation.result.type:
        return f"accumulator and result are one tile, got {acc} and {operation.result.type}"
    if any(isinstance(element_type(type_), PointerType) for type_ in (a, b)):
        return "operands are tiles of numbers"
    if not _shapes_agree(a, b, acc):
        return f"[M, K] @ [K, N] gives [M, N], got {a}, {b} and {acc}"
    if accumulator_dtype(element_dtype(a), element_dtype(b)) != element_dtype(acc):
        return f"{a} and {b} do not accumulate in {acc}"
    precision = operation.attributes["precision"]
    if precision not in PRECISIONS:
        return f"precision is one of {PRECISIONS}, got {precision!r}"
    if precision != "ieee" and element_dtype(a) != float32:
        return f"precision {precision} is for f32, got {a}"
    return None


def _shapes_agree(a: Type, b: Type, acc: Type) -> bool:
    shapes = shape_of(a), shape_of(b), shape_of(acc)
    if any(len(shape) != 2 for shape in shapes):
        return False
    (m, k), (inner, n), result = shapes
    return inner == k and result == (m, n)


SPECS = (
    OperationSpec(
        "dot", (3, 3), ("precision",), optional_attributes=("atom", "warps"), verify=_verify_dot
    ),
)
