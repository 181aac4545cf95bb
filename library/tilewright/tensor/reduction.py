"""Sums, means, extrema, their places and variances over any axes of arrays of any strides.

The kept and the reduced axes are collapsed to two of each, which covers every reduction of
contiguous arrays; what does not collapse is copied first, into the order that does. Sums and maxima
of the last axis of many rows go to the kernels of `tensor.rows`, which hold whole rows.
"""

from __future__ import annotations

from math import prod
from typing import Literal

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
    as_flag,
    as_integer,
    check_has_arithmetic,
    dtype_of,
    fits_fast,
    new_array,
    strides_of,
)
from tilewright.tensor.axes import Axes, overlaps, several_axes, transposed, viewed
from tilewright.tensor.configurations import MOST_PARTS, reduce_configuration
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_given,
    geometry_of,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.geometry import new_array as new_operand
from tilewright.tensor.launches import PlannedLaunch, Pointer, planned
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

# What the kernels compute for an operation, and the flag that they take; what it is called.
_KERNELS: dict[str, tuple[str, int]] = {
    "sum": ("sum", 0),
    "mean": ("mean", 0),
    "maximum": ("max", 0),
    "minimum": ("max", 1),
    "argmax": ("arg", 0),
    "argmin": ("arg", 1),
    "var": ("var", 0),
    "std": ("var", 1),
}
_OF_ELEMENTS = ("maximum", "minimum", "argmax", "argmin")  # of which there must be one


def sum(x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None) -> Array:
    """Return the sum over one axis, several or all; nothing sums to 0.

    Narrow floats are added in f32 and rounded once; bools and integers in i64, unsigned ones in
    u64, which is the dtype of the result. Equal inputs give equal bits.
    """
    return _reduce("sum", x, axis, keepdim=keepdim, out=out)


def mean(
    x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None
) -> Array:
    """Return the mean over one axis, several or all; NaN of nothing, f32 of integers and bools."""
    return _reduce("mean", x, axis, keepdim=keepdim, out=out)


def max(x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None) -> Array:
    """Return the maximum over one axis, several or all; NaN if any element is NaN.

    Raises ArgumentError where there is no element.
    """
    return _reduce("maximum", x, axis, keepdim=keepdim, out=out)


def min(x: object, axis: Axes = None, *, keepdim: bool = False, out: object | None = None) -> Array:
    """Return the minimum over one axis, several or all; NaN if any element is NaN.

    Raises ArgumentError where there is no element.
    """
    return _reduce("minimum", x, axis, keepdim=keepdim, out=out)


def argmax(
    x: object, axis: int | None = None, *, keepdim: bool = False, out: object | None = None
) -> Array:
    """Return the i64 index of the maximum along an axis, or in row-major order of all elements.

    Of equal elements the first; with a NaN, the first NaN. Raises ArgumentError where there is no
    element.
    """
    return _reduce("argmax", x, axis, keepdim=keepdim, out=out)


def argmin(
    x: object, axis: int | None = None, *, keepdim: bool = False, out: object | None = None
) -> Array:
    """Return the index of the minimum as `argmax` does that of the maximum."""
    return _reduce("argmin", x, axis, keepdim=keepdim, out=out)


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
    number = _correction(correction)
    return _reduce("var", x, axis, correction=number, keepdim=keepdim, out=out)


def std(
    x: object,
    axis: Axes = None,
    *,
    correction: int = 1,
    keepdim: bool = False,
    out: object | None = None,
) -> Array:
    """Return the root of `var`, rounded once."""
    number = _correction(correction)
    return _reduce("std", x, axis, correction=number, keepdim=keepdim, out=out)


def _correction(value: object) -> int:
    number = as_integer(value, name="correction")
    if abs(number) > INT31_MAX:
        msg = f"correction is {number}; it lies between {-INT31_MAX} and {INT31_MAX}"
        raise ArgumentValueError(msg)
    return number


def _reduce(
    name: str,
    x: object,
    axis: Axes,
    *,
    correction: int = 0,
    keepdim: bool,
    out: object | None,
) -> Array:
    arrays, geometries = operands(x=x, out=out)
    array = arrays[0]
    if axis is not None and type(axis) is not int:
        axis = several_axes(axis, 0 if array is None else len(array.shape))
    is_kept = as_flag(keepdim, name="keepdim")
    call = _plan_call(name, axis, is_kept, correction, *geometries)
    result = result_of(arrays, 1, call.result)
    assert array is not None  # else there was no plan
    if not call.count:
        return result
    if out is not None and overlaps(result, array):
        dense = _reduce(name, array, axis, correction=correction, keepdim=keepdim, out=None)
        copy_elements(dense, result)
    elif call.plan.otherwise is None:
        _run(call.plan, arrays)
    else:
        _reduce_into(name, array, _without_kept(result, call), call.axes, correction)
    return result


