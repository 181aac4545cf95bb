"""Tiles from nothing, and tiles of another shape."""

from __future__ import annotations

from math import prod

import tilewright.language as tl
from tilewright.abi.dtypes import int1, int32, uint8, uint16, uint32, uint64
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.constants import fits
from tilewright_compiler.frontend.infer_types import (
    chosen_dtype,
    common_shape,
    shape_of_operand,
    tile_of,
)
from tilewright_compiler.frontend.operands import NONE, Operand, TupleOperand, describe
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    element_dtype,
    element_type,
    like,
    shape_of,
)

_UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


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


@implements(tl.broadcast)
def broadcast(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build both operands repeated to their common shape."""
    shape = common_shape((x, y))
    values = [convert.as_value(scope, operand, "tl.broadcast") for operand in (x, y)]
    return TupleOperand(tuple(convert.broadcast(scope, value, shape) for value in values))


@implements(tl.expand_dims)
def expand_dims(scope: Scope, x: Operand, axis: Operand) -> Operand:
    """Build a tile with one more axis, or several."""
    value = arguments.tile(x, "`x` of tl.expand_dims")
    places = axis.items if isinstance(axis, TupleOperand) else (axis,)
    rank = len(shape_of(value.type)) + len(places)
    what = "`axis` of tl.expand_dims"
    axes = sorted(arguments.axis(place, rank, what) for place in places)
    if len(set(axes)) < len(axes):
        msg = f"{what} names a place twice, got {describe(axis)}"
        raise KernelValueError(msg)
    for place in axes:
        value = convert.expand_dims(scope, value, place)
    return value


@implements(tl.unsqueeze)
def unsqueeze(scope: Scope, x: Operand, dim: Operand) -> Operand:
    """Build a tile with one more axis."""
    value = arguments.tile(x, "`x` of tl.unsqueeze")
    rank = len(shape_of(value.type)) + 1
    return convert.expand_dims(scope, value, arguments.axis(dim, rank, "`dim` of tl.unsqueeze"))


@implements(tl.squeeze)
def squeeze(scope: Scope, x: Operand, dim: Operand) -> Operand:
    """Build a tile without an axis of extent 1."""
    value = arguments.tile(x, "`x` of tl.squeeze")
    shape = shape_of(value.type)
    axis = arguments.axis(dim, len(shape), "`dim` of tl.squeeze")
    if shape[axis] != 1:
        msg = f"tl.squeeze drops an axis of extent 1; axis {axis} of {describe(value)} is no such"
        raise KernelTypeError(msg)
    if len(shape) == 1:
        return selected(scope, value, 0, index=0)
    return reshaped(scope, value, (*shape[:axis], *shape[axis + 1 :]))


@implements(tl.reshape)
def reshape(scope: Scope, x: Operand, shape: Operand) -> Operand:
    """Build the same elements in another shape."""
    value = arguments.tile(x, "`x` of tl.reshape")
    return reshaped(scope, value, arguments.shape(shape, "`shape` of tl.reshape"))


@implements(tl.view)
def view(scope: Scope, x: Operand, shape: Operand) -> Operand:
    """Build the same elements in another shape."""
    value = arguments.tile(x, "`x` of tl.view")
    return reshaped(scope, value, arguments.shape(shape, "`shape` of tl.view"))


@implements(tl.ravel)
def ravel(scope: Scope, x: Operand) -> Operand:
    """Build the same elements along one axis."""
    value = arguments.tile(x, "`x` of tl.ravel")
    return reshaped(scope, value, (prod(shape_of(value.type)),))


@implements(tl.trans)
def trans(scope: Scope, x: Operand, order: Operand) -> Operand:
    """Build a tile with its axes permuted; by default the last two."""
    value = arguments.tile(x, "`x` of tl.trans")
    if order == NONE:
        return swapped(scope, value, "tl.trans")
    return _permuted(scope, value, order, "tl.trans")


@implements(tl.permute)
def permute(scope: Scope, x: Operand, order: Operand) -> Operand:
    """Build a tile with its axes permuted."""
    return _permuted(scope, arguments.tile(x, "`x` of tl.permute"), order, "tl.permute")


@implements(tl.join)
def join(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build two values behind each other along a new last axis."""
    return _joined(scope, x, y, len(common_shape((x, y))), "tl.join")


@implements(tl.interleave)
def interleave(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build two values in turn along the last axis."""
    pairs = _joined(scope, x, y, len(common_shape((x, y))), "tl.interleave")
    shape = shape_of(pairs.type)
    return pairs if len(shape) == 1 else reshaped(scope, pairs, (*shape[:-2], 2 * shape[-2]))


@implements(tl.cat)
def cat(scope: Scope, x: Operand, y: Operand, dim: Operand, can_reorder: Operand) -> Operand:
    """Build one tile behind another along an axis; the order is kept always."""
    arguments.flag(can_reorder, "`can_reorder` of tl.cat")
    shapes = [shape_of(arguments.tile(operand, "tl.cat").type) for operand in (x, y)]
    if shapes[0] != shapes[1]:
        msg = (
            f"tl.cat takes tiles of one shape, got {describe(x)} and {describe(y)}; the extents of "
            "a tile stay powers of two"
        )
        raise KernelTypeError(msg)
    axis = arguments.axis(dim, len(shapes[0]), "`dim` of tl.cat")
    shape = shapes[0]
    pairs = _joined(scope, x, y, axis, "tl.cat")
    return reshaped(scope, pairs, (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]))


@implements(tl.split)
def split(scope: Scope, x: Operand) -> Operand:
    """Build the two halves of pairs along the last axis."""
    value = _numbers(x, "tl.split")
    shape = shape_of(value.type)
    if shape[-1] != 2:
        msg = (
            f"tl.split takes a tile whose last axis has extent 2, got {describe(value)}; "
            "tl.reshape and tl.permute make one"
        )
        raise KernelTypeError(msg)
    axis = len(shape) - 1
    return TupleOperand(tuple(selected(scope, value, axis, index=index) for index in (0, 1)))


@implements(tl.flip)
def flip(scope: Scope, x: Operand, dim: Operand) -> Operand:
    """Build a tile in reverse order along an axis."""
    value = arguments.tile(x, "`x` of tl.flip")
    rank = len(shape_of(value.type))
    if dim == NONE and rank > 1:
        msg = f"tl.flip of {describe(value)} needs `dim`, the axis to reverse"
        raise KernelTypeError(msg)
    axis = 0 if dim == NONE else arguments.axis(dim, rank, "`dim` of tl.flip")
    if shape_of(value.type)[axis] == 1:
        return value
    return scope.builder.value("flip", (value,), value.type, axis=axis)


def selected(scope: Scope, value: Value, axis: int, *, index: int) -> Value:
    """Build the elements at one index of an axis, which disappears.

    All others become zeros and the axis is summed as integers, which is exact for any bits. Where
    a thread holds the axis, constants fold and nothing is left of it but a choice of registers.
    """
    dtype = element_dtype(value.type)
    shape = shape_of(value.type)
    bits = _UNSIGNED[max(dtype.bits, 8)]
    if dtype.bits == 1:
        value = convert.cast(scope, value, bits)
    elif dtype != bits:
        value = scope.builder.value("bitcast", (value,), like(value.type, ScalarType(bits)))
    if shape[axis] > 1:
        is_wanted = _is_index(scope, shape, axis, index)
        zero = convert.filled(scope, 0, value.type)
        value = scope.builder.value("select", (is_wanted, value, zero), value.type)
    target = tile_of((*shape[:axis], *shape[axis + 1 :]), ScalarType(bits))
    value = scope.builder.value("reduce", (value,), target, axis=axis, kind="sum")
    if dtype.bits == 1:
        return convert.cast(scope, value, dtype)
    if dtype == bits:
        return value
    return scope.builder.value("bitcast", (value,), like(value.type, ScalarType(dtype)))


def _joined(scope: Scope, x: Operand, y: Operand, axis: int, what: str) -> Value:
    """Build two values behind each other along a new axis: a choice by the index there."""
    dtype = chosen_dtype((x, y), what)
    shape = common_shape((x, y))
    pairs = (*shape[:axis], 2, *shape[axis:])
    halves = []
    for operand in (x, y):
        value = convert.broadcast(scope, convert.as_number(scope, operand, dtype, what), shape)
        if shape:
            value = convert.expand_dims(scope, value, axis)
        halves.append(convert.broadcast(scope, value, pairs))
    condition = _is_index(scope, pairs, axis, 0)
    return scope.builder.value("select", (condition, *halves), halves[0].type)


def _is_index(scope: Scope, shape: tuple[int, ...], axis: int, index: int) -> Value:
    """Build the bools of a shape that say where the index along an axis is `index`."""
    places = _along(scope, shape, axis)
    wanted = convert.filled(scope, index, places.type)
    is_there = scope.builder.value(
        "cmp", (places, wanted), like(places.type, ScalarType(int1)), predicate="eq"
    )
    return convert.broadcast(scope, is_there, shape)


def indices(scope: Scope, shape: tuple[int, ...], axis: int) -> Value:
    """Build the tile of a shape whose elements are their own indices along an axis, i32."""
    return convert.broadcast(scope, _along(scope, shape, axis), shape)


def _along(scope: Scope, shape: tuple[int, ...], axis: int) -> Value:
    """Build the indices along an axis, with extent 1 for each axis behind it."""
    extent = shape[axis]
    places = scope.builder.value(
        "arange", (), tile_of((extent,), ScalarType(int32)), start=0, end=extent
    )
    for _ in shape[axis + 1 :]:
        places = convert.expand_dims(scope, places, len(shape_of(places.type)))
    return places


def _numbers(operand: Operand, what: str) -> Value:
    value = arguments.tile(operand, what)
    if isinstance(element_type(value.type), PointerType):
        msg = f"{what} takes a tile of numbers, got {describe(value)}; do it to the offsets"
        raise KernelTypeError(msg)
    return value


def _permuted(scope: Scope, value: Value, order: Operand, what: str) -> Value:
    rank = len(shape_of(value.type))
    if not isinstance(order, TupleOperand):
        msg = f"`order` of {what} is a tuple of axes, got {describe(order)}"
        raise KernelTypeError(msg)
    axes = tuple(
        arguments.axis(item, rank, f"an axis in `order` of {what}") for item in order.items
    )
    if sorted(axes) != list(range(rank)):
        msg = f"`order` of {what} names each of the {rank} axes once, got {describe(order)}"
        raise KernelValueError(msg)
    return transposed(scope, value, axes)


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
