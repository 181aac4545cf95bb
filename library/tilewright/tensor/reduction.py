"""Sums, means, extrema, their places and variances over any axes of arrays of any strides.

The kept and the reduced axes are collapsed to two of each, which covers every reduction of
contiguous arrays; what does not collapse is copied first, into the order that does. Sums and maxima
of the last axis of many rows go to the kernels of `tensor.rows`, which hold whole rows.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int64,
    uint64,
)
from tilewright.abi.signature import DIVISOR, INT31_MAX
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.kernels import reduction as kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor import rows as row_operations
from tilewright.tensor.arrays import (
    Array,
    as_array,
    as_flag,
    as_integer,
    check_has_arithmetic,
    dtype_of,
    is_fast,
    output,
    strides_of,
)
from tilewright.tensor.axes import Axes, new_array, overlaps, several_axes, transposed, viewed
from tilewright.tensor.configurations import MOST_PARTS, reduce_configuration
from tilewright.tensor.movement import contiguous, copy_elements
from tilewright.tensor.strides import IndexSpace, Shape, Strides, collapse, pad

# Programs that fill a GPU of today: with fewer results the reduced axes are split. It is a number
# and not the device's, so that every device combines in the same order.
_PROGRAMS = 1024
# Elements that are worth a program of their own.
_PART_ELEMENTS = 16384
# From so many rows on, the kernels that hold whole rows fill a device.
_MANY_ROWS = 256
# Of so few rows, and so long, a copy that the wide tiles of the fast form take is worth its time:
# other tiles hold rows of which there are not enough.
_FEW_ROWS, _LONG_ROW = 8, 16384
# With fewer columns than this, tiles lie along the reduced axis whatever is contiguous.
_FEW_COLUMNS = 8
_FLOATS = (float16, bfloat16, float32)


def sum(x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None) -> Array:
    """Return the sum over one axis, several or all; nothing sums to 0.

    Narrow floats are added in f32 and rounded once; bools and integers in i64, unsigned ones in
    u64, which is the dtype of the result. Equal inputs give equal bits.
    """
    array = _checked(x)
    dtype = dtype_of(array)
    wide = dtype if dtype.is_float else uint64 if dtype.kind == "uint" else int64
    return _reduce(array, axis, "sum", wide, keepdim=keepdim, out=out)


def mean(
    x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None
) -> Array:
    """Return the mean over one axis, several or all; NaN of nothing, f32 of integers and bools."""
    array = _checked(x)
    dtype = dtype_of(array)
    wide = dtype if dtype.is_float else float32
    return _reduce(array, axis, "mean", wide, keepdim=keepdim, out=out)


def max(x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None) -> Array:
    """Return the maximum over one axis, several or all; NaN if any element is NaN.

    Raises ArgumentError where there is no element.
    """
    array = _with_elements(_checked(x), axis, "maximum")
    return _reduce(array, axis, "max", dtype_of(array), keepdim=keepdim, out=out)


def min(x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None) -> Array:
    """Return the minimum over one axis, several or all; NaN if any element is NaN.

    Raises ArgumentError where there is no element.
    """
    array = _with_elements(_checked(x), axis, "minimum")
    return _reduce(array, axis, "max", dtype_of(array), flag=1, keepdim=keepdim, out=out)


def argmax(
    x: object, axis: int | None = None, *, keepdim: bool = False, out: object | None = None
) -> Array:
    """Return the i64 index of the maximum along an axis, or in row-major order of all elements.

    Of equal elements the first; with a NaN, the first NaN. Raises ArgumentError where there is no
    element.
    """
    array = _with_elements(_checked(x), axis, "argmax")
    return _reduce(array, axis, "arg", int64, keepdim=keepdim, out=out)


def argmin(
    x: object, axis: int | None = None, *, keepdim: bool = False, out: object | None = None
) -> Array:
    """Return the index of the minimum as `argmax` does that of the maximum."""
    array = _with_elements(_checked(x), axis, "argmin")
    return _reduce(array, axis, "arg", int64, flag=1, keepdim=keepdim, out=out)


def var(
    x: object,
    axis: Axes = None,
    *,
    correction: int = 1,
    keepdim: bool = False,
    out: object | None = None,
) -> Array:
    """Return `sum((x - mean) ** 2) / max(count - correction, 0)` over one axis, several or all.

    `correction` is torch's and the array API's word for NumPy's `ddof`; the default 1 is torch's.
    Differences are taken before they are squared, so that a large mean costs no digits.
    """
    array, number = _floats(x, "var"), _correction(correction)
    return _reduce(array, axis, "var", dtype_of(array), correction=number, keepdim=keepdim,
                   out=out)  # fmt: skip


def std(
    x: object,
    axis: Axes = None,
    *,
    correction: int = 1,
    keepdim: bool = False,
    out: object | None = None,
) -> Array:
    """Return the root of `var`, rounded once."""
    array, number = _floats(x, "std"), _correction(correction)
    return _reduce(array, axis, "var", dtype_of(array), flag=1, correction=number,
                   keepdim=keepdim, out=out)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Kept and reduced axes as kernels see them: two of each, with strides of `x` and `out`."""

    kept: IndexSpace
    reduced: IndexSpace
    is_inner: bool


