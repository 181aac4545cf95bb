"""Random arrays and dropout, as functions of a seed and an offset; there is no hidden state.

What element i is made of is in `reference.random`: the same on every device, whatever the shape.
Offsets count in Philox counters of 64 bits. A call takes a counter for every 4 elements, or for
every 2 integers or f64, so `offset + ceil(n / 4)` begins what an earlier call of n elements left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.launcher import CODES
from tilewright.runtime.memory import check_is_device_number, empty, extents_of
from tilewright.tensor.arrays import Array, as_integer, as_number, dtype_of, new_array
from tilewright.tensor.axes import is_same_place, overlaps
from tilewright.tensor.configurations import RANDOM_COUNTERS
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_given,
    geometry_of,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.launches import PlannedLaunch, Pointer, planned
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
    probability = as_number(p, name="p")
    if not 0 <= probability <= 1:
        msg = f"p is {probability}; a probability lies in [0, 1]"
        raise ArgumentValueError(msg)
    key, first = as_seed(seed), as_offset(offset)
    arrays, geometries = operands(x=x, out=out)
    plan = _plan_dropout(*geometries)
    result = result_of(arrays, 1, plan.result)
    array = arrays[0]
    assert array is not None  # else there was no plan
    source, target = array, result
    if not plan.is_dense or (out is not None and overlaps(result, array)):
        source = contiguous(array)
        is_apart = not overlaps(result, array) or is_same_place(result, array)
        if not (is_row_major(result) and is_apart):
            target = new_array(array.shape, dtype_of(array), array)
        arrays = [source, target]
        plan = _plan_dropout(geometry_of(source), geometry_of(target))
    drops_all = probability == 1
    threshold = min(round(probability * _HALF_WORD), _HALF_WORD - 1)
    scale = np.float64(0.0 if drops_all else 1 / (1 - probability))
    for start, launch in plan.launches:
        counter = number_parts(first + start // 4)
        launch.run(arrays, (*number_parts(key), *counter, threshold, int(drops_all), scale))
    if target is not result:
        copy_elements(target, result)
    return result


@dataclass(frozen=True, slots=True)
class _Plan:
    """The launches over all elements in a row, each with where it begins.

    There are none unless operands are row-major, or what is launched takes no others.
    """

    result: Geometry
    is_dense: bool
    launches: tuple[tuple[int, PlannedLaunch], ...]


@planned
def _plan_dropout(x: Geometry, out: Geometry | None) -> _Plan:
    check_given(x=x)
    if x.dtype not in _FLOATS:
        msg = f"dropout takes floating-point numbers, got {x.dtype}; convert them first"
        raise ArgumentError(msg)
    result = result_geometry(out, x.shape, x.dtype, x)
    if not (is_row_major(x) and is_row_major(result)):
        return _Plan(result, False, ())
    launches = [
        (
            start,
            PlannedLaunch(
                kernels.dropout,
                (-(-count // (4 * RANDOM_COUNTERS)), 1, 1),
                tuple(Pointer(number, start, (count,), (1,)) for number in (0, 1)),
                (count,),
                {"BLOCK": RANDOM_COUNTERS, "num_warps": 4},
            ),
        )
        for start, count in _spans(prod(x.shape))
    ]
    return _Plan(result, True, tuple(launches))


def _spans(count: int) -> Iterator[tuple[int, int]]:
    """Yield where each piece begins, and how many elements it has."""
    for start in range(0, count, _PIECE):
        yield start, min(_PIECE, count - start)


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
    key, first = as_seed(seed), as_offset(offset)
    extents = extents_of(shape)
    if out is None and type(device) is not int:
        out = empty(extents, dtype, device=device)
    arrays, (given,) = operands(out=out)
    plan = _plan_filled(kind, extents, dtype, device if out is None else 0, given)
    result = result_of(arrays, 0, plan.result)
    if not plan.is_dense:
        target = new_array(extents, dtype, result)
        arrays = [target]
        plan = _plan_filled(kind, extents, dtype, 0, geometry_of(target))
        _fill(plan, arrays, kind, dtype, key, first, bounds)
        copy_elements(target, result)
        return result
    _fill(plan, arrays, kind, dtype, key, first, bounds)
    return result


def _fill(
    plan: _Plan,
    arrays: Arrays,
    kind: str,
    dtype: DType,
    key: int,
    first: int,
    bounds: tuple[int, int],
) -> None:
    known = (*number_parts(bounds[0]), *number_parts(bounds[1]))
    per_counter = _per_counter(kind, dtype)
    for start, launch in plan.launches:
        launch.run(
            arrays, (*number_parts(key), *number_parts(first + start // per_counter), *known)
        )


def _per_counter(kind: str, dtype: DType) -> int:
    """Return how many elements are made of a counter."""
    return 2 if kind == "integers" or (kind == "uniform" and dtype == float64) else 4


@planned
def _plan_filled(
    kind: str, extents: tuple[int, ...], dtype: DType, device: int, out: Geometry | None
) -> _Plan:
    check_is_device_number(device)
    like = out or Geometry((), (), CODES[dtype], is_aligned=True, device=device)
    result = result_geometry(out, extents, dtype, like)
    # Bundled for aligned results alone.
    if not (is_row_major(result) and result.is_aligned):
        return _Plan(result, False, ())
    per_counter = _per_counter(kind, dtype)
    launches = [
        (
            start,
            PlannedLaunch(
                kernels.fill,
                (-(-count // (per_counter * RANDOM_COUNTERS)), 1, 1),
                (Pointer(0, start, (count,), (1,)),),
                (count,),
                {"KIND": kind, "BLOCK": RANDOM_COUNTERS, "num_warps": 4},
            ),
        )
        for start, count in _spans(prod(extents))
    ]
    return _Plan(result, True, tuple(launches))


def as_seed(seed: object) -> int:
    """Return a seed of 64 bits; raises ArgumentValueError for a larger one."""
    number = as_integer(seed, name="seed")
    if not -(2**63) <= number < 2**64:
        msg = f"seed is {number}; it has 64 bits, from -2**63 to 2**64 - 1"
        raise ArgumentValueError(msg)
    return number


def as_offset(offset: object) -> int:
    """Return a counter to begin at; raises ArgumentValueError for what has no 64 bits."""
    number = as_integer(offset, name="offset")
    if not 0 <= number < 2**64:
        msg = f"offset is {number}; it counts from 0 to 2**64 - 1"
        raise ArgumentValueError(msg)
    return number


def number_parts(number: int) -> tuple[int, int, int]:
    """Return the bits of a number of 64 bits as kernels take them: 31, 31 and 2."""
    return number % 2**31, (number >> 31) % 2**31, (number >> 62) % 4
