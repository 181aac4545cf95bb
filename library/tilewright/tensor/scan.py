"""Running sums and products along any axis of arrays of any strides."""

from __future__ import annotations

from math import prod

from tilewright.abi.dtypes import DType, float32, float64, int64, uint64
from tilewright.kernels import reduction as reduction_kernels
from tilewright.kernels import scan as kernels
from tilewright.tensor.arrays import (
    Array,
    as_array,
    check_has_arithmetic,
    dtype_of,
    is_fast,
    output,
    strides_of,
)
from tilewright.tensor.axes import (
    at_least_one_axis,
    is_same_place,
    new_array,
    one_axis,
    overlaps,
    transposed,
)
from tilewright.tensor.configurations import (
    MOST_PARTS,
    SCAN_INNER,
    SCAN_LONG,
    SCAN_OUTER,
    reduce_configuration,
)
from tilewright.tensor.movement import contiguous, copy_elements
from tilewright.tensor.strides import IndexSpace, collapsed

# Programs that are enough to fill a GPU, and elements that are worth a program of their own: a
# multiple of the chunks of every configuration of scans and reductions.
_PROGRAMS = 128
_PART_ELEMENTS = 8192
# With fewer columns than this, rows are scanned across them.
_FEW_COLUMNS = 8


def cumsum(x: object, axis: int = -1, *, out: object | None = None) -> Array:
    """Return the sum of each element and all before it along `axis`.

    Narrow floats are added in f32 and each result is rounded once; bools and integers give i64,
    unsigned ones u64. The order of addition depends on the shape alone.
    """
    return _scan(x, axis, "sum", out)


def cumprod(x: object, axis: int = -1, *, out: object | None = None) -> Array:
    """Return the product of each element and all before it along `axis`; dtypes as `cumsum`."""
    return _scan(x, axis, "prod", out)


def _scan(x: object, axis: int, operation: str, out: object | None) -> Array:
    array = as_array(x, name="x")
    check_has_arithmetic(array)
    place = one_axis(axis, len(array.shape))
    dtype = dtype_of(array)
    wide = dtype if dtype.is_float else uint64 if dtype.kind == "uint" else int64
    result = output(out, array.shape, array, wide)
    if not prod(array.shape):
        return result
    if out is not None and overlaps(result, array) and not is_same_place(result, array):
        copy_elements(_scan(array, axis, operation, None), result)
        return result
    source, target = at_least_one_axis(array), at_least_one_axis(result)
    order = [*(p for p in range(len(source.shape)) if p != place), place]
    source, target = transposed(source, order), transposed(target, order)
    space = _kept_space(source, target)
    if space is not None:
        _launch(source, target, space, operation)
        return result
    # More axes than kernels have: once more, row by row in memory.
    dense = contiguous(source)
    scanned = new_array(dense.shape, wide, dense)
    packed = _kept_space(dense, scanned)
    assert packed is not None
    _launch(dense, scanned, packed, operation)
    copy_elements(scanned, target)
    return result


def _kept_space(source: Array, target: Array) -> IndexSpace | None:
    strides = (strides_of(source)[:-1], strides_of(target)[:-1])
    return collapsed(source.shape[:-1], strides, rank=2, keep_last=False)


def _launch(source: Array, target: Array, space: IndexSpace, operation: str) -> None:
    """Scan the last axis."""
    length = source.shape[-1]
    steps = (strides_of(source)[-1], strides_of(target)[-1])
    is_outer = (
        length > 1
        and space.sizes[1] > _FEW_COLUMNS
        and 0 < abs(space.strides[0][1]) < abs(steps[0])
    )
    kernel = kernels.outer if is_outer else kernels.inner
    walked = (*space.strides[0], steps[0], *space.strides[1], steps[1])
    tiles = SCAN_OUTER if is_outer else SCAN_INNER
    if operation == "sum" and not is_outer and length > 2 * SCAN_INNER.block_n:
        integers = (*space.sizes, length, 0, *walked)
        if is_fast(kernel, (source, target, target), integers):
            tiles = SCAN_LONG
    rows = prod(space.sizes)
    blocks = -(-rows // tiles.block_m)
    if is_outer:
        blocks = space.sizes[0] * -(-space.sizes[1] // tiles.block_m)
    part = -(-length // tiles.block_n)
    wanted = min(_PROGRAMS // blocks, MOST_PARTS)
    if operation == "sum" and wanted > 1 and length > 2 * _PART_ELEMENTS:
        elements = -(-length // (wanted * _PART_ELEMENTS)) * _PART_ELEMENTS
        part = elements // tiles.block_n
    parts = -(-length // (part * tiles.block_n))
    dtype = _carry_dtype(dtype_of(source))
    carry = new_array((rows, parts), dtype, source)
    if parts > 1:
        _sum_parts(source, space, carry, part * tiles.block_n, is_outer=is_outer)
        kept = collapsed((rows,), ((parts,), (parts,)), rank=2, keep_last=False)
        assert kept is not None
        _launch(carry, carry, kept, "sum")
    kernel[(blocks, parts)](
        source, target, carry, *space.sizes, length, part, *walked,
        OPERATION=operation, BLOCK_M=tiles.block_m, BLOCK_K=tiles.block_n,
        num_warps=tiles.num_warps,
    )  # fmt: skip


def _sum_parts(
    source: Array, space: IndexSpace, carry: Array, elements: int, *, is_outer: bool
) -> None:
    """Write the sums of each part of `elements` to `carry`."""
    length, step = source.shape[-1], strides_of(source)[-1]
    kernel = reduction_kernels.outer if is_outer else reduction_kernels.inner
    walked = (*space.strides[0], 0, step, 0, 0)
    # With several parts nothing is written to `out`, which only has to be of the right type.
    pointers = (source, source, carry)
    fast = is_fast(kernel, pointers, (*space.sizes, 1, length, 0, 1, 0, *walked))
    tiles = reduce_configuration(length, is_inner=not is_outer, fast=fast)
    blocks = -(-prod(space.sizes) // tiles.block_m)
    if is_outer:
        blocks = space.sizes[0] * -(-space.sizes[1] // tiles.block_m)
    kernel[(blocks, carry.shape[1])](
        *pointers, *space.sizes, 1, length, elements // tiles.block_n, 1, 0, *walked,
        OPERATION="sum", BLOCK_M=tiles.block_m, BLOCK_K=tiles.block_n, num_warps=tiles.num_warps,
    )  # fmt: skip


def _carry_dtype(dtype: DType) -> DType:
    if not dtype.is_float:
        return int64
    return float64 if dtype == float64 else float32
