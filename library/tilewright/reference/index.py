"""Elements by index: read, added to, and counted.

An index counts from 0 to the extent less 1; any other, negative ones included, is an
IndexRangeError, or without `check` reads 0 and adds nothing.
"""

from __future__ import annotations

import numpy as np

from tilewright.errors import IndexRangeError
from tilewright.reference.precision import Array, widened, working_dtype


def gather(x: Array, index: Array, *, axis: int = -1, check: bool = True) -> Array:
    """Return `x[i, index[i, j, k], k]` at `[i, j, k]`, here for axis 1; other axes agree."""
    is_inside = _inside(index, x.shape[axis], check=check)
    if not x.shape[axis]:
        return np.zeros(index.shape, x.dtype)
    found = np.take_along_axis(x, np.where(is_inside, index, 0).astype(np.int64), axis)
    return np.where(is_inside, found, np.zeros((), x.dtype))


def take(x: Array, index: Array, *, axis: int = 0, check: bool = True) -> Array:
    """Return the slices of `x` along `axis` that `index`, of any shape, names, in its place."""
    place = axis % x.ndim
    is_inside = _inside(index, x.shape[place], check=check)
    shape = (*x.shape[:place], *index.shape, *x.shape[place + 1 :])
    if not x.shape[place]:
        return np.zeros(shape, x.dtype)
    found = np.take(x, np.where(is_inside, index, 0), place)
    fits = is_inside.reshape(*index.shape, *(1,) * (x.ndim - place - 1))
    return np.where(fits, found, np.zeros((), x.dtype))


@np.errstate(all="ignore")
def scatter_add(x: Array, index: Array, src: Array, *, axis: int = -1, check: bool = True) -> Array:
    """Return `x` with `src[i, j, k]` added at `[i, index[i, j, k], k]`, here for axis 1.

    Narrow floats are added in f32, in row-major order of `src`, and rounded once.
    """
    is_inside = _inside(index, x.shape[axis], check=check)
    total = x.astype(working_dtype(x.dtype))
    places: Array = np.indices(index.shape)
    places[axis] = index
    chosen = tuple(place[is_inside] for place in places)
    sums = np.zeros_like(total)
    np.add.at(sums, chosen, src.astype(total.dtype)[is_inside])
    result: Array = total + sums
    return result.astype(x.dtype)


def index_add(x: Array, index: Array, src: Array, *, axis: int = 0, check: bool = True) -> Array:
    """Return `x` with slice j of `src` added to slice `index[j]`, along `axis`."""
    shape = [1] * x.ndim
    shape[axis] = index.size
    wide = np.broadcast_to(index.reshape(shape), src.shape)
    return scatter_add(x, wide, src, axis=axis, check=check)


def bincount(x: Array, *, minlength: int = 0) -> Array:
    """Return how often each integer from 0 on is an element of `x`, i64.

    Of `max(x) + 1` bins, or `minlength` if that is more. Raises IndexRangeError for negative ones.
    """
    if x.size and x.min() < 0:
        msg = f"bincount counts integers from 0 on, and x has {x.min()}"
        raise IndexRangeError(msg)
    return np.bincount(x.reshape(-1).astype(np.int64), minlength=minlength).astype(np.int64)


@np.errstate(all="ignore")
def histogram(x: Array, bins: int = 10, *, range: tuple[float, float] | None = None) -> Array:
    """Return how many elements lie in each of `bins` equal parts of `range`, i64.

    The range is that of the elements unless given, and widened by 1/2 on both sides if it is empty.
    An element is in part `floor((x - low) * (bins / (high - low)))`, computed in f32, in f64 for
    f64; `high` is in the last. NaN and what is outside are not counted.
    """
    wide = widened(x, operation="histogram").reshape(-1)
    working = wide.dtype
    low, high = range or ((float(wide.min()), float(wide.max())) if wide.size else (0.0, 1.0))
    if low == high:
        low, high = low - 0.5, high + 0.5
    bottom, top, scale = (working.type(number) for number in (low, high, bins / (high - low)))
    wide = wide[(wide >= bottom) & (wide <= top)]
    number = np.floor((wide - bottom) * scale).astype(np.int64)
    return np.bincount(np.minimum(number, bins - 1), minlength=bins).astype(np.int64)


def _inside(index: Array, extent: int, *, check: bool) -> Array:
    is_inside = np.asarray((index >= 0) & (index < extent))
    if check and not is_inside.all():
        place = tuple(int(i) for i in np.argwhere(~is_inside)[0])
        msg = f"index {index[place]} at {place} is outside of an axis of {extent} elements"
        raise IndexRangeError(msg)
    return is_inside
