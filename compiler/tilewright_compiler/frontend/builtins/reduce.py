"""Reductions: which dtype accumulates, which axes disappear, and where an extremum stands."""

from __future__ import annotations

from math import prod

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int1, int32
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments, shape
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.combine import combine_region, operand_tiles
from tilewright_compiler.frontend.infer_types import check_arithmetic, sum_dtypes, tile_of
from tilewright_compiler.frontend.operands import NONE, Operand, TupleOperand, describe
from tilewright_compiler.frontend.operators import is_pointer, to_bool
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, element_type, like, shape_of


@implements(tl.sum)
def sum(scope: Scope, x: Operand, axis: Operand, keep_dims: Operand, dtype: Operand) -> Operand:
    """Build a sum; f16 and bf16 accumulate in f32, narrow integers in 32 bits."""
    value, result = accumulated(scope, numbers(x, "tl.sum"), dtype, "tl.sum")
    return convert.cast(scope, _reduce(scope, "sum", value, axis, keep_dims), result)


@implements(tl.max)
def max(
    scope: Scope,
    x: Operand,
    axis: Operand,
    return_indices: Operand,
    return_indices_tie_break_left: Operand,
    keep_dims: Operand,
) -> Operand:
    """Build a maximum; of bools it is whether any is true."""
    flags = (return_indices, return_indices_tie_break_left, keep_dims)
    return _extremum(scope, "max", x, axis, *flags)


@implements(tl.min)
def min(
    scope: Scope,
    x: Operand,
    axis: Operand,
    return_indices: Operand,
    return_indices_tie_break_left: Operand,
    keep_dims: Operand,
) -> Operand:
    """Build a minimum; of bools it is whether all are true."""
    flags = (return_indices, return_indices_tie_break_left, keep_dims)
    return _extremum(scope, "min", x, axis, *flags)


@implements(tl.argmax)
def argmax(
    scope: Scope, x: Operand, axis: Operand, tie_break_left: Operand, keep_dims: Operand
) -> Operand:
    """Build the first index of the maximum."""
    return _place(scope, "max", x, axis, tie_break_left, keep_dims)


@implements(tl.argmin)
def argmin(
    scope: Scope, x: Operand, axis: Operand, tie_break_left: Operand, keep_dims: Operand
) -> Operand:
    """Build the first index of the minimum."""
    return _place(scope, "min", x, axis, tie_break_left, keep_dims)


@implements(tl.xor_sum)
def xor_sum(scope: Scope, x: Operand, axis: Operand, keep_dims: Operand) -> Operand:
    """Build an exclusive or."""
    return _bitwise(scope, "xor", x, axis, keep_dims, "tl.xor_sum")


@implements(tl.reduce_or)
def reduce_or(scope: Scope, x: Operand, axis: Operand, keep_dims: Operand) -> Operand:
    """Build an or of bits."""
    return _bitwise(scope, "or", x, axis, keep_dims, "tl.reduce_or")


@implements(tl.reduce)
def reduce(
    scope: Scope, x: Operand, axis: Operand, combine_fn: Operand, keep_dims: Operand
) -> Operand:
    """Build a reduction by a function, of one tile or of several at once."""
    tiles = operand_tiles(x, "`x` of tl.reduce")
    extents = shape_of(tiles[0].type)
    keep = arguments.flag(keep_dims, "`keep_dims` of tl.reduce")
    number = 0
    if axis == NONE:
        tiles = tuple(shape.reshaped(scope, tile, (prod(extents),)) for tile in tiles)
    else:
        number = arguments.axis(axis, len(extents), "`axis` of tl.reduce")
    elements = [element_type(tile.type) for tile in tiles]
    region = combine_region(scope, combine_fn, elements, "tl.reduce")
    source = shape_of(tiles[0].type)
    target = (*source[:number], *source[number + 1 :])
    types = [tile_of(target, element) for element in elements]
    operation = scope.builder.create("reduce_with", tiles, types, [region], axis=number)
    results: tuple[Operand, ...] = operation.results
    if keep:
        kept = None if axis == NONE else number
        results = tuple(_kept(scope, result, kept, len(extents)) for result in operation.results)
    return TupleOperand(results) if isinstance(x, TupleOperand) else results[0]


def numbers(operand: Operand, what: str) -> Value:
    """Return a tile in which something can be computed."""
    value = arguments.tile(operand, what)
    if is_pointer(value):
        msg = f"{what} takes a tile of numbers, got {describe(value)}"
        raise KernelTypeError(msg)
    check_arithmetic(element_dtype(value.type), what)
    return value