@dataclass(frozen=True, slots=True)
class _Plan:
    """The launches of a reduction, of operands behind which stand workspaces.

    Or why there are none: its axes do not collapse, so that they must be copied first, or rows
    should be packed, which lie where wide tiles do not take them.
    """

    launches: tuple[PlannedLaunch, ...]
    workspaces: tuple[Geometry, ...]
    otherwise: Literal["copied", "packed"] | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """A checked call: its axes in rising order, its result, how many elements that has.

    `kept` is the geometry of the result without the axes that were reduced.
    """

    axes: tuple[int, ...]
    result: Geometry
    kept: Geometry
    count: int
    plan: _Plan


@dataclass(frozen=True, slots=True)
class _Walk:
    """Kept and reduced axes as kernels see them: two of each, with strides of `x` and `out`."""

    kept: IndexSpace
    reduced: IndexSpace
    is_inner: bool


def _run(plan: _Plan, arrays: Arrays) -> None:
    arrays += [new_operand(workspace, arrays) for workspace in plan.workspaces]
    for launch in plan.launches:
        launch.run(arrays, ())


def _reduce_into(
    name: str, array: Array, result: Array, axes: tuple[int, ...], correction: int
) -> None:
    """Write the reduction to a result without the reduced axes, copying first what must be."""
    plan = _plan(name, axes, correction, geometry_of(array), geometry_of(result))
    if plan.otherwise is None:
        _run(plan, [array, result])
    elif plan.otherwise == "packed":
        _reduce_packed(name, array, result, axes, correction)
    else:
        order = [place for place in range(len(array.shape)) if place not in axes] + list(axes)
        dense = contiguous(transposed(array, order))
        places = tuple(range(len(order) - len(axes), len(order)))
        again = _plan(name, places, correction, geometry_of(dense), geometry_of(result))
        target = result
        if again.otherwise == "copied":  # it is the result that does not collapse
            target = new_array(result.shape, dtype_of(result), result)
        _reduce_into(name, dense, target, places, correction)
        if target is not result:
            contiguous(target, out=result)


