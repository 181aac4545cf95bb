"""Axes as callers name them, and arrays as kernels over chosen axes want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import to_numpy
from tilewright.errors import ArgumentError
from tilewright.runtime.launcher import CODES, native
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import (
    Array,
    address_of,
    as_integer,
    dtype_of,
    new_array,
    strides_of,
)
from tilewright.tensor.strides import Shape, Strides

Axes = int | Sequence[int] | None


def one_axis(axis: object, rank: int, *, name: str = "axis") -> int:
    """Return an axis counted from the first; an array without axes has axis 0 (and -1)."""
    number = as_integer(axis, name=name)
    extent = max(rank, 1)
    if not -extent <= number < extent:
        msg = (
            f"{name} is {number}, of an array with {rank} axes; it lies between {-extent} and "
            f"{extent - 1}"
        )
        raise ArgumentError(msg)
    return number % extent


def several_axes(axis: Axes, rank: int) -> tuple[int, ...]:
    """Return axes in rising order: all for None; raises ArgumentError if one comes twice."""
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    axes = tuple(sorted(one_axis(each, rank) for each in given))
    if len(set(axes)) < len(axes):
        msg = f"axis {given} names an axis twice"
        raise ArgumentError(msg)
    return axes if rank else ()


def at_least_one_axis(array: Array) -> Array:
    """Return an array of no axes as one of a single element."""
    return array if array.shape else viewed(array, (1,), (0,))


def viewed(array: Array, shape: Shape, strides: Strides) -> Array:
    """Return a view of another geometry, strides in elements, from the same first element."""
    if isinstance(array, DeviceArray):
        return array.view(shape, strides)
    byte_strides = [stride * array.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(array, shape, byte_strides)


def transposed(array: Array, order: Sequence[int]) -> Array:
    """Return a view whose axis i is axis `order[i]` of the array."""
    if not isinstance(array, DeviceArray):
        return array.transpose(order)
    strides = strides_of(array)
    return viewed(
        array, tuple(array.shape[axis] for axis in order), tuple(strides[axis] for axis in order)
    )


def as_bits(array: Array, dtype: DType) -> Array:
    """Return a view of the same elements as numbers of another type of the same width."""
    if isinstance(array, DeviceArray):
        alias = array.alias(DeviceArray, 0, array.size_bytes, CODES[dtype])
        alias.lay_out(array.shape, array.strides)
        return alias
    return array.view(to_numpy(dtype))


def overlaps(left: Array, right: Array) -> bool:
    """Return whether the memory that two arrays span has a common part."""
    if isinstance(left, DeviceArray) and isinstance(right, DeviceArray):
        ends = (array.address + array.size_bytes for array in (left, right))
        return max(left.address, right.address) < min(ends)
    return np.may_share_memory(cast("Any", left), cast("Any", right))


def is_same_place(left: Array, right: Array) -> bool:
    """Return whether two arrays have every element of one index at one address."""
    return (
        address_of(left) == address_of(right)
        and strides_of(left) == strides_of(right)
        and dtype_of(left).size_bytes == dtype_of(right).size_bytes
    )


def apart(result: Array, *inputs: Array) -> Array:
    """Return the result, or a new array like it if it lies where an input does."""
    if any(overlaps(result, array) for array in inputs):
        return new_array(result.shape, dtype_of(result), result)
    return result


def _must_be_apart_on_host(arrays: list[Array | None], place: int, same: int) -> bool:
    result = arrays[place]
    assert result is not None  # only a given result is asked for
    for number, array in enumerate(arrays):
        if number == place or array is None or not overlaps(result, array):
            continue
        may_be_same = same >> number & 1 and array.shape == result.shape
        if not (may_be_same and is_same_place(result, array)):
            return True
    return False


must_be_apart: Callable[[list[Array | None], int, int], bool] = partial(
    native.must_be_apart, _must_be_apart_on_host
)
"""Return whether a given result, the operand in that place, may not be written where it lies.

That is where it overlaps another operand, of which an element could be written before it is read.
An operand whose bit is set in the last argument may be the result itself, element by element.
"""
