"""In which precision a reference function computes, given the dtype of its argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.abi.dtypes import float64
from tilewright.abi.numpy_types import from_numpy
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