def _reduce_packed(
    name: str, array: Array, result: Array, axes: tuple[int, ...], correction: int
) -> None:
    """Reduce long rows that begin aligned, a copy of those that do not, to a result that does."""
    walk = _walk(array.shape, strides_of(array), strides_of(result), axes, name)
    assert walk is not None
    kept, reduced = walk.kept, walk.reduced
    rows, columns = prod(kept.sizes), prod(reduced.sizes)
    pitch = -(-columns // DIVISOR) * DIVISOR
    packed = new_array((rows * pitch,), dtype_of(array), array)
    sums = new_array((rows,), dtype_of(result), array)
    shape = (*kept.sizes, *reduced.sizes)
    strides = (kept.sizes[1] * pitch, pitch, reduced.sizes[1], 1)
    source = viewed(array, shape, (*kept.strides[0], *reduced.strides[0]))
    copy_elements(source, viewed(packed, shape, strides))
    matrix = viewed(packed, (rows, columns), (pitch, 1))
    plan = _plan(name, (1,), correction, geometry_of(matrix), geometry_of(sums))
    assert plan.otherwise is None, "packed rows are aligned"
    _run(plan, [matrix, sums])
    copy_elements(
        viewed(sums, kept.sizes, (kept.sizes[1], 1)), viewed(result, kept.sizes, kept.strides[1])
    )


@planned
def _plan_call(
    name: str, axis: Axes, keepdim: bool, correction: int, x: Geometry, out: Geometry | None
) -> _Call:
    """Check a call, and plan it if the result has elements."""
    check_given(x=x)
    check_has_arithmetic(x)
    if name in ("var", "std") and not x.dtype.is_float:
        msg = f"{name} takes floating-point numbers, got {x.dtype}; convert them first"
        raise ArgumentError(msg)
    axes = several_axes(axis, len(x.shape))
    if name in _OF_ELEMENTS and any(x.shape[each] == 0 for each in axes):
        msg = f"{name} over an empty axis: x has shape {x.shape}; there is none of no elements"
        raise ArgumentError(msg)
    shape = tuple(
        1 if place in axes else extent
        for place, extent in enumerate(x.shape)
        if keepdim or place not in axes
    )
    result = result_geometry(out, shape, _result_dtype(name, x.dtype), x)
    kept = result
    if keepdim:
        places = [place for place in range(len(shape)) if place not in axes]
        kept = result._replace(
            shape=tuple(shape[place] for place in places),
            strides=tuple(result.strides[place] for place in places),
        )
    count = prod(shape)
    plan = _plan(name, axes, correction, x, kept) if count else _Plan((), ())
    return _Call(axes, result, kept, count, plan)


def _result_dtype(name: str, dtype: DType) -> DType:
    if name in ("argmax", "argmin"):
        return int64
    if dtype.is_float or name in _OF_ELEMENTS:
        return dtype
    if name == "mean":
        return float32
    return uint64 if dtype.kind == "uint" else int64


def _without_kept(result: Array, call: _Call) -> Array:
    """Return the result without the axes of extent 1 that were reduced."""
    return viewed(result, call.kept.shape, call.kept.strides)


@planned
def _plan(name: str, axes: tuple[int, ...], correction: int, x: Geometry, out: Geometry) -> _Plan:
    """Plan a reduction to a result without the reduced axes."""
    operation, flag = _KERNELS[name]
    count = prod(x.shape[each] for each in axes)
    if axes == (len(x.shape) - 1,) and name in ("sum", "maximum"):
        many = prod(out.shape) >= _MANY_ROWS
        if many and out.dtype in _FLOATS and x.strides[-1] == 1 and count > 0:
            of_rows = row_operations.plan_sum if name == "sum" else row_operations.plan_max
            return _Plan(of_rows(x, out).launches, ())
    walk = _walk(x.shape, x.strides, out.strides, axes, name)
    if walk is None:
        return _Plan((), (), "copied")
    divisor = count if name == "mean" else _positive(count - correction)
    kind = "sum" if name == "mean" and x.dtype.is_float else operation
    return _plan_walk(walk, x, out, kind, divisor=1 if name == "sum" else divisor, flag=flag)


def _positive(number: int) -> int:
    return number if number > 0 else 0


def _walk(
    shape: Shape, strides: Strides, out_strides: Strides, axes: tuple[int, ...], name: str
) -> _Walk | None:
    """Return the axes collapsed, None if they do not collapse to two and two.

    Axes are sorted by stride, the reduced ones only where their order does not matter.
    """
    in_order = name in ("argmax", "argmin")
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
    return _Walk(kept_space, reduced_space, is_inner)


def _plan_walk(
    walk: _Walk, x: Geometry, out: Geometry, operation: str, *, divisor: int, flag: int
) -> _Plan:
    kept, reduced = walk.kept, walk.reduced
    kernel = kernels.inner if walk.is_inner else kernels.outer
    walked = (*kept.strides[0], *reduced.strides[0], *kept.strides[1])
    # The form does not depend on the workspace, which begins aligned, nor on how axes are split.
    integers = (*kept.sizes, *reduced.sizes, 0, divisor, flag, *walked)
    fast = x.is_aligned and out.is_aligned and fits_fast(kernel, 3, integers)
    tiles = reduce_configuration(reduced.sizes[1], is_inner=walk.is_inner, fast=fast)
    results = prod(kept.sizes)
    is_worth_packing = results <= _FEW_ROWS and prod(reduced.sizes) >= _LONG_ROW
    if walk.is_inner and is_worth_packing and not (fast or _is_packed(walk, x, out)):
        return _Plan((), (), "packed")
    blocks = -(-results // tiles.block_m)
    if not walk.is_inner:
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
    size = planes * results * parts if parts > 1 else 1
    workspace = result_geometry(None, (size,), _workspace_dtype(x.dtype, operation), x)
    source, target = Pointer(0, 0, x.shape, x.strides), Pointer(1, 0, out.shape, out.strides)
    partial = Pointer(2, 0, (size,), (1,))
    launches = [
        PlannedLaunch(
            kernel,
            (blocks, parts, 1),
            (source, target, partial),
            (*kept.sizes, *reduced.sizes, part, divisor, flag, *walked),
            {
                "OPERATION": operation,
                "BLOCK_M": tiles.block_m,
                "BLOCK_K": tiles.block_n,
                "num_warps": tiles.num_warps,
            },
        )
    ]
    if parts > 1:
        launches.append(
            PlannedLaunch(
                kernels.combine,
                (results, 1, 1),
                (partial, target),
                (*kept.sizes, parts, prod(reduced.sizes), divisor, flag, *kept.strides[1]),
                {"OPERATION": operation, "BLOCK_P": MOST_PARTS, "num_warps": 1},
            )
        )
    return _Plan(tuple(launches), (workspace,))


def _is_packed(walk: _Walk, x: Geometry, out: Geometry) -> bool:
    """Return whether rows are contiguous and begin aligned, as a copy of them would."""
    pitch, step = walk.kept.strides[0][1], walk.reduced.strides[0][1]
    is_aligned = x.is_aligned and out.is_aligned and not pitch % DIVISOR
    return is_aligned and step == 1 and walk.reduced.sizes[0] == 1


def _workspace_dtype(dtype: DType, operation: str) -> DType:
    """Return the type that elements are combined in; places of floats are kept as f64, exactly."""
    if not dtype.is_float:
        return float64 if operation == "mean" else int64
    return float64 if operation == "arg" or dtype == float64 else float32
