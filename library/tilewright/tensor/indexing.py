"""Elements by arrays of indices: read and added to, along any axis.

An index counts from 0 to the extent less 1: negative ones do not count from the end. One that names
no element is an IndexRangeError. To know of it a call waits for the device; with `check=False` it
does not wait, reads 0 there and adds nothing.
"""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import Any

import numpy as np

from tilewright.abi.dtypes import int32, int64
from tilewright.errors import ArgumentError, IndexRangeError
from tilewright.kernels import index as kernels
from tilewright.runtime.geometry import row_major
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    as_array,
    as_flag,
    check_same_side,
    dtype_of,
    new_array,
    output,
    strides_of,
)
from tilewright.tensor.axes import apart, as_bits, one_axis, viewed
from tilewright.tensor.configurations import GATHER, TAKE
from tilewright.tensor.geometry import Arrays, Geometry, geometry_of
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
    array, places, place = indexed(x, index, axis)
    check = as_flag(check, name="check")
    result = output(out, places.shape, array)
    if not prod(places.shape):
        return result
    target = apart(result, array, places)
    _gather(array, places, target, place, check=check)
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
    array, places = as_array(x, name="x"), indices_of(index)
    check_same_side({"x": array, "index": places})
    check = as_flag(check, name="check")
    if not array.shape:
        msg = "x has no axes; an axis to take from is needed"
        raise ArgumentError(msg)
    place = one_axis(axis, len(array.shape))
    before, after = array.shape[:place], array.shape[place + 1 :]
    result = output(out, (*before, *places.shape, *after), array)
    if not prod(result.shape):
        return result
    count = prod(places.shape)
    shape = (*before, count, *after)
    target = apart(result, array, places)
    if not is_row_major(target):
        target = new_array(result.shape, dtype_of(result), result)
    dense = viewed(target, shape, row_major(shape))
    flat = viewed(contiguous(places), (count,), (1,))
    if not _take_rows(array, flat, dense, place, check=check):
        shown = viewed(flat, shape, tuple(int(axis == place) for axis in range(len(shape))))
        _gather(array, shown, dense, place, check=check)
    if target is not result:
        copy_elements(target, result)
    return result


def indices_of(value: object) -> Array:
    """Return an array of indices; raises ArgumentError unless it is of i32 or i64."""
    array = as_array(value, name="index")
    if dtype_of(array) not in (int32, int64):
        msg = f"index has dtype {dtype_of(array)}; indices are i32 or i64"
        raise ArgumentError(msg)
    return array


def indexed(x: object, index: object, axis: int) -> tuple[Array, Array, int]:
    """Return arrays that agree along all axes but one, and that axis."""
    array, places = as_array(x, name="x"), indices_of(index)
    check_same_side({"x": array, "index": places})
    place = one_axis(axis, len(array.shape))
    expected = (*array.shape[:place], *places.shape[place : place + 1], *array.shape[place + 1 :])
    if not array.shape or places.shape != expected:
        msg = (
            f"x of shape {array.shape} and index of shape {places.shape} must have the same axes, "
            f"of the same extents but for axis {place}"
        )
        raise ArgumentError(msg)
    return array, places, place


def outside_flag(like: Array, *, check: bool) -> Array:
    """Return where kernels report indices that name no element."""
    return new_array((1,), int32, like, zeroed=check)


def raise_if_outside(flag: Array, places: Array, extent: int, *, check: bool) -> None:
    """Raise IndexRangeError for the first index outside, if a kernel reported one."""
    if not check or not _on_host(flag)[0]:
        return
    found = _on_host(places)
    place = tuple(int(i) for i in np.argwhere((found < 0) | (found >= extent))[0])
    msg = f"index {found[place]} at {place} is outside of an axis of {extent} elements"
    raise IndexRangeError(msg)


def _on_host(array: Array) -> np.ndarray[Any, np.dtype[Any]]:
    return array.numpy() if isinstance(array, DeviceArray) else array


def _gather(array: Array, places: Array, result: Array, axis: int, *, check: bool) -> None:
    bits = BITS[dtype_of(array).size_bytes]
    source, target = as_bits(array, bits), as_bits(result, bits)
    flag = outside_flag(array, check=check)
    arrays: Arrays = [source, places, target, flag]
    for launch in _plan_gather(axis, geometry_of(source), geometry_of(places), geometry_of(target)):
        launch.run(arrays, ())
    raise_if_outside(flag, places, array.shape[axis], check=check)


@planned
def _plan_gather(
    axis: int, source: Geometry, places: Geometry, target: Geometry
) -> tuple[PlannedLaunch, ...]:
    extent, along = source.shape[axis], source.strides[axis]
    walked = tuple(0 if place == axis else s for place, s in enumerate(source.strides))
    flag = Pointer(3, 0, (1,), (1,))
    launches = []
    for piece in pieces(places.shape, (walked, places.strides, target.strides), rank=4):
        sizes = piece.space.sizes
        rows = sizes[0] * sizes[1] * sizes[2]
        grid = (-(-sizes[3] // GATHER.block_n), min(-(-rows // GATHER.block_m), GRID_HEIGHT), 1)
        pointers = (*piece.pointers(0, 1, 2), flag)
        integers = (*sizes, extent, along, *chain.from_iterable(piece.space.strides))
        options = tile_options(GATHER)
        launches.append(PlannedLaunch(kernels.gather, grid, pointers, integers, options))
    return tuple(launches)


def _take_rows(array: Array, flat: Array, dense: Array, axis: int, *, check: bool) -> bool:
    """Copy whole rows, or say that the slices are none."""
    strides = strides_of(array)
    outer = _one_axis(array.shape[:axis], strides[:axis])
    inner = _one_axis(array.shape[axis + 1 :], strides[axis + 1 :])
    if outer is None or inner is None or inner[1] != 1 or outer[0] > GRID_HEIGHT:
        return False
    bits = BITS[dtype_of(array).size_bytes]
    count, columns, extent = flat.shape[0], inner[0], array.shape[axis]
    flag = outside_flag(array, check=check)
    blocks = -(-count // TAKE.block_m) * -(-columns // TAKE.block_n)
    kernels.take[(blocks, outer[0])](
        as_bits(array, bits), flat, as_bits(dense, bits), flag, count, columns, extent,
        outer[1], strides[axis], 1, count * columns, columns,
        BLOCK_M=TAKE.block_m, BLOCK_N=TAKE.block_n, num_warps=TAKE.num_warps,
    )  # fmt: skip
    raise_if_outside(flag, flat, extent, check=check)
    return True


def _one_axis(shape: Shape, strides: Strides) -> tuple[int, int] | None:
    """Return extent and stride of axes that collapse to one."""
    space = collapsed(shape, (strides,), rank=1, keep_last=False)
    return None if space is None else (space.sizes[0], space.strides[0][0])
