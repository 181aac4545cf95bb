"""Softmax along one axis, and its gradient."""

from __future__ import annotations

import numpy as np

from tilewright.reference.precision import Array, widened


@np.errstate(all="ignore")
def softmax(x: Array, axis: int = -1) -> Array:
    """Return `exp(x - max(x)) / sum(exp(x - max(x)))` along `axis`, in the shape and dtype of `x`.

    The maximum is subtracted so that nothing overflows; mathematically it cancels. The formula
    stands as it is: a row that holds NaN or +inf, or nothing but -inf, gives NaN. An empty axis
    gives an empty result.
    """
    wide = widened(x, operation="softmax")
    if not wide.size:
        return x.copy()
    exponentials = np.exp(wide - wide.max(axis=axis, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return result.astype(x.dtype)


@np.errstate(all="ignore")
def softmax_backward(y: Array, dy: Array, axis: int = -1) -> Array:
    """Return the gradient `y * (dy - sum(dy * y))` along `axis`, for `y = softmax(x)`."""
    wide = widened(y, operation="softmax_backward")
    gradient = dy.astype(wide.dtype)
    level = (gradient * wide).sum(axis=axis, keepdims=True)
    return np.asarray(wide * (gradient - level)).astype(y.dtype)
