"""Random arrays and dropout, as functions of a seed and an offset; there is no hidden state.

What element i is made of is in `reference.random`: the same on every device, whatever the shape.
Offsets count in Philox counters of 64 bits. A call takes a counter for every 4 elements, or for
every 2 integers or f64, so `offset + ceil(n / 4)` begins what an earlier call of n elements left.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int64,
)
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.kernels import random as kernels
from tilewright.runtime.memory import empty, extents_of
from tilewright.tensor.arrays import (
    Array,
    are_aligned,
    as_array,
    as_integer,
    as_number,
    dtype_of,
    new_array,
    output,
)
from tilewright.tensor.axes import is_same_place, overlaps, viewed
from tilewright.tensor.configurations import RANDOM_COUNTERS
from tilewright.tensor.movement import contiguous, copy_elements, is_row_major

_FLOATS = (float16, bfloat16, float32, float64)
_INT64 = range(-(2**63), 2**63)
_HALF_WORD = 2**31
# Elements that one launch takes, so that 31 bits count them.
_PIECE = 2**30


def rand(
    shape: int | Sequence[int],
    *,
    seed: int,
    offset: int = 0,
    dtype: DType = float32,
    device: int = 0,
    out: object | None = None,
) -> Array:
    """Return uniform numbers in [0, 1), never 1, see `reference.random.rand`.

    Without `out` they are on `device`; with an `out` of NumPy on the host.
    """
    return _filled("uniform", shape, seed, offset, dtype, device, out)


def randn(
    shape: int | Sequence[int],
    *,
    seed: int,
    offset: int = 0,
    dtype: DType = float32,
    device: int = 0,
    out: object | None = None,
) -> Array:
    """Return normal numbers of mean 0 and variance 1, see `reference.random.randn`.

    They are computed in f32 by functions exact to 4 ulp, so last bits differ between host and
    device. Where they go is as for `rand`.
    """
    return _filled("normal", shape, seed, offset, dtype, device, out)


def randint(
    low: int,
    high: int,
    *,
    shape: int | Sequence[int],
    seed: int,
    offset: int = 0,
    dtype: DType = int64,
    device: int = 0,
    out: object | None = None,
) -> Array:
    """Return integers from `low` to `high - 1`, all equally likely to within `2 ** -32`.

    The whole range of `dtype` is allowed. Where they go is as for `rand`. Raises ArgumentValueError
    when there is no such integer, or `dtype` does not hold them.
    """
    first, last = as_integer(low, name="low"), as_integer(high, name="high") - 1
    if not isinstance(dtype, DType) or not dtype.is_integer or dtype == int1:
        msg = f"randint gives integers, got dtype {dtype}"
        raise ArgumentError(msg)
    lowest = -(2 ** (dtype.bits - 1)) if dtype.is_signed else 0
    if not lowest <= first <= last < lowest + 2**dtype.bits:
        msg = (
            f"randint from {low} to {high}: {dtype} holds integers from {lowest} to "
            f"{lowest + 2**dtype.bits - 1}, and high must exceed low"
        )
        raise ArgumentValueError(msg)
    span = last - first + 1
    return _filled("integers", shape, seed, offset, dtype, device, out, (first, span))


def dropout(x: object, p: float, *, seed: int, offset: int = 0, out: object | None = None) -> Array:
    """Return `x / (1 - p)` with elements set to 0, each with probability `p`.

    Which ones is a function of `seed`, `offset` and an element's place in row-major order: the
    gradient of dropout is `dropout(gradient, p, ...)` with the same seed and offset, and nothing
    needs to be saved. With `p` 0 all are kept, with 1 none, infinities and NaN included. Raises
    ArgumentValueError for `p` outside [0, 1].
    """
    array = as_array(x, name="x")
    if dtype_of(array) not in _FLOATS:
        msg = f"dropout takes floating-point numbers, got {dtype_of(array)}; convert them first"
        raise ArgumentError(msg)
    probability = as_number(p, name="p")
    if not 0 <= probability <= 1:
        msg = f"p is {probability}; a probability lies in [0, 1]"
        raise ArgumentValueError(msg)
    key, first = _seed(seed), _offset(offset)
    result = output(out, array.shape, array)
    count = prod(array.shape)
    if not count:
        return result
    source = contiguous(array)
    target = result
    if not is_row_major(result) or (overlaps(result, array) and not is_same_place(result, array)):
        target = new_array(array.shape, dtype_of(array), array)
    drops_all = probability == 1
    threshold = min(round(probability * _HALF_WORD), _HALF_WORD - 1)
    scale = 0.0 if drops_all else 1 / (1 - probability)
    flat_source, flat_target = (viewed(a, (count,), (1,)) for a in (source, target))
    for start in range(0, count, _PIECE):
        x_piece, piece = flat_source[start : start + _PIECE], flat_target[start : start + _PIECE]
        kernels.dropout[(-(-piece.shape[0] // (4 * RANDOM_COUNTERS)),)](
            x_piece, piece, piece.shape[0],
            *_parts(key), *_parts(first + start // 4), threshold,
            int(drops_all), np.float64(scale), BLOCK=RANDOM_COUNTERS, num_warps=4,
        )  # fmt: skip
    if target is not result:
        copy_elements(target, result)
    return result


def _filled(
    kind: str,
    shape: int | Sequence[int],
    seed: int,
    offset: int,
    dtype: DType,
    device: int,
    out: object | None,
    bounds: tuple[int, int] = (0, 0),
) -> Array:
    if kind != "integers" and not (isinstance(dtype, DType) and dtype in _FLOATS):
        msg = f"dtype is {dtype}; tl.float16, tl.bfloat16, tl.float32 or tl.float64 is needed"
        raise ArgumentError(msg)
    key, first = _seed(seed), _offset(offset)
    extents = extents_of(shape)
    if out is None:
        result: Array = empty(extents, dtype, device=device)
    else:
        result = output(out, extents, as_array(out, name="out"), dtype)
    count = prod(extents)
    if not count:
        return result
    # Bundled for aligned results alone.
    is_direct = is_row_major(result) and are_aligned((result,))
    target = result if is_direct else new_array(extents, dtype, result)
    per_counter = 2 if kind == "integers" or (kind == "uniform" and dtype == float64) else 4
    flat = viewed(target, (count,), (1,))
    for start in range(0, count, _PIECE):
        piece = flat[start : start + _PIECE]
        kernels.fill[(-(-piece.shape[0] // (per_counter * RANDOM_COUNTERS)),)](
            piece, piece.shape[0],
            *_parts(key), *_parts(first + start // per_counter),
            *_parts(bounds[0]), *_parts(bounds[1]),
            KIND=kind, BLOCK=RANDOM_COUNTERS, num_warps=4,
        )  # fmt: skip
    if target is not result:
        copy_elements(target, result)
    return result


def _seed(seed: int) -> int:
    number = as_integer(seed, name="seed")
    if not -(2**63) <= number < 2**64:
        msg = f"seed is {number}; it has 64 bits, from -2**63 to 2**64 - 1"
        raise ArgumentValueError(msg)
    return number


def _offset(offset: int) -> int:
    number = as_integer(offset, name="offset")
    if not 0 <= number < 2**64:
        msg = f"offset is {number}; it counts from 0 to 2**64 - 1"
        raise ArgumentValueError(msg)
    return number


def _parts(number: int) -> tuple[int, int, int]:
    """Return the bits of a number of 64 bits as kernels take them: 31, 31 and 2."""
    return number % 2**31, (number >> 31) % 2**31, (number >> 62) % 4
