"""What a tensor operation needs of its arrays, host or device: geometry, pieces, outputs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from numbers import Real
from operator import index
from typing import Any, cast

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.abi.signature import DIVISOR, INT31_MAX
from tilewright.errors import ArgumentError
from tilewright.language.kernel import Kernel
from tilewright.runtime.geometry import Geometry, row_major
from tilewright.runtime.launcher import CODES, native
from tilewright.runtime.memory import (
    DeviceArray,
    allocate,
    as_device_array,
    check_is_addressable,
)
from tilewright.tensor.strides import Shape, Strides

Array = np.ndarray[Any, np.dtype[Any]] | DeviceArray

GRID_WIDTH = 2**31 - 1  # the widest grid that CUDA allows along axis 0
GRID_HEIGHT = 65535  # the highest one along axes 1 and 2


def as_array(value: object, *, name: str) -> Array:
    """Return a NumPy array or our view of a device array; raises ArgumentError for the rest."""
    if isinstance(value, DeviceArray):
        return value
    if isinstance(value, np.ndarray):
        _check_is_walkable(value, name)
        return value
    # In this order: torch computes the latter when it is asked whether it has it.
    if not any(hasattr(value, way) for way in ("__dlpack__", "__cuda_array_interface__")):
        msg = (
            f"{name} is of {type(value).__name__}; an array is needed: NumPy's, as numpy.asarray "
            "makes one, or a device array: Tilewright's, or one with __cuda_array_interface__ or "
            "DLPack"
        )
        raise ArgumentError(msg)
    return as_device_array(value, name=name)


def _check_is_walkable(array: np.ndarray[Any, np.dtype[Any]], name: str) -> None:
    """Raise ArgumentError unless an address, elements and strides in elements say it all."""
    try:
        from_numpy(array.dtype)
    except ArgumentError as error:
        msg = f"{name} cannot be taken: {error}; convert it with {name}.astype(...)"
        raise ArgumentError(msg) from None
    if isinstance(array, np.ma.MaskedArray):
        msg = f"{name} is a masked array, whose mask would not count; pass {name}.filled(...)"
        raise ArgumentError(msg)
    if any(
        stride % array.itemsize
        for extent, stride in zip(array.shape, array.strides, strict=True)
        if extent > 1
    ):
        msg = (
            f"{name} has strides of {array.strides} bytes, which are not all multiples of its "
            f"elements' {array.itemsize}; pass a copy"
        )
        raise ArgumentError(msg)


def as_number(value: object, *, name: str) -> float:
    """Return a number, or an array of no axes, as a float; raises ArgumentError for the rest."""
    if type(value) is float:
        return value
    number: Any = value
    # Scalars of NumPy and torch, and arrays of no axes.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        number = value.item()
    if isinstance(number, Real):
        try:
            return float(number)
        except OverflowError:
            msg = f"{name} is larger than any float"
            raise ArgumentError(msg) from None
    msg = f"{name} is of {type(value).__name__}; a number is needed"
    raise ArgumentError(msg)


def as_integer(value: object, *, name: str) -> int:
    """Return an integer of Python, NumPy or another library; raises ArgumentError for the rest."""
    try:
        return index(cast("Any", value))
    except TypeError:
        msg = f"{name} is of {type(value).__name__}; an int is needed"
        raise ArgumentError(msg) from None


def as_flag(value: object, *, name: str) -> bool:
    """Return a truth value of Python or NumPy; raises ArgumentError for the rest.

    Words and arrays are no truth values: Python takes "False" for true.
    """
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    msg = f"{name} is of {type(value).__name__}; True or False is needed"
    raise ArgumentError(msg)


def dtype_of(array: Array | Geometry) -> DType:
    """Return the element type."""
    return from_numpy(array.dtype) if isinstance(array, np.ndarray) else array.dtype


def address_of(array: Array) -> int:
    """Return the address of the first element."""
    return array.address if isinstance(array, DeviceArray) else int(array.ctypes.data)


def on_host(array: Array) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array of the host, or a copy of one of a device, for which this waits."""
    return array.numpy() if isinstance(array, DeviceArray) else array


