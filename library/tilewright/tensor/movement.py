"""Copies: of strided views to row-major arrays, with axes in any order, at the speed of memory.

Elements move as bits, so one kernel serves all types of a width. Where source and target are
contiguous along the same axis, rows are copied; where along different ones, tiles cross through
shared memory; what is contiguous nowhere is copied element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import cast

from tilewright.abi.dtypes import DType, uint8, uint16, uint32, uint64
from tilewright.errors import ArgumentError
from tilewright.kernels import movement as kernels
from tilewright.runtime.geometry import row_major
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    Operand,
    as_array,
    dtype_of,
    output,
    pieces,
    strides_of,
)
from tilewright.tensor.axes import (
    as_bits,
    is_same_place,
    new_array,
    one_axis,
    overlaps,
    transposed,
    viewed,
)
from tilewright.tensor.configurations import COPY_TALL, COPY_WIDE, TRANSPOSE
from tilewright.tensor.strides import IndexSpace, Shape, Strides, collapsed

BITS: dict[int, DType] = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
"""What elements of so many bytes are moved as."""

# Tiles are crossed from this extent on; below, most of a tile would lie outside.
_WORTH_CROSSING = 16


def copy(x: object, *, out: object | None = None) -> Array:
    """Return a row-major copy of `x`, or write it to `out`, whatever the strides of either."""
    array = as_array(x, name="x")
    result = output(out, array.shape, array)
    copy_elements(array, result)
    return result


def contiguous(x: object, *, out: object | None = None) -> Array:
    """Return `x` itself if it is row-major and no `out` is given, else a copy that is."""
    array = as_array(x, name="x")
    if out is None and is_row_major(array):
        return array
    return copy(array, out=out)


def permute(x: object, axes: Sequence[int], *, out: object | None = None) -> Array:
    """Return a row-major copy of `x` whose axis i is axis `axes[i]` of `x`."""
    array = as_array(x, name="x")
    rank = len(array.shape)
    if not isinstance(axes, Iterable):
        msg = f"axes is of {type(axes).__name__}; a sequence of the axes of x is needed"
        raise ArgumentError(msg)
    order = tuple(one_axis(axis, rank, name="axes") for axis in axes)
    if sorted(order) != list(range(rank)):
        msg = f"axes are {order}; an order of the {rank} axes of x is needed"
        raise ArgumentError(msg)
    return copy(transposed(array, order), out=out)


def transpose(x: object, axes: Sequence[int] | None = None, *, out: object | None = None) -> Array:
    """Return a row-major copy with the axes in the order `axes`, by default reversed."""
    array = as_array(x, name="x")
    return permute(array, range(len(array.shape))[::-1] if axes is None else axes, out=out)


def is_row_major(array: Array) -> bool:
    """Return whether elements lie one behind the other; axes of extent 1 do not count."""
    dense = row_major(array.shape)
    return prod(array.shape) <= 1 or all(
        extent == 1 or stride == packed
        for extent, stride, packed in zip(array.shape, strides_of(array), dense, strict=True)
    )


def copy_elements(source: Array, target: Array) -> None:
    """Write every element of `source` to its place in `target`, which has its shape and dtype."""
    if is_same_place(source, target):
        return
    bits = BITS[dtype_of(source).size_bytes]
    if overlaps(source, target):
        apart_from_target = new_array(source.shape, dtype_of(source), source)
        copy_elements(source, apart_from_target)
        source = apart_from_target
    arrays = as_bits(source, bits), as_bits(target, bits)
    walks = [
        (extent, from_stride, to_stride)
        for extent, from_stride, to_stride in zip(
            source.shape, strides_of(source), strides_of(target), strict=True
        )
        if extent != 1
    ]
    # The order of elements is free: along the target's memory, its longest stride first.
    walks.sort(key=lambda walk: -abs(walk[2]))
    crossed = _crossed_axis(walks)
    if crossed is None:
        shape = tuple(walk[0] for walk in walks)
        operands = tuple(
            Operand(array, tuple(walk[place] for walk in walks))
            for place, array in enumerate(arrays, start=1)
        )
        _copy_rows(shape, operands)
        return
    walks.append(walks.pop(crossed))
    _transpose(walks, arrays)


def _crossed_axis(walks: list[tuple[int, int, int]]) -> int | None:
    """Return the axis along which the source alone is contiguous, if it is worth a tile."""
    if len(walks) < 2 or walks[-1][1] == 1 or walks[-1][2] != 1:
        return None
    if walks[-1][0] < _WORTH_CROSSING:
        return None
    for axis, (extent, from_stride, _) in enumerate(walks[:-1]):
        if from_stride == 1 and extent >= _WORTH_CROSSING:
            return axis
    return None


def _copy_rows(shape: Shape, operands: tuple[Operand, ...]) -> None:
    for pointers, space in pieces(shape, operands, rank=4):
        configuration = COPY_WIDE if space.sizes[3] > 4 * COPY_TALL.block_n else COPY_TALL
        rows = space.sizes[0] * space.sizes[1] * space.sizes[2]
        grid = (
            -(-space.sizes[3] // configuration.block_n),
            min(-(-rows // configuration.block_m), GRID_HEIGHT),
        )
        kernels.copy[grid](
            *pointers,
            *space.sizes,
            *chain.from_iterable(space.strides),
            BLOCK_M=configuration.block_m,
            BLOCK_N=configuration.block_n,
            num_warps=configuration.num_warps,
        )


def _transpose(walks: list[tuple[int, int, int]], arrays: tuple[Array, Array]) -> None:
    """Cross the last two axes: the target's contiguous one and, last, the source's."""
    tiles = TRANSPOSE[dtype_of(arrays[0]).size_bytes]
    (rows, x_row, _), (columns, _, out_column) = walks[-2:]
    for (x, out), space in _matrices(walks, arrays):
        across = -(-rows // tiles.block_m) * -(-columns // tiles.block_n)
        kernels.transpose[(across, min(prod(space.sizes), GRID_HEIGHT))](
            x, out, *space.sizes, rows, columns,
            *space.strides[0], x_row, *space.strides[1], out_column,
            BLOCK_M=tiles.block_m, BLOCK_N=tiles.block_n, num_warps=tiles.num_warps,
        )  # fmt: skip


def _matrices(
    walks: list[tuple[int, int, int]], arrays: tuple[Array, Array]
) -> Iterator[tuple[tuple[Array, Array], IndexSpace]]:
    """Cut the axes before the last two into batches of two axes."""
    shape = tuple(walk[0] for walk in walks)
    strides: tuple[Strides, Strides] = (
        tuple(walk[1] for walk in walks),
        tuple(walk[2] for walk in walks),
    )
    batch = collapsed(shape[:-2], (strides[0][:-2], strides[1][:-2]), rank=2, keep_last=False)
    if batch is not None:
        if prod(shape):
            yield arrays, batch
        return
    views = [viewed(array, shape, walk) for array, walk in zip(arrays, strides, strict=True)]
    for index in range(shape[0]):
        yield from _matrices(
            walks[1:], (cast("Array", views[0][index]), cast("Array", views[1][index]))
        )
