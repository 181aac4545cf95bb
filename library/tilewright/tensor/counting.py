"""How often values occur: integers, or floats in equal parts of a range."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod

import numpy as np

from tilewright.abi.dtypes import float64, int1, int64
from tilewright.errors import ArgumentError, ArgumentValueError, IndexRangeError
from tilewright.kernels import index as kernels
from tilewright.runtime.memory import DeviceArray, from_numpy
from tilewright.tensor import reduction
from tilewright.tensor.arrays import (
    Array,
    are_aligned,
    as_array,
    as_integer,
    as_number,
    check_has_arithmetic,
    dtype_of,
    new_array,
    on_host,
)
from tilewright.tensor.axes import viewed
from tilewright.tensor.configurations import (
    COUNT_FEW,
    COUNT_MANY,
    FEW_BINS,
    MOVED_ELEMENTS,
)
from tilewright.tensor.movement import contiguous, copy

_MOST_PROGRAMS = 1024
_LOWEST = -(2**63)


def bincount(x: object, *, minlength: int = 0) -> Array:
    """Return how often each integer from 0 on is an element of `x`, of any shape, as i64.

    Of `max(x) + 1` bins, or `minlength` if that is more; to know it the call waits for the device.
    Raises IndexRangeError if an element is negative.
    """
    array = as_array(x, name="x")
    if not dtype_of(array).is_integer or dtype_of(array) == int1:
        msg = f"bincount takes integers, got {dtype_of(array)}; convert them first"
        raise ArgumentError(msg)
    flat = _flat(array)
    largest, turned = _bounds(flat)
    if flat.shape[0] and turned >= 0:
        lowest = -1 - turned
        found = lowest if dtype_of(array).is_signed else lowest + 2**64
        msg = f"bincount counts integers from 0 to 2**63 - 1, and x has {found}"
        raise IndexRangeError(msg)
    bins, least = largest + 1 if flat.shape[0] else 0, _count(minlength, "minlength")
    return _counted(flat, bins if bins > least else least, 0.0, 0.0, 0.0)


def histogram(x: object, bins: int = 10, *, range: tuple[float, float] | None = None) -> Array:
    """Return how many elements of `x` lie in each of `bins` equal parts of `range`, as i64.

    Without a range it is that of the elements, for which the call waits for the device; a range
    that is empty is widened by 1/2 on both sides. Which part an element is in is written in
    `reference.index.histogram`: the last one holds the upper end, and NaN and what lies outside
    are not counted. Raises ArgumentValueError for a range that is not finite, or has no such parts.
    """
    array = as_array(x, name="x")
    check_has_arithmetic(array)
    if not dtype_of(array).is_float:
        msg = f"histogram takes floating-point numbers, got {dtype_of(array)}; see bincount"
        raise ArgumentError(msg)
    parts = _count(bins, "bins")
    if parts < 1:
        msg = f"bins is {bins}; at least one is needed"
        raise ArgumentValueError(msg)
    flat = _flat(array)
    low, high = _range(flat, range)
    # As the kernel computes them.
    working = np.float64 if dtype_of(flat) == float64 else np.float32
    with np.errstate(all="ignore"):
        scale = np.float64(parts) / (np.float64(high) - low)
        as_computed = [working(number) for number in (low, high, scale)]
    if not np.isfinite(as_computed).all() or not as_computed[2] > 0:
        msg = (
            f"range ({low}, {high}) has no {parts} equal parts that {dtype_of(flat)} is counted in "
            f"by {working.__name__}; pass a range that is wider, narrower or of fewer bins"
        )
        raise ArgumentValueError(msg)
    return _counted(flat, parts, low, high, float(scale))


def _range(flat: Array, given: tuple[float, float] | None) -> tuple[float, float]:
    if given is not None:
        if not isinstance(given, Sequence | np.ndarray) or len(given) != 2:
            msg = f"range is {given!r}; two numbers are needed"
            raise ArgumentError(msg)
        low, high = (as_number(number, name="range") for number in given)
    elif flat.shape[0]:
        low, high = (float(on_host(f(flat))) for f in (reduction.min, reduction.max))
    else:
        low, high = 0.0, 1.0
    if not (isfinite(low) and isfinite(high) and low <= high):
        msg = f"range is ({low}, {high}); two finite numbers in order are needed"
        raise ArgumentValueError(msg)
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _count(value: object, name: str) -> int:
    number = as_integer(value, name=name)
    if number < 0:
        msg = f"{name} is {number}; it cannot be negative"
        raise ArgumentValueError(msg)
    return number


def _flat(array: Array) -> Array:
    flat = viewed(contiguous(array), (prod(array.shape),), (1,))
    return flat if are_aligned((flat,)) else copy(flat)  # bundled for aligned arrays alone


def _bounds(flat: Array) -> tuple[int, int]:
    """Return the largest element and the complement of the smallest."""
    start = np.full(2, _LOWEST, np.int64)
    found: Array = from_numpy(start, device=flat.device) if isinstance(flat, DeviceArray) else start
    if flat.shape[0]:
        kernels.bounds[(-(-flat.shape[0] // MOVED_ELEMENTS),)](
            flat, found, flat.shape[0], BLOCK=MOVED_ELEMENTS, num_warps=4
        )
    largest, turned = on_host(found).tolist()
    return int(largest), int(turned)


def _counted(flat: Array, bins: int, low: float, high: float, scale: float) -> Array:
    counts = new_array((bins,), int64, flat, zeroed=True)
    if flat.shape[0] and bins:
        few = bins <= FEW_BINS
        tile = COUNT_FEW if few else COUNT_MANY
        programs = -(-flat.shape[0] // tile.block_n)
        kernels.count[(programs if programs < _MOST_PROGRAMS else _MOST_PROGRAMS,)](
            flat, counts, flat.shape[0], bins, *(np.float64(x) for x in (low, high, scale)),
            FEW=FEW_BINS if few else 0, BLOCK=tile.block_n, num_warps=tile.num_warps,
        )  # fmt: skip
    return counts