def accumulated(scope: Scope, value: Value, dtype: Operand, what: str) -> tuple[Value, DType]:
    """Return a tile cast to what its sum accumulates in, and the dtype of the sum."""
    if dtype == NONE:
        accumulator, result = sum_dtypes(element_dtype(value.type))
        return convert.cast(scope, value, accumulator), result
    result = arguments.dtype(dtype, f"`dtype` of {what}")
    check_arithmetic(result, what)
    return convert.cast(scope, convert.cast(scope, value, result), sum_dtypes(result)[0]), result


def _extremum(
    scope: Scope,
    kind: str,
    x: Operand,
    axis: Operand,
    return_indices: Operand,
    tie_break_left: Operand,
    keep_dims: Operand,
) -> Operand:
    what = f"tl.{kind}"
    value = numbers(x, what)
    dtype = element_dtype(value.type)
    wide = convert.cast(scope, value, int32) if dtype == int1 else value
    largest = _reduce(scope, kind, wide, axis, keep_dims)
    if dtype == int1:
        largest = to_bool(scope, largest)
    if not arguments.flag(return_indices, f"`return_indices` of {what}"):
        return largest
    return TupleOperand((largest, _place(scope, kind, x, axis, tie_break_left, keep_dims)))


def _place(
    scope: Scope, kind: str, x: Operand, axis: Operand, tie_break_left: Operand, keep_dims: Operand
) -> Value:
    """Build the first index at which the extremum stands, or at which a NaN does.

    Two reductions: the extremum, then the least index of an element that is equal to it.
    """
    what = f"tl.arg{kind}"
    arguments.flag(tie_break_left, f"`tie_break_left` of {what}")
    keep = arguments.flag(keep_dims, f"`keep_dims` of {what}")
    value = numbers(x, what)
    rank = len(shape_of(value.type))
    if element_dtype(value.type) == int1:
        value = convert.cast(scope, value, int32)
    if axis == NONE:
        value, number = shape.reshaped(scope, value, (prod(shape_of(value.type)),)), 0
    else:
        number = arguments.axis(axis, rank, f"`axis` of {what}")
    extents, bools = shape_of(value.type), like(value.type, ScalarType(int1))
    found = _reduce_axis(scope, kind, value, number)
    if shape_of(found.type):
        found = convert.expand_dims(scope, found, number)
    found = convert.broadcast(scope, found, extents)
    build = scope.builder.value
    is_there = build("cmp", (value, found), bools, predicate="eq")
    if element_dtype(value.type).is_float:
        is_nan = build("cmp", (value, value), bools, predicate="ne")
        is_there = build("or", (is_there, is_nan), bools)
    index = shape.indices(scope, extents, number)
    beyond = convert.filled(scope, extents[number], index.type)
    place = _reduce_axis(
        scope, "min", build("select", (is_there, index, beyond), index.type), number
    )
    return _kept(scope, place, None if axis == NONE else number, rank) if keep else place


def _bitwise(
    scope: Scope, kind: str, x: Operand, axis: Operand, keep_dims: Operand, what: str
) -> Value:
    value = numbers(x, what)
    dtype = element_dtype(value.type)
    if dtype.is_float:
        msg = f"{what} takes integers or bools, got {describe(value)}; cast with .to(...) first"
        raise KernelTypeError(msg)
    return _reduce(scope, kind, value, axis, keep_dims)


def _reduce(scope: Scope, kind: str, value: Value, axis: Operand, keep_dims: Operand) -> Value:
    """Reduce one axis, or all from the last to the first."""
    keep = arguments.flag(keep_dims, f"`keep_dims` of tl.{kind}")
    rank = len(shape_of(value.type))
    if axis != NONE:
        number = arguments.axis(axis, rank, f"`axis` of tl.{kind}")
        result = _reduce_axis(scope, kind, value, number)
        return _kept(scope, result, number, rank) if keep else result
    for number in range(rank - 1, -1, -1):
        value = _reduce_axis(scope, kind, value, number)
    return _kept(scope, value, None, rank) if keep else value


def _reduce_axis(scope: Scope, kind: str, value: Value, axis: int) -> Value:
    extents = shape_of(value.type)
    target = tile_of((*extents[:axis], *extents[axis + 1 :]), element_type(value.type))
    return scope.builder.value("reduce", (value,), target, axis=axis, kind=kind)


def _kept(scope: Scope, result: Value, axis: int | None, rank: int) -> Value:
    """Put extent 1 where the axis was; without one, along all `rank` axes."""
    if not shape_of(result.type):
        return convert.broadcast(scope, result, (1,) * rank)
    assert axis is not None, "without an axis the result is a scalar"
    return convert.expand_dims(scope, result, axis)
