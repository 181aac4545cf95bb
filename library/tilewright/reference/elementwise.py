"""Elementwise operations. Shapes broadcast as in NumPy; `x`, `y` and the result are `[...]`."""

from __future__ import annotations

import math

import numpy as np

from tilewright.abi.dtypes import promote
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.reference.precision import Array, widened, working_dtype


@np.errstate(all="ignore")
def add(x: Array, y: Array) -> Array:
    """Return `x + y` in the dtype that `abi.dtypes.promote` gives; integers wrap."""
    left, right, result = _promoted(x, y)
    return np.add(left, right).astype(result)


@np.errstate(all="ignore")
def mul(x: Array, y: Array) -> Array:
    """Return `x * y` in the dtype that `abi.dtypes.promote` gives; integers wrap."""
    left, right, result = _promoted(x, y)
    return np.multiply(left, right).astype(result)


@np.errstate(all="ignore")
def exp(x: Array) -> Array:
    """Return `e ** x` in the dtype of `x`, a float."""
    return np.exp(widened(x, operation="exp")).astype(x.dtype)


@np.errstate(all="ignore")
def gelu(x: Array) -> Array:
    """Return `x / 2 * (1 + erf(x / sqrt(2)))` in the dtype of `x`, a float.

    The exact form of Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), not its tanh
    approximation.
    """
    wide = widened(x, operation="gelu")
    result: Array = wide * 0.5 * (1 + _erf(wide * math.sqrt(0.5)))
    return result.astype(x.dtype)


@np.errstate(all="ignore")
def gelu_backward(x: Array, dy: Array) -> Array:
    """Return the gradient `dy * (Phi(x) + x * phi(x))` of `gelu`.

    `Phi(x) = (1 + erf(x / sqrt(2))) / 2` is the normal distribution function and `phi` its density.
    It is 1 times `dy` at inf and 0 at -inf.
    """
    wide = widened(x, operation="gelu_backward")
    density = np.exp(-0.5 * np.square(wide)) * (1 / math.sqrt(2 * math.pi))
    slope = 0.5 * (1 + _erf(wide * math.sqrt(0.5))) + np.where(np.isinf(wide), 0, wide * density)
    return np.asarray(dy.astype(wide.dtype) * slope).astype(x.dtype)


def _erf(x: Array) -> Array:
    # NumPy has no error function, and SciPy is no dependency.
    values = np.fromiter(map(math.erf, x.ravel().tolist()), x.dtype, x.size)
    return values.reshape(x.shape)


def _promoted(x: Array, y: Array) -> tuple[Array, Array, np.dtype[np.generic]]:
    result = to_numpy(promote(from_numpy(x.dtype), from_numpy(y.dtype)))
    working = working_dtype(result)
    return x.astype(working), y.astype(working), result
