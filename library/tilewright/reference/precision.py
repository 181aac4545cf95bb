"""In which precision a reference function computes, and how its operands and result are rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.abi.dtypes import SATURATED, DType, float32, float64
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.errors import ArgumentError

# Functions here are generic over the element type.
Array = npt.NDArray[Any]


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return f64 for f64, f32 for narrower floats, and an integer's own dtype."""
    element = from_numpy(dtype)
    if not element.is_float:
        return dtype
    return np.dtype(np.float64 if element == float64 else np.float32)


def widened(x: Array, *, operation: str) -> Array:
    """Return floats in their working dtype; raises ArgumentError for integers."""
    if not from_numpy(x.dtype).is_float:
        msg = (
            f"{operation} takes floating-point numbers, got an array of {x.dtype}; convert it first"
        )
        raise ArgumentError(msg)
    return x.astype(working_dtype(x.dtype))


def rounded(x: Array, dtype: DType) -> Array:
    """Return `x` cast to `dtype`; to an 8-bit float it saturates, as `tile.to` in a kernel does."""
    if dtype in SATURATED:
        x = np.clip(x, -SATURATED[dtype], SATURATED[dtype])
    return x.astype(to_numpy(dtype))


def factor(x: Array, *, input_precision: str, operation: str) -> Array:
    """Return an operand of a matrix product as it is multiplied: in its working dtype.

    With `input_precision` "tf32", f32 is rounded to its 11 leading bits, ties away from zero. With
    "ieee" it stays; so it does here with "tf32x3", whose error is that of f32 arithmetic.
    """
    if input_precision not in ("ieee", "tf32", "tf32x3"):
        msg = (
            f"input_precision of {operation} is 'ieee', 'tf32' or 'tf32x3', got {input_precision!r}"
        )
        raise ArgumentError(msg)
    wide = widened(x, operation=operation)
    if input_precision != "tf32" or from_numpy(x.dtype) != float32:
        return wide
    bits = (wide.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(wide), bits.view(np.float32), wide)
