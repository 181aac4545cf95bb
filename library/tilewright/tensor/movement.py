"""Copies: of strided views to row-major arrays, with axes in any order, at the speed of memory.

Elements move as bits, so one kernel serves all types of a width. Where source and target are
contiguous along the same axis, rows are copied; where along different ones, tiles cross through
shared memory; what is contiguous nowhere is copied element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Literal

from tilewright.abi.dtypes import DType, uint8, uint16, uint32, uint64
from tilewright.errors import ArgumentError
from tilewright.kernels import movement as kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.geometry import row_major
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    as_array,
    as_integer,
    dtype_of,
    new_array,
    strides_of,
)
from tilewright.tensor.axes import as_bits, is_same_place, one_axis, overlaps, transposed
from tilewright.tensor.configurations import COPY_TALL, COPY_WIDE, TRANSPOSE
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_given,
    geometry_of,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.launches import (
    PlannedLaunch,
    Pointer,
    pieces,
    planned,
    tile_options,
)
from tilewright.tensor.strides import Shape, Strides

BITS: dict[int, DType] = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
"""What elements of so many bytes are moved as."""

# Tiles are crossed from this extent on; below, most of a tile would lie outside.
_WORTH_CROSSING = 16


def copy(x: object, *, out: object | None = None) -> Array:
    """Return a row-major copy of `x`, or write it to `out`, whatever the strides of either."""
    return _permuted(None, x, out)


def contiguous(x: object, *, out: object | None = None) -> Array:
    """Return `x` itself if it is row-major and no `out` is given, else a copy that is."""
    array = as_array(x, name="x")
    if out is None and is_row_major(array):
        return array
    return copy(array, out=out)


def permute(x: object, axes: Sequence[int], *, out: object | None = None) -> Array:
    """Return a row-major copy of `x` whose axis i is axis `axes[i]` of `x`."""
    if not isinstance(axes, Iterable):
        msg = f"axes is of {type(axes).__name__}; a sequence of the axes of x is needed"
        raise ArgumentError(msg)
    return _permuted(tuple(as_integer(axis, name="axes") for axis in axes), x, out)


def transpose(x: object, axes: Sequence[int] | None = None, *, out: object | None = None) -> Array:
    """Return a row-major copy with the axes in the order `axes`, by default reversed."""
    return _permuted("reversed", x, out) if axes is None else permute(x, axes, out=out)


def is_row_major(array: Array | Geometry) -> bool:
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
    if overlaps(source, target):
        apart_from_target = new_array(source.shape, dtype_of(source), source)
        _move(source, apart_from_target)
        source = apart_from_target
    _move(source, target)


def _move(source: Array, target: Array) -> None:
    _launch(_plan(geometry_of(source), geometry_of(target)), source, target)


def _launch(launches: tuple[PlannedLaunch, ...], source: Array, target: Array) -> None:
    bits = BITS[dtype_of(source).size_bytes]
    arrays: Arrays = [as_bits(source, bits), as_bits(target, bits)]
    for launch in launches:
        launch.run(arrays, ())


def _permuted(
    axes: tuple[int, ...] | Literal["reversed"] | None, x: object, out: object | None
) -> Array:
    """Return a copy with the axes in that order; None leaves it."""
    arrays, geometries = operands(x=x, out=out)
    copied = _plan_copied(axes, *geometries)
    result = result_of(arrays, 1, copied.result)
    array = arrays[0]
    assert array is not None  # else there was no plan
    if out is None:
        _launch(copied.launches, array, result)
    else:
        order = copied.order
        copy_elements(array if order is None else transposed(array, order), result)
    return result


@dataclass(frozen=True, slots=True)
class _Copied:
    """A checked copy with the axes in an order: what is launched unless the arrays overlap."""

    order: tuple[int, ...] | None
    result: Geometry
    launches: tuple[PlannedLaunch, ...]


@planned
def _plan_copied(
    axes: tuple[int, ...] | Literal["reversed"] | None, x: Geometry, out: Geometry | None
) -> _Copied:
    check_given(x=x)
    rank = len(x.shape)
    order = tuple(range(rank))
    if axes == "reversed":
        order = order[::-1]
    elif axes is not None:
        order = tuple(one_axis(axis, rank, name="axes") for axis in axes)
        if sorted(order) != list(range(rank)):
            msg = f"axes are {order}; an order of the {rank} axes of x is needed"
            raise ArgumentError(msg)
    source = x._replace(
        shape=tuple(x.shape[axis] for axis in order),
        strides=tuple(x.strides[axis] for axis in order),
    )
    result = result_geometry(out, source.shape, x.dtype, x)
    # Into an array that is given what is copied depends on where it lies.
    launches = _plan(source, result) if out is None else ()
    return _Copied(None if axes is None else order, result, launches)


@planned
def _plan(source: Geometry, target: Geometry) -> tuple[PlannedLaunch, ...]:
    """Plan a copy, of bits, between arrays of one shape."""
    walks = [
        (extent, from_stride, to_stride)
        for extent, from_stride, to_stride in zip(
            source.shape, source.strides, target.strides, strict=True
        )
        if extent != 1
    ]
    # The order of elements is free: along the target's memory, its longest stride first.
    walks.sort(key=lambda walk: -abs(walk[2]))
    crossed = _crossed_axis(walks)
    if crossed is None:
        return tuple(_copy_rows(walks))
    walks.append(walks.pop(crossed))
    return tuple(_transpose(walks, source.dtype.size_bytes))


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


def _copy_rows(walks: list[tuple[int, int, int]]) -> Iterator[PlannedLaunch]:
    shape, from_strides, to_strides = _unzipped(walks)
    for piece in pieces(shape, (from_strides, to_strides), rank=4):
        sizes = piece.space.sizes
        configuration = COPY_WIDE if sizes[3] > 4 * COPY_TALL.block_n else COPY_TALL
        rows = sizes[0] * sizes[1] * sizes[2]
        grid = (
            -(-sizes[3] // configuration.block_n),
            min(-(-rows // configuration.block_m), GRID_HEIGHT),
            1,
        )
        integers = (*sizes, *chain.from_iterable(piece.space.strides))
        options = tile_options(configuration)
        yield PlannedLaunch(kernels.copy, grid, piece.pointers(0, 1), integers, options)


def _transpose(walks: list[tuple[int, int, int]], size_bytes: int) -> Iterator[PlannedLaunch]:
    """Cross the last two axes: the target's contiguous one and, last, the source's."""
    tiles = TRANSPOSE[size_bytes]
    shape, from_strides, to_strides = _unzipped(walks)
    rows, columns = shape[-2:]
    if not prod(shape):
        return
    across = -(-rows // tiles.block_m) * -(-columns // tiles.block_n)
    for piece in pieces(shape[:-2], (from_strides[:-2], to_strides[:-2]), rank=2):
        space = piece.space
        x, out = (
            Pointer(number, offset, (*space.sizes, rows, columns), (*outer, *strides[-2:]))
            for number, offset, outer, strides in zip(
                (0, 1), piece.offsets, space.strides, (from_strides, to_strides), strict=True
            )
        )
        yield PlannedLaunch(
            kernels.transpose,
            (across, min(prod(space.sizes), GRID_HEIGHT), 1),
            (x, out),
            (
                *space.sizes,
                rows,
                columns,
                *space.strides[0],
                from_strides[-2],
                *space.strides[1],
                to_strides[-1],
            ),
            tile_options(tiles),
        )


def _unzipped(walks: list[tuple[int, int, int]]) -> tuple[Shape, Strides, Strides]:
    """Return the shape and the strides of both operands."""
    return (
        tuple(walk[0] for walk in walks),
        tuple(walk[1] for walk in walks),
        tuple(walk[2] for walk in walks),
    )
