"""Reductions along axes: `axis` is one, several or, with None, all; `keepdim` keeps them as 1.

An array without axes has an axis 0. Integers and bools are summed in i64, unsigned ones in u64,
which wrap; their mean is taken in f64 and is f32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.reference.precision import Array, widened, working_dtype

Axis = int | Sequence[int] | None


@np.errstate(all="ignore")
def sum(x: Array, axis: Axis = None, *, keepdim: bool = False) -> Array:
    """Return the sum; narrow floats are added in f32 and rounded once. Nothing sums to 0."""
    working = _accumulator(x)
    total = np.sum(x.astype(working), axis=_axes(axis, x), dtype=working, keepdims=keepdim)
    return np.asarray(total).astype(x.dtype if x.dtype.kind not in "biu" else working)


@np.errstate(all="ignore")
def mean(x: Array, axis: Axis = None, *, keepdim: bool = False) -> Array:
    """Return the sum over the number of elements; NaN of none."""
    is_integer = x.dtype.kind in "biu"
    working = np.dtype(np.float64) if is_integer else working_dtype(x.dtype)
    axes = _axes(axis, x)
    total = np.asarray(np.sum(x.astype(working), axis=axes, dtype=working, keepdims=keepdim))
    count = np.prod([x.shape[each] for each in axes], dtype=np.int64)
    return np.asarray(total / working.type(count)).astype(np.float32 if is_integer else x.dtype)


def max(x: Array, axis: Axis = None, *, keepdim: bool = False) -> Array:
    """Return the largest element; NaN if any is NaN. Raises ArgumentError if there is none."""
    axes = _axes(axis, x)
    _check_not_empty(x, axes, "maximum")
    wide = x.astype(working_dtype(x.dtype))
    return np.asarray(np.max(wide, axis=axes, keepdims=keepdim)).astype(x.dtype)


def min(x: Array, axis: Axis = None, *, keepdim: bool = False) -> Array:
    """Return the smallest element; NaN if any is NaN. Raises ArgumentError if there is none."""
    axes = _axes(axis, x)
    _check_not_empty(x, axes, "minimum")
    wide = x.astype(working_dtype(x.dtype))
    return np.asarray(np.min(wide, axis=axes, keepdims=keepdim)).astype(x.dtype)


def argmax(x: Array, axis: int | None = None, *, keepdim: bool = False) -> Array:
    """Return the i64 index of the largest element along an axis, or in row-major order of all.

    Of equal elements the first, 0.0 and -0.0 being equal; with a NaN, the first NaN.
    """
    return _place(np.argmax, x, axis, keepdim=keepdim, what="argmax")


def argmin(x: Array, axis: int | None = None, *, keepdim: bool = False) -> Array:
    """Return the index of the smallest element as `argmax` does of the largest."""
    return _place(np.argmin, x, axis, keepdim=keepdim, what="argmin")


@np.errstate(all="ignore")
def var(x: Array, axis: Axis = None, *, correction: int = 1, keepdim: bool = False) -> Array:
    """Return `sum((x - mean(x)) ** 2) / max(count - correction, 0)`, of floats."""
    wide = widened(x, operation="var")
    axes = _axes(axis, x)
    count = np.prod([x.shape[each] for each in axes], dtype=np.int64)
    count = wide.dtype.type(count)
    centred = wide - np.sum(wide / count, axis=axes, keepdims=True, dtype=wide.dtype)
    total = np.sum(np.square(centred), axis=axes, keepdims=keepdim, dtype=wide.dtype)
    divisor = np.maximum(count - wide.dtype.type(correction), 0)
    result = np.asarray(np.nan if count == 0 else 0, wide.dtype) + total / divisor
    return np.asarray(result).astype(x.dtype)


@np.errstate(all="ignore")
def std(x: Array, axis: Axis = None, *, correction: int = 1, keepdim: bool = False) -> Array:
    """Return the root of `var`."""
    wide = widened(x, operation="std")
    return np.sqrt(var(wide, axis, correction=correction, keepdim=keepdim)).astype(x.dtype)


def _accumulator(x: Array) -> np.dtype[np.generic]:
    match x.dtype.kind:
        case "b" | "i":
            return np.dtype(np.int64)
        case "u":
            return np.dtype(np.uint64)
        case _:
            return working_dtype(x.dtype)


def _axes(axis: Axis, x: Array) -> tuple[int, ...]:
    if x.ndim == 0:
        return ()
    given = range(x.ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    return tuple(int(each) % x.ndim for each in given)


def _check_not_empty(x: Array, axes: tuple[int, ...], what: str) -> None:
    if any(x.shape[each] == 0 for each in axes):
        msg = f"{what} over an empty axis: x has shape {x.shape}"
        raise ArgumentError(msg)


def _place(function: object, x: Array, axis: int | None, *, keepdim: bool, what: str) -> Array:
    axes = _axes(axis, x)
    _check_not_empty(x, axes, what)
    wide = x.astype(working_dtype(x.dtype))
    if x.ndim == 0 or axis is None:
        found = np.asarray(function(wide))  # type: ignore[operator]  # np.argmax or np.argmin
        return found.reshape((1,) * x.ndim if keepdim else ()).astype(np.int64)
    found = np.asarray(function(wide, axis=axes[0]))  # type: ignore[operator]  # as above
    return (np.expand_dims(found, axes[0]) if keepdim else found).astype(np.int64)
