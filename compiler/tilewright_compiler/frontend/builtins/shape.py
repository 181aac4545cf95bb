"""Tiles from nothing, and tiles of another shape."""

from __future__ import annotations

from math import prod

import tilewright.language as tl
from tilewright.abi.dtypes import int32
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.constants import fits
from tilewright_compiler.frontend.infer_types import shape_of_operand, tile_of
from tilewright_compiler.frontend.operands import Operand, TupleOperand, describe, is_number
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, element_type, shape_of


@implements(tl.arange)
def arange(scope: Scope, start: Operand, end: Operand) -> Operand:
    """Build `start, start + 1, ..., end - 1`."""
    first, last = (
        arguments.integer(start, "`start` of tl.arange"),
        arguments.integer(end, "`end` of tl.arange"),
    )
    extent = last - first
    if extent < 1 or extent & (extent - 1):
        msg = (
            f"tl.arange({first}, {last}) has {extent} elements; end - start is a power of two, "
            "round up and mask the lanes beyond the end"
        )
        raise KernelValueError(msg)
    if not fits(first, int32) or not fits(last - 1, int32):
        msg = f"tl.arange({first}, {last}) gives i32; add a larger start to the tile instead"
        raise KernelValueError(msg)
    return scope.builder.value(
        "arange", (), tile_of((extent,), ScalarType(int32)), start=first, end=last
    )


@implements(tl.full)
def full(scope: Scope, shape: Operand, value: Operand, dtype: Operand) -> Operand:
    """Build a tile of one number."""
    extents = arguments.shape(shape, "`shape` of tl.full")
    element = arguments.dtype(dtype, "`dtype` of tl.full")
    if shape_of_operand(value):
        msg = (
            f"`value` of tl.full is a number or a scalar, got {describe(value)}; use "
            "tl.broadcast_to"
        )
        raise KernelTypeError(msg)
    target = tile_of(extents, ScalarType(element))
    scalar = convert.as_number(scope, value, element, "`value` of tl.full")
    return convert.broadcast(scope, scalar, shape_of(target))


@implements(tl.zeros)
def zeros(scope: Scope, shape: Operand, dtype: Operand) -> Operand:
    """Build a tile of zeros."""
    extents = arguments.shape(shape, "`shape` of tl.zeros")
    element = ScalarType(arguments.dtype(dtype, "`dtype` of tl.zeros"))
    return convert.filled(scope, 0, tile_of(extents, element))


@implements(tl.zeros_like)
def zeros_like(scope: Scope, x: Operand) -> Operand:
    """Build zeros of a tile's type."""
    value = convert.as_value(scope, x, "tl.zeros_like")
    return convert.filled(
        scope, 0, tile_of(shape_of(value.type), ScalarType(element_dtype(value.type)))
    )


@implements(tl.broadcast_to)
def broadcast_to(scope: Scope, x: Operand, shape: Operand) -> Operand:
    """Build a value repeated to a shape."""
    extents = arguments.shape(shape, "`shape` of tl.broadcast_to")
    value = convert.as_value(scope, x, "tl.broadcast_to")
    return convert.broadcast(scope, value, extents, "`x` of tl.broadcast_to")


@implements(tl.expand_dims)
def expand_dims(scope: Scope, x: Operand, axis: Operand) -> Operand:
    """Build a tile with one more axis."""
    value = arguments.tile(x, "`x` of tl.expand_dims")
    rank = len(shape_of(value.type)) + 1
    return convert.expand_dims(scope, value, arguments.axis(axis, rank, "`axis` of tl.expand_dims"))


@implements(tl.reshape)
def reshape(scope: Scope, x: Operand, shape: Operand) -> Operand:
    """Build the same elements in another shape."""
    value = arguments.tile(x, "`x` of tl.reshape")
    return reshaped(scope, value, arguments.shape(shape, "`shape` of tl.reshape"))


@implements(tl.ravel)
def ravel(scope: Scope, x: Operand) -> Operand:
    """Build the same elements along one axis."""
    value = arguments.tile(x, "`x` of tl.ravel")
    return reshaped(scope, value, (prod(shape_of(value.type)),))


@implements(tl.trans)
def trans(scope: Scope, x: Operand, order: Operand) -> Operand:
    """Build a tile with its axes permuted."""
    value = arguments.tile(x, "`x` of tl.trans")
    rank = len(shape_of(value.type))
    if isinstance(order, TupleOperand):
        axes = tuple(
            arguments.axis(item, rank, "an axis in `order` of tl.trans") for item in order.items
        )
        if sorted(axes) != list(range(rank)):
            msg = f"`order` of tl.trans names each of the {rank} axes once, got {describe(order)}"
            raise KernelValueError(msg)
        return transposed(scope, value, axes)
    if is_number(order) or isinstance(order, Value):
        msg = f"`order` of tl.trans is a tuple of axes, got {describe(order)}"
        raise KernelTypeError(msg)
    return swapped(scope, value, "tl.trans")


def swapped(scope: Scope, value: Value, what: str) -> Value:
    """Build a tile with its last two axes swapped."""
    rank = len(shape_of(value.type))
    if rank < 2:
        msg = f"{what} swaps the last two axes, but {describe(value)} has rank {rank}"
        raise KernelTypeError(msg)
    return transposed(scope, value, (*range(rank - 2), rank - 1, rank - 2))


def transposed(scope: Scope, value: Value, order: tuple[int, ...]) -> Value:
    """Build the permutation of axes; the identity builds nothing."""
    shape = shape_of(value.type)
    if order == tuple(range(len(shape))):
        return value
    target = tile_of(tuple(shape[axis] for axis in order), element_type(value.type))
    return scope.builder.value("transpose", (value,), target, order=order)


def reshaped(scope: Scope, value: Value, shape: tuple[int, ...]) -> Value:
    """Build the elements of a tile in another shape of as many; the same shape builds nothing."""
    source = shape_of(value.type)
    if source == shape:
        return value
    if prod(source) != prod(shape):
        msg = (
            f"{describe(value)} has {prod(source)} elements, shape {list(shape)} has {prod(shape)}"
        )
        raise KernelTypeError(msg)
    return scope.builder.value("reshape", (value,), tile_of(shape, element_type(value.type)))