def _checked(x: object) -> Array:
    array = as_array(x, name="x")
    check_has_arithmetic(array)
    return array


def _floats(x: object, what: str) -> Array:
    array = _checked(x)
    if not dtype_of(array).is_float:
        msg = f"{what} takes floating-point numbers, got {dtype_of(array)}; convert them first"
        raise ArgumentError(msg)
    return array


def _correction(value: object) -> int:
    number = as_integer(value, name="correction")
    if abs(number) > INT31_MAX:
        msg = f"correction is {number}; it lies between {-INT31_MAX} and {INT31_MAX}"
        raise ArgumentValueError(msg)
    return number


def _with_elements(array: Array, axis: Axes, what: str) -> Array:
    axes = several_axes(axis, len(array.shape))
    if any(array.shape[each] == 0 for each in axes):
        msg = f"{what} over an empty axis: x has shape {array.shape}; there is none of no elements"
        raise ArgumentError(msg)
    return array


def _reduce(
    array: Array,
    axis: Axes,
    operation: str,
    dtype: DType,
    *,
    flag: int = 0,
    correction: int = 0,
    keepdim: bool,
    out: object | None,
) -> Array:
    axes = several_axes(axis, len(array.shape))
    keepdim = as_flag(keepdim, name="keepdim")
    shape = tuple(
        1 if place in axes else extent
        for place, extent in enumerate(array.shape)
        if keepdim or place not in axes
    )
    result = output(out, shape, array, dtype)
    if not prod(shape):
        return result
    if out is not None and overlaps(result, array):
        copy_elements(
            _reduce(array, axis, operation, dtype, flag=flag, correction=correction,
                    keepdim=keepdim, out=None), result,
        )  # fmt: skip
        return result
    count = prod(array.shape[each] for each in axes)
    if axes == (len(array.shape) - 1,) and operation in ("sum", "max") and not flag:
        many = prod(shape) >= _MANY_ROWS
        if many and dtype in _FLOATS and strides_of(array)[-1] == 1 and count > 0:
            whole_rows = row_operations.sum if operation == "sum" else row_operations.max
            whole_rows(array, out=_without_kept(result, axes, keepdim=keepdim))
            return result
    kept_result = _without_kept(result, axes, keepdim=keepdim)
    geometry = _geometry(
        array.shape, strides_of(array), strides_of(kept_result), axes, operation == "arg"
    )
    if geometry is None:
        order = [place for place in range(len(array.shape)) if place not in axes] + list(axes)
        array = contiguous(transposed(array, order))
        axes = tuple(range(len(order) - len(axes), len(order)))
        geometry = _geometry(
            array.shape, strides_of(array), strides_of(kept_result), axes, operation == "arg"
        )
        if geometry is None:  # the result does not collapse
            dense = _reduce(array, axes, operation, dtype, flag=flag, correction=correction,
                            keepdim=False, out=None)  # fmt: skip
            contiguous(dense, out=kept_result)
            return result
    divisor = count if operation == "mean" else _positive(count - correction)
    kind = "sum" if operation == "mean" and dtype_of(array).is_float else operation
    _launch(
        geometry,
        (array, kept_result),
        kind,
        divisor=1 if operation == "sum" else divisor,
        flag=flag,
    )
    return result


def _positive(number: int) -> int:
    return number if number > 0 else 0


def _without_kept(result: Array, axes: tuple[int, ...], *, keepdim: bool) -> Array:
    """Return the result without the axes of extent 1 that were reduced."""
    if not keepdim or not axes:
        return result
    places = [place for place in range(len(result.shape)) if place not in axes]
    strides = strides_of(result)
    return viewed(
        result,
        tuple(result.shape[place] for place in places),
        tuple(strides[place] for place in places),
    )


@lru_cache(maxsize=4096)
def _geometry(
    shape: Shape, strides: Strides, out_strides: Strides, axes: tuple[int, ...], in_order: bool
) -> _Geometry | None:
    """Return the axes collapsed, None if they do not collapse to two and two.

    Axes are sorted by stride, the reduced ones only where their order does not matter.
    """
    kept = [place for place in range(len(shape)) if place not in axes]
    walks = [
        (shape[place], strides[place], out) for place, out in zip(kept, out_strides, strict=True)
    ]
    walks.sort(key=lambda walk: -abs(walk[1]))
    kept_space = collapse(
        IndexSpace(
            tuple(walk[0] for walk in walks),
            (tuple(walk[1] for walk in walks), tuple(walk[2] for walk in walks)),
        )
    )
    reduced = list(axes) if in_order else sorted(axes, key=lambda place: -abs(strides[place]))
    sizes = tuple(shape[place] for place in reduced)
    if 0 in sizes:
        sizes, reduced = (0,), reduced[:1]
    reduced_space = collapse(IndexSpace(sizes, (tuple(strides[place] for place in reduced),)))
    if len(kept_space.sizes) > 2 or len(reduced_space.sizes) > 2:
        return None
    kept_space, reduced_space = pad(kept_space, 2), pad(reduced_space, 2)
    inner, outer = reduced_space.strides[0][1], kept_space.strides[0][1]
    is_inner = (
        outer == 0
        or kept_space.sizes[1] <= _FEW_COLUMNS
        or (reduced_space.sizes[1] > 1 and 0 < abs(inner) <= abs(outer))
    )
    return _Geometry(kept_space, reduced_space, is_inner)


