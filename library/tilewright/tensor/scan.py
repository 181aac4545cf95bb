"""Running sums and products along any axis of arrays of any strides."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.abi.dtypes import DType, float32, float64, int64, uint64
from tilewright.kernels import reduction as reduction_kernels
from tilewright.kernels import scan as kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import Array, check_has_arithmetic, fits_fast
from tilewright.tensor.axes import is_same_place, one_axis, overlaps, transposed
from tilewright.tensor.configurations import (
    MOST_PARTS,
    SCAN_INNER,
    SCAN_LONG,
    SCAN_OUTER,
    reduce_configuration,
)
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_given,
    geometry_of,
    new_array,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.launches import PlannedLaunch, Pointer, planned
from tilewright.tensor.movement import contiguous, copy_elements
from tilewright.tensor.strides import IndexSpace, collapsed

# Programs that are enough to fill a GPU, and elements that are worth a program of their own: a
# multiple of the chunks of every configuration of scans and reductions.
_PROGRAMS = 128
_PART_ELEMENTS = 8192
# With fewer columns than this, rows are scanned across them.
_FEW_COLUMNS = 8
_WORKSPACES = 2  # the number of the first, behind what is read and what is written


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
    arrays, geometries = operands(x=x, out=out)
    array = arrays[0]
    place = one_axis(axis, 0 if array is None else len(array.shape))
    call = _plan_call(operation, place, *geometries)
    result = result_of(arrays, 1, call.result)
    assert array is not None  # else there was no plan
    if out is not None and overlaps(result, array) and not is_same_place(result, array):
        copy_elements(_scan(array, axis, operation, None), result)
    elif call.plan is not None:
        _run(call.plan, arrays)
    else:
        # More axes than kernels have: once more, row by row in memory.
        order = _order(len(array.shape), place)
        dense = contiguous(transposed(array, order))
        packed: Arrays = [dense, None]
        again = _plan_call(operation, len(order) - 1, geometry_of(dense), None)
        assert again.plan is not None, "what lies row by row collapses"
        scanned = result_of(packed, 1, again.result)
        _run(again.plan, packed)
        copy_elements(scanned, transposed(result, order))
    return result


def _run(plan: _Plan, arrays: Arrays) -> None:
    arrays += [new_array(workspace, arrays) for workspace in plan.workspaces]
    for launch in plan.launches:
        launch.run(arrays, ())


def _order(rank: int, place: int) -> list[int]:
    """Return the axes with that which is scanned behind the others."""
    return [*(axis for axis in range(rank) if axis != place), place]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The launches of a scan, of operands behind which stand workspaces."""

    launches: tuple[PlannedLaunch, ...]
    workspaces: tuple[Geometry, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """The result of a checked call, and its plan: None if its axes do not collapse."""

    result: Geometry
    plan: _Plan | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of an operand, `space` and steps along them: of what is read and what is written."""

    source: Pointer
    target: Pointer
    dtype: DType
    is_source_aligned: bool
    is_target_aligned: bool
    space: IndexSpace
    length: int
    steps: tuple[int, int]


@planned
def _plan_call(operation: str, place: int, x: Geometry, out: Geometry | None) -> _Call:
    check_given(x=x)
    check_has_arithmetic(x)
    dtype = x.dtype
    wide = dtype if dtype.is_float else uint64 if dtype.kind == "uint" else int64
    result = result_geometry(out, x.shape, wide, x)
    if not prod(x.shape):
        return _Call(result, _Plan((), ()))
    order = _order(len(x.shape), place) if x.shape else []
    shape = tuple(x.shape[axis] for axis in order) or (1,)
    strides = tuple(tuple(walked.strides[axis] for axis in order) or (0,) for walked in (x, result))
    outer = tuple(walk[:-1] for walk in strides)
    space = collapsed(shape[:-1], outer, rank=2, keep_last=False)
    if space is None:
        return _Call(result, None)
    source, target = (Pointer(number, 0, shape, walk) for number, walk in enumerate(strides))
    steps = (strides[0][-1], strides[1][-1])
    rows = _Rows(source, target, dtype, x.is_aligned, result.is_aligned, space, shape[-1], steps)
    workspaces: list[Geometry] = []
    launches = tuple(_launches(rows, operation, x, workspaces))
    return _Call(result, _Plan(launches, tuple(workspaces)))


def _launches(
    rows: _Rows, operation: str, like: Geometry, workspaces: list[Geometry]
) -> Iterator[PlannedLaunch]:
    """Plan a scan of rows, and add the workspaces that it needs."""
    length, space, steps = rows.length, rows.space, rows.steps
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
        is_aligned = rows.is_source_aligned and rows.is_target_aligned
        if is_aligned and fits_fast(kernel, 3, integers):
            tiles = SCAN_LONG
    count = prod(space.sizes)
    blocks = -(-count // tiles.block_m)
    if is_outer:
        blocks = space.sizes[0] * -(-space.sizes[1] // tiles.block_m)
    part = -(-length // tiles.block_n)
    wanted = min(_PROGRAMS // blocks, MOST_PARTS)
    if operation == "sum" and wanted > 1 and length > 2 * _PART_ELEMENTS:
        elements = -(-length // (wanted * _PART_ELEMENTS)) * _PART_ELEMENTS
        part = elements // tiles.block_n
    parts = -(-length // (part * tiles.block_n))
    dtype = _carry_dtype(rows.dtype)
    carry = Pointer(_WORKSPACES + len(workspaces), 0, (count, parts), (parts, 1))
    workspaces.append(result_geometry(None, (count, parts), dtype, like))
    if parts > 1:
        yield _sum_parts(rows, carry, part * tiles.block_n, is_outer=is_outer)
        kept = collapsed((count,), ((parts,), (parts,)), rank=2, keep_last=False)
        assert kept is not None
        carried = _Rows(carry, carry, dtype, True, True, kept, parts, (1, 1))
        yield from _launches(carried, "sum", like, workspaces)
    yield PlannedLaunch(
        kernel,
        (blocks, parts, 1),
        (rows.source, rows.target, carry),
        (*space.sizes, length, part, *walked),
        {
            "OPERATION": operation,
            "BLOCK_M": tiles.block_m,
            "BLOCK_K": tiles.block_n,
            "num_warps": tiles.num_warps,
        },
    )


def _sum_parts(rows: _Rows, carry: Pointer, elements: int, *, is_outer: bool) -> PlannedLaunch:
    """Plan the sums of each part of `elements`, which go to `carry`."""
    length, space = rows.length, rows.space
    kernel = reduction_kernels.outer if is_outer else reduction_kernels.inner
    walked = (*space.strides[0], 0, rows.steps[0], 0, 0)
    integers = (*space.sizes, 1, length, 0, 1, 0, *walked)
    fast = rows.is_source_aligned and fits_fast(kernel, 3, integers)
    tiles = reduce_configuration(length, is_inner=not is_outer, fast=fast)
    blocks = -(-prod(space.sizes) // tiles.block_m)
    if is_outer:
        blocks = space.sizes[0] * -(-space.sizes[1] // tiles.block_m)
    return PlannedLaunch(
        kernel,
        (blocks, carry.sizes[1], 1),
        # With several parts nothing is written to `out`, which only has to be of the right type.
        (rows.source, rows.source, carry),
        (*space.sizes, 1, length, elements // tiles.block_n, 1, 0, *walked),
        {
            "OPERATION": "sum",
            "BLOCK_M": tiles.block_m,
            "BLOCK_K": tiles.block_n,
            "num_warps": tiles.num_warps,
        },
    )


def _carry_dtype(dtype: DType) -> DType:
    if not dtype.is_float:
        return int64
    return float64 if dtype == float64 else float32
