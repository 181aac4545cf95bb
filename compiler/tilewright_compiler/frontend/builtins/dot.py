"""The product of two tiles: which dtypes meet, in which they are summed, and what the result has.

Nothing promotes here. An operand that was cast without being asked for would cost a conversion of
every element, or digits, and neither would show in the source.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.abi.dtypes import DType, float32
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import dtype_name, tile_of
from tilewright_compiler.frontend.operands import NONE, Operand, describe
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.ops.dot import PRECISIONS, accumulator_dtype
from tilewright_compiler.ir.types import ScalarType, Type, element_dtype, shape_of

_REFUSED = {
    "allow_tf32": 'write input_precision="tf32" for True; without input_precision f32 operands are '
    "multiplied in f32",
    "max_num_imprecise_acc": "sums are in the accumulator's dtype, but for up to 128 products of "
    "8-bit floats at a time; leave it out",
}


@implements(tl.dot, refused=_REFUSED)
def dot(
    scope: Scope,
    a: Operand,
    b: Operand,
    acc: Operand,
    input_precision: Operand,
    out_dtype: Operand,
) -> Operand:
    """Build `acc + a @ b`, cast if another dtype is asked for."""
    left, right = _matrix(a, "`a` of tl.dot"), _matrix(b, "`b` of tl.dot")
    accumulator = _accumulator_dtype(left, right)
    (m, inner), (outer, n) = shape_of(left.type), shape_of(right.type)
    if inner != outer:
        msg = (
            f"tl.dot of {describe(left)} and {describe(right)}: the last extent of `a` is {inner}, "
            f"the first of `b` {outer}; [M, K] @ [K, N] is wanted, .T swaps the axes"
        )
        raise KernelTypeError(msg)
    result = tile_of((m, n), ScalarType(accumulator))
    value = scope.builder.value(
        "dot",
        (left, right, _accumulator(scope, acc, result, (left, right))),
        result,
        precision=_precision(input_precision, element_dtype(left.type)),
    )
    if out_dtype == NONE:
        return value
    return convert.cast(scope, value, arguments.dtype(out_dtype, "`out_dtype` of tl.dot"))


def _matrix(operand: Operand, what: str) -> Value:
    value = arguments.tile(operand, what)
    if is_pointer(value):
        msg = f"{what} is a tile of numbers, got {describe(value)}; load it with tl.load"
        raise KernelTypeError(msg)
    if len(shape_of(value.type)) != 2:
        msg = f"{what} is a tile of rank 2, got {describe(value)}; tl.reshape gives it another rank"
        raise KernelTypeError(msg)
    return value


def _accumulator_dtype(left: Value, right: Value) -> DType:
    found = accumulator_dtype(element_dtype(left.type), element_dtype(right.type))
    if found is None:
        msg = (
            f"tl.dot does not multiply {describe(left)} and {describe(right)}: it takes two tiles "
            "of one float dtype, or of 8-bit integers, or of 8-bit floats; cast with .to(...) first"
        )
        raise KernelTypeError(msg)
    return found


def _accumulator(scope: Scope, acc: Operand, type_: Type, factors: tuple[Value, Value]) -> Value:
    """Return the accumulator, zeros if none is given."""
    if acc == NONE:
        return convert.filled(scope, 0, type_)
    value = arguments.tile(acc, "`acc` of tl.dot")
    if value.type == type_:
        return value
    dtype, shape = element_dtype(type_), list(shape_of(type_))
    msg = (
        f"`acc` of tl.dot is {describe(value)}, but {describe(factors[0])} @ "
        f"{describe(factors[1])} is summed in {dtype_name(dtype)} and has shape {shape}; start "
        f"from tl.zeros({tuple(shape)}, {dtype_name(dtype)}) and cast after the last tl.dot"
    )
    raise KernelTypeError(msg)


def _precision(operand: Operand, dtype: DType) -> str:
    """Return the precision; that of operands other than f32 is always "ieee"."""
    if operand == NONE:
        return "ieee"
    given = arguments.choice(operand, "`input_precision` of tl.dot", PRECISIONS)
    return given if dtype == float32 else "ieee"
