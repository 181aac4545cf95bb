"""Additions to the elements that arrays of indices name, in a fixed order or in any.

Narrow floats are added in f32 and rounded once. By default equal inputs give equal bits: where
several elements meet, they are added in row-major order of `src`, for which destinations are sorted
first. With `deterministic=False` floats are added atomically, which is faster and may round
differently each time. Integers are always added atomically: their sums do not depend on the order.
"""

from __future__ import annotations

from math import prod

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, int32, int64
from tilewright.abi.signature import INT31_MAX
from tilewright.errors import ArgumentError
from tilewright.kernels import index as kernels
from tilewright.runtime.geometry import row_major
from tilewright.tensor.arrays import (
    Array,
    are_aligned,
    as_array,
    as_flag,
    check_same_dtype,
    check_same_side,
    dtype_of,
    new_array,
    output,
)
from tilewright.tensor.axes import apart, is_same_place, one_axis, transposed, viewed
from tilewright.tensor.configurations import MOVED_ELEMENTS, RUN_ELEMENTS, SPAN_TILES, TAKE
from tilewright.tensor.indexing import indexed, indices_of, outside_flag, raise_if_outside
from tilewright.tensor.movement import contiguous, copy, copy_elements, is_row_major
from tilewright.tensor.sorting import Pairs, prepared, sorted_pairs

_NARROW = (float16, bfloat16)