def _launch_packed(
    geometry: _Geometry, arrays: tuple[Array, Array], operation: str, *, divisor: int, flag: int
) -> None:
    """Reduce long rows that begin aligned, a copy of those that do not, to a result that does."""
    kept, reduced = geometry.kept, geometry.reduced
    x, out = arrays
    rows, columns = prod(kept.sizes), prod(reduced.sizes)
    pitch = -(-columns // DIVISOR) * DIVISOR
    packed = new_array((rows * pitch,), dtype_of(x), x)
    result = new_array((rows,), dtype_of(out), x)
    shape = (*kept.sizes, *reduced.sizes)
    strides = (kept.sizes[1] * pitch, pitch, reduced.sizes[1], 1)
    source = viewed(x, shape, (*kept.strides[0], *reduced.strides[0]))
    copy_elements(source, viewed(packed, shape, strides))
    step = pitch if rows > 1 else 0
    aligned = _Geometry(
        IndexSpace((1, rows), ((0, step), (0, 1))), IndexSpace((1, columns), ((0, 1),)), True
    )
    _launch(aligned, (packed, result), operation, divisor=divisor, flag=flag, is_packed=True)
    copy_elements(
        viewed(result, kept.sizes, (kept.sizes[1], 1)), viewed(out, kept.sizes, kept.strides[1])
    )


def _launch(
    geometry: _Geometry,
    arrays: tuple[Array, Array],
    operation: str,
    *,
    divisor: int,
    flag: int,
    is_packed: bool = False,
) -> None:
    kept, reduced = geometry.kept, geometry.reduced
    x, out = arrays
    kernel = kernels.inner if geometry.is_inner else kernels.outer
    walked = (*kept.strides[0], *reduced.strides[0], *kept.strides[1])
    # The form does not depend on the workspace, which begins aligned, nor on how axes are split.
    fast = is_fast(kernel, (x, out, out), (*kept.sizes, *reduced.sizes, 0, divisor, flag, *walked))
    tiles = reduce_configuration(reduced.sizes[1], is_inner=geometry.is_inner, fast=fast)
    results = prod(kept.sizes)
    is_worth_packing = results <= _FEW_ROWS and prod(reduced.sizes) >= _LONG_ROW
    if geometry.is_inner and is_worth_packing and not (fast or is_packed):
        _launch_packed(geometry, arrays, operation, divisor=divisor, flag=flag)
        return
    blocks = -(-results // tiles.block_m)
    if not geometry.is_inner:
        blocks = kept.sizes[0] * -(-kept.sizes[1] // tiles.block_m)
    chunks = reduced.sizes[0] * -(-reduced.sizes[1] // tiles.block_n)
    wanted = _PROGRAMS // blocks
    if wanted > MOST_PARTS:
        wanted = MOST_PARTS
    least = _PART_ELEMENTS // (tiles.block_m * tiles.block_n)
    part = -(-chunks // wanted) if wanted > 1 else chunks
    part = least if part < least else part
    parts = -(-chunks // part) or 1
    planes = {"arg": 2, "var": 3}.get(operation, 1)
    dtype = _workspace_dtype(dtype_of(x), operation)
    workspace = new_array((planes * results * parts if parts > 1 else 1,), dtype, x)
    kernel[(blocks, parts)](
        x, out, workspace, *kept.sizes, *reduced.sizes, part, divisor, flag, *walked,
        OPERATION=operation, BLOCK_M=tiles.block_m, BLOCK_K=tiles.block_n,
        num_warps=tiles.num_warps,
    )  # fmt: skip
    if parts > 1:
        kernels.combine[(results,)](
            workspace, out, *kept.sizes, parts, prod(reduced.sizes), divisor, flag,
            *kept.strides[1], OPERATION=operation, BLOCK_P=MOST_PARTS, num_warps=1,
        )  # fmt: skip


def _workspace_dtype(dtype: DType, operation: str) -> DType:
    """Return the type that elements are combined in; places of floats are kept as f64, exactly."""
    if not dtype.is_float:
        return float64 if operation == "mean" else int64
    return float64 if operation == "arg" or dtype == float64 else float32
