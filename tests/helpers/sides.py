"""Run one test on both sides: NumPy arrays in the interpreter, and device arrays on a GPU.

Every side takes NumPy inputs, keeps their strides, and gives the result back as NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu

HostArray = np.ndarray[Any, np.dtype[Any]]
Operation = Callable[..., Any]

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
# Unit roundoff of each type: results are rounded once from f32.
ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}

SIDES = [
    pytest.param("host", id="host"),
    pytest.param("gpu", id="gpu", marks=[pytest.mark.gpu, requires_gpu()]),
]


def run(
    side: str, operation: Operation, *inputs: HostArray, out: HostArray, **options: Any
) -> HostArray:
    """Run `operation(*inputs, out=...)` with `out` poisoned; return a copy of what it wrote."""
    if side == "host":
        operation(*inputs, out=out, **options)
        return out
    on_device = [to_device(array) for array in inputs]
    result = to_device(out)
    operation(*on_device, out=result, **options)
    return np.asarray(result.numpy())


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    """Return an array of NaN."""
    return np.full(shape, np.nan, dtype)


def random(
    shape: tuple[int, ...], dtype: np.dtype[Any], *, seed: int = 0, scale: float = 1.0
) -> HostArray:
    """Return normal random values rounded to `dtype`."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def to_device(array: HostArray) -> Any:
    """Copy the memory that backs `array` to the device and view it with the same strides."""
    from tilewright.runtime.memory import from_numpy

    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if base is array or not array.size:
        return from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    start = (array.ctypes.data - base.ctypes.data) // array.itemsize
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return from_numpy(base.reshape(-1)).view(array.shape, strides, offset=start)
