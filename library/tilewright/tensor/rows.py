"""Operations along the last axis: softmax, norms, sum, maximum; any width and strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import float64
from tilewright.abi.signature import DIVISOR, INT31_MAX
from tilewright.errors import ArgumentError
from tilewright.kernels import norm, reduce
from tilewright.kernels import softmax as softmax_kernels
from tilewright.language.kernel import Kernel
from tilewright.tensor.arrays import (
    Array,
    as_number,
    check_computed_in_f32,
    check_is_float,
    dtype_of,
)
from tilewright.tensor.configurations import (
    LONG_ROWS,
    LONG_ROWS_UNALIGNED,
    ROWS,
    ROWS_LOOPED,
    ROWS_LOOPED_64,
    TILES,
    Configuration,
    rows_configuration,
)
from tilewright.tensor.geometry import (
    Geometry,
    check_given,
    check_one_dtype,
    operands,
    result_geometry,
)
from tilewright.tensor.launches import (
    Piece,
    PlannedLaunch,
    Pointer,
    is_aligned,
    pieces,
    planned,
    tile_options,
)
from tilewright.tensor.plans import Plan
from tilewright.tensor.products import processors
from tilewright.tensor.strides import IndexSpace

LongRows = Callable[[Piece], PlannedLaunch | None]
"""Plans a kernel of long contiguous rows over an input and an output, if one fits."""

# The operands of a norm by number.
_X, _WEIGHT, _BIAS, _OUT = range(4)

# A multiple of the rows that can begin differently within 16 bytes.
_PROGRAMS_STEP = 8
_WARPS_A_MULTIPROCESSOR = 16


def softmax(x: object, *, out: object | None = None) -> Array:
    """Return the softmax over the last axis of `x` `[..., columns]`, see `reference.softmax`."""
    arrays, geometries = operands(x=x, out=out)
    return _plan_softmax(*geometries).run(arrays)


def layer_norm(
    x: object,
    weight: object | None = None,
    bias: object | None = None,
    *,
    eps: float = 1e-5,
    out: object | None = None,
) -> Array:
    """Return `(x - mean) / sqrt(var + eps) * weight + bias`, statistics over the last axis of `x`.

    `x` is `[..., columns]`, `weight` and `bias` `[columns]`, contiguous, of the dtype of `x`.
    """
    return _norm("layer", x, weight, bias, eps, out)


def rms_norm(
    x: object, weight: object | None = None, *, eps: float = 1e-5, out: object | None = None
) -> Array:
    """Return `x / sqrt(mean(x ** 2) + eps) * weight`, the mean over the last axis of `x`.

    `x` is `[..., columns]`, `weight` `[columns]`, contiguous, of the dtype of `x`. See
    `reference.norm.rms_norm`.
    """
    return _norm("rms", x, weight, None, eps, out)


def l2_norm(x: object, *, eps: float = 1e-6, out: object | None = None) -> Array:
    """Return `x / sqrt(sum(x ** 2) + eps)`, the sum over the last axis of `x` `[..., columns]`.

    A row of zeros gives zeros. See `reference.norm.l2_norm`.
    """
    return _norm("l2", x, None, None, eps, out)


def sum(x: object, *, out: object | None = None) -> Array:  # the operation's name
    """Return the sum over the last axis of `x` `[..., columns]`; an empty row gives 0."""
    arrays, geometries = operands(x=x, out=out)
    return plan_sum(*geometries).run(arrays)


def max(x: object, *, out: object | None = None) -> Array:  # the operation's name
    """Return the maximum over the last axis of `x` `[..., columns]`; NaN if any element is NaN.

    Raises ArgumentError for an empty last axis, which has no maximum.
    """
    arrays, geometries = operands(x=x, out=out)
    return plan_max(*geometries).run(arrays)


def check_rows(x: Geometry, *, name: str = "x") -> None:
    """Raise ArgumentError unless an array has floats along a last axis."""
    check_given(**{name: x})
    check_is_float(x)
    if not x.shape:
        msg = f"{name} has no axes; an operation along the last axis needs at least one"
        raise ArgumentError(msg)


def check_parameters(x: Geometry, parameters: Mapping[str, Geometry | None]) -> None:
    """Raise ArgumentError unless those weights of the columns of an array that are given fit it."""
    columns = x.shape[-1]
    for name, parameter in parameters.items():
        if parameter is None:
            continue
        check_one_dtype({"x": x, name: parameter})
        if parameter.shape != (columns,) or (parameter.strides != (1,) and columns > 1):
            msg = (
                f"{name} must be contiguous of shape ({columns},), got shape {parameter.shape} "
                f"with strides {parameter.strides}"
            )
            raise ArgumentError(msg)


def number_for(array: Array | Geometry, number: float) -> float:
    """Return a number as a kernel takes it that computes in the working type of an array."""
    return np.float64(number) if dtype_of(array) == float64 else number


def share_of(kind: str, x: Geometry) -> float:
    """Return what a norm of that kind, "layer", "rms" or "l2", multiplies sums of a row with."""
    columns = x.shape[-1]
    return 1.0 if kind == "l2" else 1 / columns if columns else 0.0


def _norm(
    kind: str, x: object, weight: object | None, bias: object | None, eps: float, out: object | None
) -> Array:
    arrays, geometries = operands(x=x, weight=weight, bias=bias, out=out)
    plan = _plan_norm(kind, *geometries)
    return plan.run(arrays, (number_for(geometries[_X], as_number(eps, name="eps")),))


@planned
def _plan_softmax(x: Geometry, out: Geometry | None) -> Plan:
    check_rows(x)
    result = result_geometry(out, x.shape, x.dtype, x)
    launches = _launches(
        softmax_kernels.softmax,
        softmax_kernels.softmax_looped,
        x,
        result.strides,
        long_rows=_softmax_of_long_rows,
        table=TILES,
    )
    return Plan(tuple(launches), result, 1, partial(_plan_softmax, x, None), in_place=1)


@planned
def plan_sum(x: Geometry, out: Geometry | None) -> Plan:
    """Plan the sum of each row."""
    apart = partial(plan_sum, x, None)
    return _plan_reduction(reduce.sum_rows, reduce.sum_rows_looped, x, out, apart)


@planned
def plan_max(x: Geometry, out: Geometry | None) -> Plan:
    """Plan the maximum of each row; raises ArgumentError for empty rows."""
    check_given(x=x)
    if x.shape and x.shape[-1] == 0:
        msg = f"maximum over an empty axis: x has shape {x.shape}"
        raise ArgumentError(msg)
    apart = partial(plan_max, x, None)
    return _plan_reduction(reduce.max_rows, reduce.max_rows_looped, x, out, apart)


def _plan_reduction(
    kernel: Kernel,
    looped: Kernel,
    x: Geometry,
    out: Geometry | None,
    apart: Callable[[], Plan],
) -> Plan:
    check_rows(x)
    check_computed_in_f32(x)
    result = result_geometry(out, x.shape[:-1], x.dtype, x)
    # Seen from the index space of the input, the result is repeated along the last axis.
    launches = _launches(kernel, looped, x, (*result.strides, 0), walked=2)
    return Plan(tuple(launches), result, 1, apart)


@planned
def _plan_norm(
    kind: str,
    x: Geometry,
    weight: Geometry | None,
    bias: Geometry | None,
    out: Geometry | None,
) -> Plan:
    check_rows(x)
    result = result_geometry(out, x.shape, x.dtype, x)
    check_parameters(x, {"weight": weight, "bias": bias})
    columns = x.shape[-1]
    # What is absent is never read; the result's address keeps the pointer valid.
    between = [
        Pointer(_OUT if parameter is None else number, 0, (columns,), (1,))
        for number, parameter in ((_WEIGHT, weight), (_BIAS, bias))
    ]
    after = (
        int(weight is not None),
        int(bias is not None),
        int(kind == "layer"),
        number_for(x, share_of(kind, x)),
    )
    given = tuple(array for array in (x, weight, bias, result) if array is not None)
    launches = _launches(
        norm.layer_norm,
        norm.layer_norm_looped,
        x,
        result.strides,
        between=tuple(between),
        after=after,
        out=_OUT,
        long_rows=partial(_norm_of_long_rows, given, tuple(between), after),
        table=TILES,
    )
    apart = partial(_plan_norm, kind, x, weight, bias, None)
    return Plan(tuple(launches), result, _OUT, apart, in_place=1 << _X)


def _softmax_of_long_rows(piece: Piece) -> PlannedLaunch | None:
    space = piece.space
    chosen = rows_configuration(space.sizes[2], LONG_ROWS)
    if chosen is None:
        return None
    return PlannedLaunch(
        softmax_kernels.softmax_row,
        (space.sizes[0] * space.sizes[1], 1, 1),
        piece.pointers(0, 1),
        (*space.sizes, *_row_strides(space)),
        tile_options(chosen, has_rows=False),
    )


def _norm_of_long_rows(
    given: tuple[Geometry, ...],
    between: tuple[Pointer, ...],
    after: tuple[int | float, ...],
    piece: Piece,
) -> PlannedLaunch | None:
    space, strides = piece.space, _row_strides(piece.space)
    x, *parameters, result = given
    # As the fast specialization has it, which alone is bundled for some of these.
    is_fast = (
        is_aligned((x, result), piece)
        and all(parameter.is_aligned for parameter in parameters)
        and not any(stride % DIVISOR for stride in strides)
        and all(abs(size) <= INT31_MAX for size in (*space.sizes, *strides))
    )
    chosen = rows_configuration(space.sizes[2], LONG_ROWS if is_fast else LONG_ROWS_UNALIGNED)
    if chosen is None:
        return None
    rows = space.sizes[0] * space.sizes[1]
    kernel, programs = norm.layer_norm_row, rows
    if not is_fast and x.dtype.bits == 16:  # of 32 bits a word is an element anyway
        kernel, programs = norm.layer_norm_rows, _resident_programs(x, rows, chosen.num_warps)
    start, end = piece.pointers(_X, _OUT)
    return PlannedLaunch(
        kernel,
        (programs, 1, 1),
        (start, *between, end),
        (*space.sizes, *strides, *after),
        tile_options(chosen, has_rows=False),
    )


def _resident_programs(x: Geometry, rows: int, num_warps: int) -> int:
    """Return how many programs walk the rows: as many as fit on the device at once."""
    needed = -(-rows // _PROGRAMS_STEP) * _PROGRAMS_STEP
    if x.device is None:
        return min(needed, _PROGRAMS_STEP)
    at_once = processors(x.device) * _WARPS_A_MULTIPROCESSOR // num_warps
    return min(needed, at_once // _PROGRAMS_STEP * _PROGRAMS_STEP)


def _row_strides(space: IndexSpace) -> tuple[int, ...]:
    return (*space.strides[0][:2], *space.strides[1][:2])


def _launches(
    kernel: Kernel,
    looped: Kernel,
    x: Geometry,
    out_strides: tuple[int, ...],
    *,
    between: tuple[Pointer, ...] = (),
    after: tuple[Any, ...] = (),
    out: int = 1,
    walked: int = 3,
    long_rows: LongRows | None = None,
    table: tuple[Configuration, ...] = ROWS,
) -> Iterator[PlannedLaunch]:
    """Plan a kernel over `x` and the operand `out`, of which it takes `walked` strides."""
    is_wide = x.dtype == float64
    for piece in pieces(x.shape, (x.strides, out_strides), rank=3, keep_last=True):
        space = piece.space
        rows, columns = space.sizes[0] * space.sizes[1], space.sizes[2]
        configuration = None if is_wide else rows_configuration(columns, table)
        if configuration is None and long_rows is not None and not is_wide:
            is_contiguous = all(operand[2] == 1 for operand in space.strides)
            launch = long_rows(piece) if is_contiguous else None
            if launch is not None:
                yield launch
                continue
        start, end = piece.pointers(0, out)
        strides = (*space.strides[0], *space.strides[1][:walked])
        chunks = ROWS_LOOPED_64 if is_wide else ROWS_LOOPED
        tiles = configuration or chunks
        yield PlannedLaunch(
            kernel if configuration is not None else looped,
            (-(-rows // configuration.block_m) if configuration is not None else rows, 1, 1),
            (start, *between, end),
            (*space.sizes, *strides, *after),
            tile_options(tiles, has_rows=configuration is not None),
        )