def strides_of(array: Array | Geometry) -> Strides:
    """Return the strides in elements."""
    if isinstance(array, np.ndarray):
        return tuple(stride // array.itemsize for stride in array.strides)
    return array.strides


def stand_in(array: Array, dtype: DType) -> Array:
    """Return an array of no elements of `dtype` where `array` begins: what no launch touches."""
    if isinstance(array, DeviceArray):
        return array.reinterpreted(dtype)
    return np.empty(0, to_numpy(dtype))


def check_same_dtype(arrays: dict[str, Array]) -> None:
    """Raise ArgumentError unless all arrays have one dtype and lie on one side."""
    dtypes = {name: dtype_of(array) for name, array in arrays.items()}
    if len(set(dtypes.values())) > 1:
        msg = f"arrays must have one dtype, got {', '.join(f'{n}: {d}' for n, d in dtypes.items())}"
        raise ArgumentError(msg)
    check_same_side(arrays)


def check_computed_in_f32(array: Array | Geometry) -> None:
    """Raise ArgumentError unless f32, in which the kernels compute, holds the dtype."""
    dtype = dtype_of(array)
    if dtype not in (float32, float16, bfloat16):
        msg = f"x has dtype {dtype}; this operation computes in f32 and takes f32, f16 and bf16"
        raise ArgumentError(msg)


def check_is_float(array: Array | Geometry) -> None:
    """Raise ArgumentError unless the elements are floats with arithmetic, of 16 to 64 bits."""
    dtype = dtype_of(array)
    if dtype not in (float64, float32, float16, bfloat16):
        msg = f"x has dtype {dtype}; this operation takes f64, f32, f16 and bf16"
        raise ArgumentError(msg)


def check_has_arithmetic(array: Array | Geometry) -> None:
    """Raise ArgumentError for elements that kernels do not compute with."""
    dtype = dtype_of(array)
    if not dtype.has_arithmetic:
        msg = (
            f"x has dtype {dtype}; 8-bit floats are only multiplied as matrices: convert them to "
            "f16, which is exact"
        )
        raise ArgumentError(msg)


def check_same_side(arrays: dict[str, Array]) -> None:
    """Raise ArgumentError unless all arrays lie on the host, or all on one device."""
    check_one_place(
        {
            name: array.device if isinstance(array, DeviceArray) else None
            for name, array in arrays.items()
        }
    )


def check_one_place(devices: dict[str, int | None]) -> None:
    """Raise ArgumentError unless all arrays lie on one device, or on the host, which is None."""
    if len(set(devices.values())) > 1:
        places = ", ".join(
            f"{name}: {'host' if device is None else f'device {device}'}"
            for name, device in devices.items()
        )
        msg = f"arrays must all be on the host or all on one device, got {places}"
        raise ArgumentError(msg)


def output(
    out: object | None,
    shape: Shape,
    like: Array,
    dtype: DType | None = None,
    *,
    name: str = "out",
    zeroed: bool = False,
) -> Array:
    """Return `out` after checking it, or a new array on the side of `like`, if asked of zeros.

    Its dtype is that of `like`, or `dtype`. Raises ArgumentError, which calls it `name`, when the
    shape, dtype or side of `out` is another, or it cannot be written.
    """
    expected = dtype or dtype_of(like)
    if out is not None:
        array = as_array(out, name=name)
        if array.shape != shape:
            msg = f"{name} has shape {array.shape}, the result has {shape}"
            raise ArgumentError(msg)
        if dtype is None:
            check_same_dtype({name: array, "input": like})
        elif dtype_of(array) != dtype:
            msg = f"{name} has dtype {dtype_of(array)}, the result has {dtype}"
            raise ArgumentError(msg)
        check_same_side({name: array, "input": like})
        check_is_writable(array, name)
        check_has_own_places(array.shape, strides_of(array), name)
        return array
    return new_array(shape, expected, like, zeroed=zeroed)


def new_array(shape: Shape, dtype: DType, like: Array, *, zeroed: bool = False) -> Array:
    """Return a new row-major array on the side of `like`, for launches that have it."""
    check_is_addressable(shape, dtype)
    if not isinstance(like, DeviceArray):
        return np.zeros(shape, to_numpy(dtype)) if zeroed else np.empty(shape, to_numpy(dtype))
    strides, device = row_major(shape), like.device
    geometry = Geometry(shape, strides, CODES[dtype], is_aligned=True, device=device)
    array = allocate(geometry, [like])
    if zeroed:
        native.fill(array, 0)
    return array


def check_is_writable(array: Array, name: str) -> None:
    """Raise ArgumentError for an array whose owner forbids writing."""
    is_read_only = (
        array.is_read_only if isinstance(array, DeviceArray) else not array.flags.writeable
    )
    if is_read_only:
        msg = f"{name} is read-only; pass an array that may be written, such as a copy"
        raise ArgumentError(msg)


def check_has_own_places(shape: Shape, strides: Strides, name: str) -> None:
    """Raise ArgumentError for a broadcast array: elements at one address would be written in turn.

    Which of them came last would differ from run to run.
    """
    walks = zip(shape, strides, strict=True)
    if 0 not in shape and any(extent > 1 and not stride for extent, stride in walks):
        msg = (
            f"{name} of shape {shape} has strides {strides}, so several of its elements lie at one "
            "address; pass an array that is not broadcast"
        )
        raise ArgumentError(msg)


def is_fast(kernel: Kernel, pointers: tuple[Array, ...], integers: tuple[int, ...]) -> bool:
    """Return whether a launch with these pointers and integers takes the fast form.

    For operations that bundle other configurations for it than for the general form.
    """
    return are_aligned(pointers) and fits_fast(kernel, len(pointers), integers)


def are_aligned(arrays: Iterable[Array]) -> bool:
    """Return whether every array begins at an address that the fast form needs."""
    return all(address_of(array) % DIVISOR == 0 for array in arrays)


@lru_cache(maxsize=4096)
def fits_fast(kernel: Kernel, pointers: int, integers: tuple[int, ...]) -> bool:
    """Return whether these arguments, after so many pointers, allow the fast form."""
    names = [p.name for p in kernel.parameters][pointers : pointers + len(integers)]
    return all(
        value == 1
        if name in kernel.rule.unit
        else abs(value) <= INT31_MAX and not (name in kernel.rule.divisible and value % DIVISOR)
        for name, value in zip(names, integers, strict=True)
    )
