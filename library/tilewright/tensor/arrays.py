"""What a tensor operation needs of its arrays, host or device: geometry, broadcasting, pieces, outputs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, cast

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.errors import ArgumentError
from tilewright.runtime.memory import DeviceArray, as_device_array, empty
from tilewright.tensor.strides import (
    IndexSpace,
    Shape,
    Strides,
    broadcast_strides,
    collapse,
    pad,
)

Array = np.ndarray[Any, np.dtype[Any]] | DeviceArray


def as_array(value: object, *, name: str) -> Array:
    """Return a NumPy array or our own view of a device array; raises ArgumentError for anything else."""
    if isinstance(value, np.ndarray | DeviceArray):
        return value
    return as_device_array(value, name=name)


def dtype_of(array: Array) -> DType:
    """Return the element type."""
    return array.dtype if isinstance(array, DeviceArray) else from_numpy(array.dtype)


def strides_of(array: Array) -> Strides:
    """Return the strides in elements."""
    if isinstance(array, DeviceArray):
        return array.strides
    return tuple(stride // array.itemsize for stride in array.strides)


def broadcast_to(array: Array, shape: Shape) -> Array:
    """Return a view of `shape` whose repeated axes have stride 0."""
    if isinstance(array, DeviceArray):
        return array.view(shape, broadcast_strides(array.shape, array.strides, shape))
    return np.broadcast_to(array, shape)


def repeat_last(array: Array, extent: int) -> Array:
    """Return a writable view with one more axis of that extent and stride 0: a row's result, seen from the row."""
    shape = (*array.shape, extent)
    if isinstance(array, DeviceArray):
        return array.view(shape, (*array.strides, 0))
    return np.lib.stride_tricks.as_strided(array, shape, (*array.strides, 0))


def check_same_dtype(arrays: dict[str, Array]) -> None:
    """Raise ArgumentError unless all arrays have one dtype and lie on one side."""
    dtypes = {name: dtype_of(array) for name, array in arrays.items()}
    if len(set(dtypes.values())) > 1:
        msg = f"arrays must have one dtype, got {', '.join(f'{n}: {d}' for n, d in dtypes.items())}"
        raise ArgumentError(msg)
    sides = {name: isinstance(array, DeviceArray) for name, array in arrays.items()}
    if len(set(sides.values())) > 1:
        places = ", ".join(f"{n}: {'device' if d else 'host'}" for n, d in sides.items())
        msg = f"arrays must all be on the host or all on the device, got {places}"
        raise ArgumentError(msg)


def output(out: object | None, shape: Shape, like: Array) -> Array:
    """Return `out` after checking it, or a new array of `shape` on the side and with the dtype of `like`."""
    if out is not None:
        array = as_array(out, name="out")
        if tuple(array.shape) != shape:
            msg = f"out has shape {tuple(array.shape)}, the result has {shape}"
            raise ArgumentError(msg)
        check_same_dtype({"out": array, "input": like})
        return array
    if isinstance(like, DeviceArray):
        return empty(shape, like.dtype, device=like.device)
    return np.empty(shape, dtype=to_numpy(dtype_of(like)))


def pieces(
    arrays: tuple[Array, ...], *, rank: int, keep_last: bool = False
) -> Iterator[tuple[tuple[Array, ...], IndexSpace]]:
    """Cut arrays of one shape into pieces that collapse to `rank` axes; most arrays are one piece.

    Yields each piece's arrays (only their first element's address matters) with its index space.
    """
    shape = tuple(arrays[0].shape)
    space = collapse(IndexSpace(shape, tuple(map(strides_of, arrays))), keep_last=keep_last)
    if prod(space.sizes[:-1] if keep_last else space.sizes) == 0:
        return
    if len(space.sizes) <= rank:
        yield arrays, pad(space, rank)
        return
    for index in range(shape[0]):
        inner = tuple(cast("Array", array[index]) for array in arrays)
        yield from pieces(inner, rank=rank, keep_last=keep_last)
