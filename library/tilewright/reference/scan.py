"""Running sums and products along an axis, in the shape of `x`.

Narrow floats are combined in f32 and each result is rounded once; bools and integers give i64,
unsigned ones u64, which wrap. An array without axes is one element.
"""

from __future__ import annotations

import numpy as np

from tilewright.reference.precision import Array, working_dtype


@np.errstate(all="ignore")
def cumsum(x: Array, axis: int = -1) -> Array:
    """Return the sum of each element and all before it along `axis`."""
    working, result = _dtypes(x)
    wide = np.atleast_1d(x.astype(working))
    return np.cumsum(wide, axis=axis, dtype=working).reshape(x.shape).astype(result)


@np.errstate(all="ignore")
def cumprod(x: Array, axis: int = -1) -> Array:
    """Return the product of each element and all before it along `axis`."""
    working, result = _dtypes(x)
    wide = np.atleast_1d(x.astype(working))
    return np.cumprod(wide, axis=axis, dtype=working).reshape(x.shape).astype(result)


def _dtypes(x: Array) -> tuple[np.dtype[np.generic], np.dtype[np.generic]]:
    if x.dtype.kind in "bi":
        return np.dtype(np.int64), np.dtype(np.int64)
    if x.dtype.kind == "u":
        return np.dtype(np.uint64), np.dtype(np.uint64)
    return working_dtype(x.dtype), x.dtype
