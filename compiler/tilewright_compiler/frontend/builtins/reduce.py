"""Reductions: which dtype accumulates, which axes disappear."""

from __future__ import annotations

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int1, int32
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import check_arithmetic, sum_dtypes, tile_of
from tilewright_compiler.frontend.operands import NONE, Operand, describe
from tilewright_compiler.frontend.operators import is_pointer, to_bool
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import element_dtype, element_type, shape_of


@implements(tl.sum)
def sum(scope: Scope, x: Operand, axis: Operand, keep_dims: Operand) -> Operand:
    """Build a sum; f16 and bf16 accumulate in f32, narrow integers in 32 bits."""
    value = _numbers(x, "tl.sum")
    accumulator, result = sum_dtypes(element_dtype(value.type))
    return convert.cast(scope, _reduce(scope, "sum", value, accumulator, axis, keep_dims), result)


@implements(tl.max)
def max(scope: Scope, x: Operand, axis: Operand, keep_dims: Operand) -> Operand:
    """Build a maximum; of bools it is whether any is true."""
    return _extremum(scope, "max", x, axis, keep_dims)


@implements(tl.min)
def min(scope: Scope, x: Operand, axis: Operand, keep_dims: Operand) -> Operand:
    """Build a minimum; of bools it is whether all are true."""
    return _extremum(scope, "min", x, axis, keep_dims)


def _extremum(scope: Scope, kind: str, x: Operand, axis: Operand, keep_dims: Operand) -> Value:
    value = _numbers(x, f"tl.{kind}")
    dtype = element_dtype(value.type)
    if dtype != int1:
        return _reduce(scope, kind, value, dtype, axis, keep_dims)
    return to_bool(scope, _reduce(scope, kind, value, int32, axis, keep_dims))


def _numbers(operand: Operand, what: str) -> Value:
    value = arguments.tile(operand, what)
    if is_pointer(value):
        msg = f"{what} takes a tile of numbers, got {describe(value)}"
        raise KernelTypeError(msg)
    check_arithmetic(element_dtype(value.type), what)
    return value


def _reduce(
    scope: Scope, kind: str, value: Value, dtype: DType, axis: Operand, keep_dims: Operand
) -> Value:
    """Reduce one axis, or all from the last to the first, computing in `dtype`."""
    keep = arguments.flag(keep_dims, f"`keep_dims` of tl.{kind}")
    rank = len(shape_of(value.type))
    axes = (
        list(range(rank - 1, -1, -1))
        if axis == NONE
        else [arguments.axis(axis, rank, f"`axis` of tl.{kind}")]
    )
    result = convert.cast(scope, value, dtype)
    for number in axes:
        shape = shape_of(result.type)
        target = tile_of((*shape[:number], *shape[number + 1 :]), element_type(result.type))
        result = scope.builder.value("reduce", (result,), target, axis=number, kind=kind)
    if not keep:
        return result
    if not shape_of(result.type):
        return convert.broadcast(scope, result, (1,) * rank)
    return convert.expand_dims(scope, result, axes[0])
