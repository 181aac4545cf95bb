"""Elements by arrays of indices: read and added to, along any axis.

An index counts from 0 to the extent less 1: negative ones do not count from the end. One that names
no element is an IndexRangeError. To know of it a call waits for the device; with `check=False` it
does not wait, reads 0 there and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import prod

import numpy as np

from tilewright.abi.dtypes import int32, int64
from tilewright.errors import ArgumentError, IndexRangeError
from tilewright.kernels import index as kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.geometry import row_major
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    as_array,
    as_flag,
    dtype_of,
    new_array,
    on_host,
)
from tilewright.tensor.axes import apart, as_bits, one_axis
from tilewright.tensor.configurations import GATHER, TAKE
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_given,
    check_one_side,
    geometry_of,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.launches import PlannedLaunch, Pointer, pieces, planned, tile_options
from tilewright.tensor.movement import BITS, contiguous, copy_elements, is_row_major
from tilewright.tensor.strides import Shape, Strides, collapsed


def gather(
    x: object, index: object, *, axis: int = -1, check: bool = True, out: object | None = None
) -> Array:
    """Return `x[i, index[i, j, k], k]` at `[i, j, k]`, here for axis 1, as take_along_axis does.

    `index` is i32 or i64 and has the extents of `x` along all other axes. Bits are copied, of any
    dtype. Raises IndexRangeError for an index that names no element, unless `check` is False.
    """
    arrays, geometries = operands(x=x, index=index, out=out)
    array, places = arrays[:2]
    place = one_axis(axis, 0 if array is None else len(array.shape))
    check = as_flag(check, name="check")
    plan = _plan_gathered(place, *geometries)
    result = result_of(arrays, 2, plan.result)
    assert array is not None, "else there was no plan"
    assert places is not None, "as of x"
    target = result if out is None else apart(result, array, places)
    if target is not result:
        plan = _plan_gathered(place, *map(geometry_of, (array, places, target)))
    _run(plan, array, places, target, check=check)
    if target is not result:
        copy_elements(target, result)
    return result


def take(
    x: object, index: object, *, axis: int = 0, check: bool = True, out: object | None = None
) -> Array:
    """Return the slices of `x` along `axis` that `index`, i32 or i64 of any shape, names.

    The axes of `index` take the place of `axis`: of a table `[rows, columns]` and indices `[...]`
    it gives `[..., columns]`. Raises as `gather` does.
    """
    arrays, geometries = operands(x=x, index=index, out=out)
    array, places = arrays[:2]
    place = one_axis(axis, 0 if array is None else len(array.shape))
    check = as_flag(check, name="check")
    plan = _plan_taken(place, *geometries)
    result = result_of(arrays, 2, plan.result)
    assert array is not None, "else there was no plan"
    assert places is not None, "as of x"
    target = result
    if out is not None or not plan.is_dense:
        places = contiguous(places)
        target = apart(result, array, places)
        if not is_row_major(target):
            target = new_array(result.shape, dtype_of(result), result)
        plan = _plan_taken(place, *map(geometry_of, (array, places, target)))
    _run(plan, array, places, target, check=check)
    if target is not result:
        copy_elements(target, result)
    return result


@dataclass(frozen=True, slots=True)
class _Plan:
    """The launches over x, index, result and the flag; none where only dense operands are taken.

    `extent` is that of the axis which indices name.
    """

    result: Geometry
    extent: int
    launches: tuple[PlannedLaunch, ...]
    is_dense: bool = True


def _run(plan: _Plan, array: Array, places: Array, target: Array, *, check: bool) -> None:
    if not plan.launches:
        return
    bits = BITS[dtype_of(array).size_bytes]
    flag = outside_flag(array, check=check)
    arrays: Arrays = [as_bits(array, bits), places, as_bits(target, bits), flag]
    for launch in plan.launches:
        launch.run(arrays, ())
    raise_if_outside(flag, places, plan.extent, check=check)


def indices_of(value: object) -> Array:
    """Return an array of indices; raises ArgumentError unless it is of i32 or i64."""
    array = as_array(value, name="index")
    _check_dtype(array)
    return array


def indexed(x: object, index: object, axis: int) -> tuple[Array, Array, int]:
    """Return arrays that agree along all axes but one, and that axis."""
    array, places = as_array(x, name="x"), indices_of(index)
    place = one_axis(axis, len(array.shape))
    _check_indexed(geometry_of(array), geometry_of(places), place)
    return array, places, place


def _check_indices(x: Geometry, index: Geometry) -> None:
    """Raise ArgumentError unless there are an array and indices on one side."""
    check_given(x=x, index=index)
    _check_dtype(index)
    check_one_side({"x": x, "index": index})


def _check_dtype(index: Array | Geometry) -> None:
    if dtype_of(index) not in (int32, int64):
        msg = f"index has dtype {dtype_of(index)}; indices are i32 or i64"
        raise ArgumentError(msg)


def _check_indexed(array: Geometry, places: Geometry, place: int) -> None:
    """Raise ArgumentError unless arrays agree along all axes but one."""
    _check_indices(array, places)
    expected = (*array.shape[:place], *places.shape[place : place + 1], *array.shape[place + 1 :])
    if not array.shape or places.shape != expected:
        msg = (
            f"x of shape {array.shape} and index of shape {places.shape} must have the same axes, "
            f"of the same extents but for axis {place}"
        )
        raise ArgumentError(msg)


def outside_flag(like: Array, *, check: bool) -> Array:
    """Return where kernels report indices that name no element."""
    return new_array((1,), int32, like, zeroed=check)


def raise_if_outside(flag: Array, places: Array, extent: int, *, check: bool) -> None:
    """Raise IndexRangeError for the first index outside, if a kernel reported one."""
    if not check or not on_host(flag)[0]:
        return
    found = on_host(places)
    place = tuple(int(i) for i in np.argwhere((found < 0) | (found >= extent))[0])
    msg = f"index {found[place]} at {place} is outside of an axis of {extent} elements"
    raise IndexRangeError(msg)


@planned
def _plan_gathered(axis: int, x: Geometry, index: Geometry, out: Geometry | None) -> _Plan:
    _check_indexed(x, index, axis)
    result = result_geometry(out, index.shape, x.dtype, x)
    launches = tuple(_gather(axis, x, index.shape, index.strides, result.strides))
    return _Plan(result, x.shape[axis], launches)


def _gather(
    axis: int, x: Geometry, shape: Shape, index: Strides, out: Strides
) -> Iterator[PlannedLaunch]:
    """Plan a gather of that shape, by the strides of index and result."""
    extent, along = x.shape[axis], x.strides[axis]
    walked = tuple(0 if place == axis else s for place, s in enumerate(x.strides))
    flag = Pointer(3, 0, (1,), (1,))
    for piece in pieces(shape, (walked, index, out), rank=4):
        sizes = piece.space.sizes
        rows = sizes[0] * sizes[1] * sizes[2]
        grid = (-(-sizes[3] // GATHER.block_n), min(-(-rows // GATHER.block_m), GRID_HEIGHT), 1)
        pointers = (*piece.pointers(0, 1, 2), flag)
        integers = (*sizes, extent, along, *chain.from_iterable(piece.space.strides))
        yield PlannedLaunch(kernels.gather, grid, pointers, integers, tile_options(GATHER))


@planned
def _plan_taken(axis: int, x: Geometry, index: Geometry, out: Geometry | None) -> _Plan:
    _check_indices(x, index)
    if not x.shape:
        msg = "x has no axes; an axis to take from is needed"
        raise ArgumentError(msg)
    before, after, extent = x.shape[:axis], x.shape[axis + 1 :], x.shape[axis]
    result = result_geometry(out, (*before, *index.shape, *after), x.dtype, x)
    if not prod(result.shape):
        return _Plan(result, extent, ())
    if not (is_row_major(index) and is_row_major(result)):
        return _Plan(result, extent, (), is_dense=False)
    rows = _take_rows(axis, x, prod(index.shape))
    if rows is not None:
        return _Plan(result, extent, (rows,))
    shape = (*before, prod(index.shape), *after)
    shown = tuple(int(place == axis) for place in range(len(shape)))
    return _Plan(result, extent, tuple(_gather(axis, x, shape, shown, row_major(shape))))


def _take_rows(axis: int, x: Geometry, count: int) -> PlannedLaunch | None:
    """Plan a copy of whole rows, unless the slices are none."""
    outer = _one_axis(x.shape[:axis], x.strides[:axis])
    inner = _one_axis(x.shape[axis + 1 :], x.strides[axis + 1 :])
    if outer is None or inner is None or inner[1] != 1 or outer[0] > GRID_HEIGHT:
        return None
    columns = inner[0]
    blocks = -(-count // TAKE.block_m) * -(-columns // TAKE.block_n)
    pointers = (
        Pointer(0, 0, x.shape, x.strides),
        Pointer(1, 0, (count,), (1,)),
        Pointer(2, 0, (outer[0], count, columns), (count * columns, columns, 1)),
        Pointer(3, 0, (1,), (1,)),
    )
    return PlannedLaunch(
        kernels.take,
        (blocks, outer[0], 1),
        pointers,
        (count, columns, x.shape[axis], outer[1], x.strides[axis], 1, count * columns, columns),
        tile_options(TAKE),
    )


def _one_axis(shape: Shape, strides: Strides) -> tuple[int, int] | None:
    """Return extent and stride of axes that collapse to one."""
    space = collapsed(shape, (strides,), rank=1, keep_last=False)
    return None if space is None else (space.sizes[0], space.strides[0][0])
