"""Sorted arrays along an axis, with the i64 indices that the elements had.

Floats are ordered totally: -inf, numbers, -0.0, 0.0, numbers, inf, NaN. Equal elements keep their
order, in a falling order too. An array without axes is one element.
"""

from __future__ import annotations

import numpy as np

from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ArgumentValueError
from tilewright.reference.precision import Array, working_dtype


def sort(x: Array, axis: int = -1, *, descending: bool = False) -> tuple[Array, Array]:
    """Return the elements in order along `axis` and their indices."""
    array = np.atleast_1d(x)
    keys = _keys(array)
    order = np.argsort(~keys if descending else keys, axis=axis, kind="stable")
    values = np.take_along_axis(array, order, axis)
    return values.reshape(x.shape), order.reshape(x.shape).astype(np.int64)


def argsort(x: Array, axis: int = -1, *, descending: bool = False) -> Array:
    """Return the indices of `sort` alone."""
    return sort(x, axis, descending=descending)[1]


def topk(x: Array, k: int, *, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """Return the first `k` of the falling order along `axis`, or the rising one, and indices."""
    array = np.atleast_1d(x)
    if not 0 <= k <= array.shape[axis]:
        msg = f"k is {k}, of an axis of {array.shape[axis]} elements"
        raise ArgumentValueError(msg)
    values, order = sort(array, axis, descending=largest)
    first = np.arange(k)
    return np.take(values, first, axis), np.take(order, first, axis)


def _keys(x: Array) -> Array:
    """Return integers that are ordered as the elements are."""
    if not from_numpy(x.dtype).is_float:
        return x.astype(np.int64) if x.dtype != np.uint64 else (x ^ np.uint64(2**63)).view(np.int64)
    wide = x.astype(working_dtype(x.dtype))
    wide = np.where(np.isnan(wide), np.abs(wide.dtype.type(np.nan)), wide)
    if wide.itemsize == 4:
        bits = wide.view(np.int32).astype(np.int64)
        return np.where(bits < 0, bits ^ (2**31 - 1), bits)
    long = wide.view(np.int64)
    return np.where(long < 0, long ^ (2**63 - 1), long)