def scatter_add(
    x: object,
    index: object,
    src: object,
    *,
    axis: int = -1,
    deterministic: bool = True,
    check: bool = True,
    out: object | None = None,
) -> Array:
    """Return `x` with `src[i, j, k]` added at `[i, index[i, j, k], k]`, here for axis 1.

    `index`, i32 or i64, has the shape of `src`, and the extents of `x` along all other axes. Raises
    IndexRangeError for an index that names no element, unless `check` is False: then it adds
    nothing.
    """
    array, places, place = indexed(x, index, axis)
    check = as_flag(check, name="check")
    deterministic = as_flag(deterministic, name="deterministic")
    source = _source(src, array, places.shape)
    result = output(out, array.shape, array)
    columns, extent = prod(array.shape[place + 1 :]), array.shape[place]
    target = _apart(result, array, places, source)
    total = _total(array, target)
    count = prod(places.shape)
    if count:
        targets = _targets(places, columns, places.shape[place], extent, columns, check=check)
        flat = _aligned(viewed(contiguous(source), (count,), (1,)))
        if deterministic and dtype_of(total).is_float:
            _add_in_order(targets, flat, total)
        else:
            kernels.add_at[(-(-count // MOVED_ELEMENTS),)](
                targets, flat, total, count, BLOCK=MOVED_ELEMENTS, num_warps=4
            )
    _store(total, target)
    if target is not result:
        copy_elements(target, result)
    return result


def index_add(
    x: object,
    index: object,
    src: object,
    *,
    axis: int = 0,
    deterministic: bool = True,
    check: bool = True,
    out: object | None = None,
) -> Array:
    """Return `x` with slice j of `src` added to slice `index[j]`, along `axis`.

    `index`, i32 or i64, has one axis. This is also the gradient of `take`. Raises as `scatter_add`
    does.
    """
    array, places = as_array(x, name="x"), indices_of(index)
    check_same_side({"x": array, "index": places})
    check = as_flag(check, name="check")
    deterministic = as_flag(deterministic, name="deterministic")
    if not array.shape or len(places.shape) != 1:
        msg = f"index_add takes x with axes and index with one, got {array.shape}, {places.shape}"
        raise ArgumentError(msg)
    place = one_axis(axis, len(array.shape))
    count, extent = places.shape[0], array.shape[place]
    source = _source(src, array, (*array.shape[:place], count, *array.shape[place + 1 :]))
    result = output(out, array.shape, array)
    order = [place, *(other for other in range(len(array.shape)) if other != place)]
    target = _apart(result, array, places, source)
    rows = transposed(target, order)
    total = _total(transposed(array, order), rows)
    columns = prod(rows.shape[1:])
    if count and columns:
        targets = _targets(places, 1, count, extent, 1, check=check)
        flat = _aligned(viewed(contiguous(transposed(source, order)), (count * columns,), (1,)))
        blocks = -(-columns // TAKE.block_n)
        if deterministic and dtype_of(total).is_float:
            pairs = sorted_pairs(prepared(targets, descending=False))
            kernels.add_rows[(count * blocks,)](
                pairs.keys, pairs.places, flat, total, count, columns,
                BLOCK_M=TAKE.block_m, BLOCK_N=TAKE.block_n, num_warps=TAKE.num_warps,
            )  # fmt: skip
        else:
            kernels.add_rows_at[(-(-count // TAKE.block_m) * blocks,)](
                targets, flat, total, count, columns,
                BLOCK_M=TAKE.block_m, BLOCK_N=TAKE.block_n, num_warps=TAKE.num_warps,
            )  # fmt: skip
    _store(total, rows)
    if target is not result:
        copy_elements(target, result)
    return result


def _source(src: object, array: Array, shape: tuple[int, ...]) -> Array:
    source = as_array(src, name="src")
    check_same_dtype({"x": array, "src": source})
    dtype = dtype_of(array)
    if not dtype.has_arithmetic or dtype.bits < 16 or (dtype.bits == 16 and not dtype.is_float):
        msg = f"x has dtype {dtype}; floats and integers of 32 and 64 bits are added by index"
        raise ArgumentError(msg)
    if source.shape != shape:
        msg = f"src has shape {source.shape}, and must have {shape}"
        raise ArgumentError(msg)
    return source


def _apart(result: Array, array: Array, places: Array, source: Array) -> Array:
    """Return where sums may be written: over `x` itself, but not over other elements of it."""
    read = (places, source) if is_same_place(result, array) else (array, places, source)
    return apart(result, *read)


def _total(array: Array, result: Array) -> Array:
    """Return what is added to: the elements of `x` one behind the other, in f32 if narrow."""
    count = prod(array.shape)
    dtype = dtype_of(array)
    if dtype not in _NARROW:
        if is_row_major(result) and are_aligned((result,)):
            copy_elements(array, result)
            return viewed(result, (count,), (1,))
        return viewed(copy(array), (count,), (1,))
    total = new_array((count,), float32, array)
    if count:
        convert(_aligned(viewed(contiguous(array), (count,), (1,))), total)
    return total


def _store(total: Array, result: Array) -> None:
    """Write sums to the result, unless they were taken there."""
    if dtype_of(total) == dtype_of(result):
        if is_row_major(result) and are_aligned((result,)):
            return
        copy_elements(viewed(total, result.shape, row_major(result.shape)), result)
        return
    narrow = new_array((prod(result.shape),), dtype_of(result), result)
    if prod(result.shape):
        convert(total, narrow)
    copy_elements(viewed(narrow, result.shape, row_major(result.shape)), result)


def convert(array: Array, target: Array) -> None:
    """Write aligned f32 elements `[n]` as narrower floats, or those as f32."""
    count = array.shape[0]
    kernels.convert[(-(-count // MOVED_ELEMENTS),)](
        array, target, count, BLOCK=MOVED_ELEMENTS, num_warps=4
    )


def _targets(
    places: Array, columns: int, length: int, extent: int, step: int, *, check: bool
) -> Array:
    """Return which element of the result each index names, -1 for none, in row-major order."""
    count = prod(places.shape)
    flat = _aligned(viewed(contiguous(places), (count,), (1,)))
    largest = count // (length * columns) * extent * step
    dtype: DType = int32 if largest <= INT31_MAX else int64
    targets = new_array((count,), dtype, places)
    flag = outside_flag(places, check=check)
    kernels.destinations[(-(-count // MOVED_ELEMENTS),)](
        flat, targets, flag, count, columns, length * columns, extent, extent * step, step,
        BLOCK=MOVED_ELEMENTS, num_warps=4,
    )  # fmt: skip
    raise_if_outside(flag, places, extent, check=check)
    return targets


def _aligned(array: Array) -> Array:
    """Return the array, or a copy that begins aligned: for what is bundled for these alone."""
    return array if are_aligned((array,)) else copy(array)


def _add_in_order(targets: Array, source: Array, total: Array) -> None:
    pairs: Pairs = sorted_pairs(prepared(targets, descending=False))
    count = targets.shape[0]
    tiles = -(-count // RUN_ELEMENTS)
    dtype = dtype_of(total)
    heads, tails = (new_array((tiles,), dtype, total) for _ in range(2))
    states = new_array((tiles,), int32, total)
    kernels.sum_runs[(tiles,)](
        pairs.keys, pairs.places, source, total, heads, tails, states, count,
        BLOCK=RUN_ELEMENTS, num_warps=4,
    )  # fmt: skip
    kernels.sum_spans[(-(-tiles // SPAN_TILES),)](
        pairs.keys, total, heads, tails, states, tiles,
        TILE=RUN_ELEMENTS, BLOCK=SPAN_TILES, num_warps=4,
    )  # fmt: skip
