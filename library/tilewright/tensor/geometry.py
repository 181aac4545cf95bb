"""What the plan of an operation depends on: the geometry of its arrays, not their contents.

An operation checks its arguments and chooses its launches from geometries alone, so that both are
done once for each and remembered; a call that repeats a geometry only passes its arrays on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import DIVISOR
from tilewright.errors import ArgumentError
from tilewright.runtime.geometry import Geometry, row_major
from tilewright.runtime.launcher import CODES, native
from tilewright.runtime.memory import DeviceArray, allocate, check_is_addressable
from tilewright.tensor.arrays import (
    Array,
    address_of,
    as_array,
    check_has_own_places,
    check_is_writable,
    check_one_place,
    dtype_of,
    strides_of,
)
from tilewright.tensor.strides import Shape

__all__ = [
    "Arrays",
    "Geometry",
    "check_given",
    "check_one_dtype",
    "check_one_side",
    "geometry_of",
    "new_array",
    "operands",
    "result_geometry",
    "result_of",
]

Arrays = list[Array | None]
"""The operands of a call in the order that its plan numbers them; None is absent."""


def geometry_of(array: Array) -> Geometry:
    """Return the geometry of an array, host or device."""
    if isinstance(array, DeviceArray):
        return array.geometry
    is_aligned = address_of(array) % DIVISOR == 0
    return Geometry(array.shape, strides_of(array), CODES[dtype_of(array)], is_aligned, None)


def _as_operand(value: object, name: str) -> tuple[Array, Geometry]:
    array = as_array(value, name=name)
    return array, geometry_of(array)


operands: Callable[..., tuple[Arrays, tuple[Any, ...]]] = partial(
    native.operands, DeviceArray, _as_operand
)
"""Return the arrays given by keyword, and a tuple of their geometries; None stays None.

Raises ArgumentError, which has the keyword, for what is no array. Launches and their plans are
found by these two alone: a call that repeats its geometries runs little Python.
"""


def check_given(**arrays: Geometry | None) -> None:
    """Raise ArgumentError for an operand that is None, as it stands for one that is left out."""
    for name, array in arrays.items():
        if array is None:
            as_array(None, name=name)


def check_one_dtype(arrays: dict[str, Geometry]) -> None:
    """Raise ArgumentError unless all arrays have one dtype and lie on one side."""
    if len({array.code for array in arrays.values()}) > 1:
        listed = ", ".join(f"{name}: {array.dtype}" for name, array in arrays.items())
        msg = f"arrays must have one dtype, got {listed}"
        raise ArgumentError(msg)
    check_one_side(arrays)


def check_one_side(arrays: dict[str, Geometry]) -> None:
    """Raise ArgumentError unless all arrays lie on the host, or all on one device."""
    check_one_place({name: array.device for name, array in arrays.items()})


def result_geometry(
    out: Geometry | None, shape: Shape, dtype: DType, like: Geometry, *, name: str = "out"
) -> Geometry:
    """Return the geometry of a result: that of `out` after checking it, or of a new array.

    Raises ArgumentError, which calls it `name`, when the shape, dtype or side of `out` is another,
    or when several of its elements lie at one address.
    """
    if out is None:
        check_is_addressable(shape, dtype)
        return Geometry(shape, row_major(shape), CODES[dtype], is_aligned=True, device=like.device)
    if out.shape != shape:
        msg = f"{name} has shape {out.shape}, the result has {shape}"
        raise ArgumentError(msg)
    if out.dtype != dtype:
        msg = f"{name} has dtype {out.dtype}, the result has {dtype}"
        raise ArgumentError(msg)
    check_one_side({name: out, "input": like})
    check_has_own_places(out.shape, out.strides, name)
    return out


def new_array(geometry: Geometry, arrays: Arrays) -> Array:
    """Return a new array of a row-major geometry, uninitialised, for a launch that has `arrays`."""
    if geometry.device is None:
        return np.empty(geometry.shape, dtype=to_numpy(geometry.dtype))
    return allocate(geometry, arrays)


def result_of(arrays: Arrays, place: int, geometry: Geometry) -> Array:
    """Return the operand in a place, which is a new array of that geometry unless it was given.

    Raises ArgumentError for a given one that is read-only; of device arrays launches check it.
    """
    result = arrays[place]
    if result is None:
        result = arrays[place] = new_array(geometry, arrays)
    elif isinstance(result, np.ndarray):
        check_is_writable(result, "out")
    return result
