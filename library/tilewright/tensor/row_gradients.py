"""Gradients of the operations along the last axis: softmax and norms; any width and strides.

Each takes what its operation was given, or gave, with the gradient `dy` of its result, and returns
new arrays, or `dx` in `out`. What normalises a row is computed again, so that nothing is kept from
the way forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tilewright.abi.dtypes import float32, float64
from tilewright.errors import ArgumentError
from tilewright.kernels import norm_backward as norm_kernels
from tilewright.kernels import softmax_backward as softmax_kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import Array, as_flag, as_number, fits_fast
from tilewright.tensor.axes import must_be_apart
from tilewright.tensor.configurations import (
    NARROW,
    NORM_BACKWARD,
    NORM_BACKWARD_WALKED,
    PARAMETERS_BACKWARD,
    PARTIALS,
    SOFTMAX_BACKWARD,
    SOFTMAX_BACKWARD_WALKED,
    SOFTMAX_BACKWARD_WALKED_64,
    ResidentConfiguration,
    rows_configuration,
)
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_given,
    check_one_dtype,
    new_array,
    operands,
    result_geometry,
    result_of,
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
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.plans import Plan
from tilewright.tensor.products import processors
from tilewright.tensor.rows import check_parameters, check_rows, number_for, share_of
from tilewright.tensor.strides import IndexSpace

# The operands of the gradients of a norm by number; behind them stand statistics of rows.
_X, _WEIGHT, _DY, _DX, _SUMS, _DWEIGHT, _DBIAS, _STATISTICS = range(8)

# What stands for the multiprocessors of a GPU in the interpreter.
_HOST_MULTIPROCESSORS = 2
# Programs that sum down the columns, for each multiprocessor.
_PARAMETER_PROGRAMS = 4


def softmax_backward(y: object, dy: object, *, out: object | None = None) -> Array:
    """Return `dx = y * (dy - sum(dy * y))` over the last axis, for `y = softmax(x)`.

    `y` and `dy` are `[..., columns]` of one dtype. See `reference.softmax.softmax_backward`.
    """
    arrays, geometries = operands(y=y, dy=dy, out=out)
    return _plan_softmax(*geometries).run(arrays)


def layer_norm_backward(
    x: object,
    dy: object,
    *,
    weight: object | None = None,
    has_bias: bool = False,
    eps: float = 1e-5,
    out: object | None = None,
) -> tuple[Array, Array | None, Array | None]:
    """Return the gradients of `layer_norm(x, weight, bias)`: `dx`, `dweight` and `dbias`.

    With `r = 1 / sqrt(var + eps)`, `h = (x - mean) * r` and `g = dy * weight`, `dx` is
    `r * (g - mean(g) - h * mean(g * h))`, and summed over all rows `dweight` is `dy * h` and
    `dbias` is `dy` (Ba, Kiros and Hinton 2016). `dweight` is None without a weight, `dbias` unless
    `has_bias`. The order of all sums is fixed for a shape and a GPU. `out` takes `dx`.
    """
    return _norm("layer", x, dy, weight, eps, out, has_bias=has_bias)


def rms_norm_backward(
    x: object,
    dy: object,
    *,
    weight: object | None = None,
    eps: float = 1e-5,
    out: object | None = None,
) -> tuple[Array, Array | None]:
    """Return the gradients of `rms_norm(x, weight)`: `dx`, and `dweight`, None without a weight.

    With `r = 1 / sqrt(mean(x ** 2) + eps)`, `h = x * r` and `g = dy * weight`, `dx` is
    `r * (g - h * mean(g * h))`, and `dweight` is `dy * h` summed over all rows in an order that is
    fixed for a shape and a GPU (Zhang and Sennrich 2019). `out` takes `dx`.
    """
    return _norm("rms", x, dy, weight, eps, out)[:2]


def l2_norm_backward(
    x: object, dy: object, *, eps: float = 1e-6, out: object | None = None
) -> Array:
    """Return the gradient `dx = r * (dy - h * sum(dy * h))` of `l2_norm(x)`.

    `r = 1 / sqrt(sum(x ** 2) + eps)` and `h = x * r`: for a row of zeros it is `dy / sqrt(eps)`.
    """
    return _norm("l2", x, dy, None, eps, out)[0]


def _norm(
    kind: str,
    x: object,
    dy: object,
    weight: object | None,
    eps: float,
    out: object | None,
    *,
    has_bias: bool = False,
) -> tuple[Array, Array | None, Array | None]:
    arrays, geometries = operands(x=x, weight=weight, dy=dy, out=out)
    plan = _plan_norm(kind, as_flag(has_bias, name="has_bias"), *geometries)
    dx = result_of(arrays, _DX, plan.dx)
    if out is not None and must_be_apart(arrays, _DX, plan.in_place):
        apart, dweight, dbias = _norm(kind, x, dy, weight, eps, None, has_bias=has_bias)
        copy_elements(apart, dx)
        return dx, dweight, dbias
    made: Arrays = [None if each is None else new_array(each, arrays) for each in plan.made]
    arrays += made
    number = number_for(geometries[_X], as_number(eps, name="eps"))
    for launch in plan.launches:
        launch.run(arrays, (number,))
    return dx, arrays[_DWEIGHT], arrays[_DBIAS]


@planned
def _plan_softmax(y: Geometry, dy: Geometry, out: Geometry | None) -> Plan:
    _check_rows_with_gradient(y, dy, name="y")
    result = result_geometry(out, y.shape, y.dtype, y)
    walked = (y, dy, result)
    is_wide = y.dtype == float64
    launches = []
    for piece in pieces(y.shape, tuple(a.strides for a in walked), rank=3, keep_last=True):
        space = piece.space
        rows, columns = space.sizes[0] * space.sizes[1], space.sizes[2]
        integers = (*space.sizes, *(s for strides in space.strides for s in strides))
        kernel = softmax_kernels.softmax_backward
        tiles = rows_configuration(columns, SOFTMAX_BACKWARD)
        is_fast = is_aligned(walked, piece) and fits_fast(kernel, 3, integers)
        if tiles is not None and (is_fast or tiles.block_n <= NARROW) and not is_wide:
            programs, options = -(-rows // tiles.block_m), tile_options(tiles)
        else:
            kernel, programs = softmax_kernels.softmax_backward_walked, rows
            tiles = SOFTMAX_BACKWARD_WALKED_64 if is_wide else SOFTMAX_BACKWARD_WALKED
            options = tile_options(tiles, has_rows=False)
        pointers = piece.pointers(0, 1, 2)
        launches.append(PlannedLaunch(kernel, (programs, 1, 1), pointers, integers, options))
    return Plan(tuple(launches), result, 2, partial(_plan_softmax, y, dy, None), in_place=0b11)


@dataclass(frozen=True, slots=True)
class _Norm:
    """What tells the norms apart, with the weight and which gradients of parameters are wanted."""

    weight: Geometry | None
    has_bias: bool
    is_centred: bool
    share: float


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the rows of x, dy and dx, that leaves `programs` rows of partial sums.

    `held` are the tiles of programs that hold whole rows; None is for rows that are walked.
    """

    piece: Piece
    held: ResidentConfiguration | None
    programs: int


@dataclass(frozen=True, slots=True)
class _NormPlan:
    """The launches of the gradients of a norm; the operands that are made, from _SUMS on.

    An operand whose bit of `in_place` is set may be `dx`.
    """

    launches: tuple[PlannedLaunch, ...]
    dx: Geometry
    made: tuple[Geometry | None, ...]
    in_place: int


@planned
def _plan_norm(
    kind: str,
    has_bias: bool,
    x: Geometry,
    weight: Geometry | None,
    dy: Geometry,
    out: Geometry | None,
) -> _NormPlan:
    """Check the gradients of a norm and plan their launches; each takes `eps` or nothing."""
    _check_rows_with_gradient(x, dy, name="x")
    check_parameters(x, {"weight": weight})
    dx = result_geometry(out, x.shape, x.dtype, x)
    norm = _Norm(weight, has_bias, kind == "layer", number_for(x, share_of(kind, x)))
    columns = x.shape[-1]
    walked = (x, dy, dx)
    parts = [
        _part(walked, piece, norm)
        for piece in pieces(x.shape, tuple(a.strides for a in walked), rank=3, keep_last=True)
    ]
    programs = sum(part.programs for part in parts)
    wide = float64 if x.dtype == float64 else float32
    has_sums = weight is not None or has_bias
    count = 2 * programs * columns if has_sums else 1
    launches: list[PlannedLaunch] = []
    statistics: list[Geometry] = []
    first = 0
    for part in parts:
        skipped = first * columns if has_sums else 0
        partials = Pointer(_SUMS, skipped, (count - skipped,), (1,))
        if part.held is not None:
            launches.append(_launch_held(part, part.held, norm, partials, programs * columns))
        else:
            rows = part.piece.space.sizes[0] * part.piece.space.sizes[1]
            number = _STATISTICS + len(statistics)
            statistics.append(result_geometry(None, (3 * rows,), wide, x))
            of_rows = Pointer(number, 0, (3 * rows,), (1,))
            launches += _launch_walked(part, norm, partials, of_rows, programs * columns)
        first += part.programs
    of_columns = result_geometry(None, (columns,), x.dtype, x)
    dweight, dbias = (of_columns if wanted else None for wanted in (weight is not None, has_bias))
    if has_sums and columns:
        launches.append(_sum_partials(norm, programs, columns))
    sums = result_geometry(None, (count,), wide, x)
    # Sums down the columns read x and dy again, when all of dx is written.
    reads_again = has_sums and any(part.held is None for part in parts)
    in_place = 0 if reads_again else 1 << _X | 1 << _DY
    return _NormPlan(tuple(launches), dx, (sums, dweight, dbias, *statistics), in_place)


def _check_rows_with_gradient(array: Geometry, dy: Geometry, *, name: str) -> None:
    check_given(**{name: array, "dy": dy})
    check_rows(array, name=name)
    check_one_dtype({name: array, "dy": dy})
    if dy.shape != array.shape:
        msg = f"dy has shape {dy.shape}, {name} has {array.shape}; they must be equal"
        raise ArgumentError(msg)


def _part(walked: tuple[Geometry, ...], piece: Piece, norm: _Norm) -> _Part:
    x, space = walked[0], piece.space
    rows, columns = space.sizes[0] * space.sizes[1], space.sizes[2]
    multiprocessors = _HOST_MULTIPROCESSORS if x.device is None else processors(x.device)
    held = rows_configuration(columns, NORM_BACKWARD)
    is_suited = (
        x.dtype != float64
        and space.sizes[0] == 1
        and all(strides[2] == 1 for strides in space.strides)
    )
    is_fast = (
        is_aligned(walked, piece)
        and (norm.weight is None or norm.weight.is_aligned)
        and fits_fast(norm_kernels.norm_backward, 5, (rows, columns, *_row_strides(space)))
    )
    if held is not None and is_suited and (is_fast or held.block_n <= NARROW):
        at_once = multiprocessors * held.resident
        return _Part(piece, held, min(-(-rows // held.block_m), at_once))
    blocks = -(-columns // PARAMETERS_BACKWARD.block_n)
    at_once = -(-multiprocessors * _PARAMETER_PROGRAMS // max(blocks, 1))
    return _Part(piece, None, min(-(-rows // PARAMETERS_BACKWARD.block_m), at_once))


def _row_strides(space: IndexSpace) -> tuple[int, ...]:
    return tuple(strides[1] for strides in space.strides)


def _pointers(part: _Part, norm: _Norm) -> tuple[Pointer, Pointer, Pointer, Pointer]:
    """Return those to x, the weight (x where there is none), dy and dx."""
    x, dy, dx = part.piece.pointers(_X, _DY, _DX)
    columns = part.piece.space.sizes[2]
    return x, x if norm.weight is None else Pointer(_WEIGHT, 0, (columns,), (1,)), dy, dx


def _launch_held(
    part: _Part, tiles: ResidentConfiguration, norm: _Norm, partials: Pointer, bias_start: int
) -> PlannedLaunch:
    _, rows, columns = part.piece.space.sizes
    flags = (int(norm.weight is not None), int(norm.has_bias), int(norm.is_centred), norm.share)
    return PlannedLaunch(
        norm_kernels.norm_backward,
        (part.programs, 1, 1),
        (*_pointers(part, norm), partials),
        (rows, columns, *_row_strides(part.piece.space), bias_start, *flags),
        {
            "BLOCK_M": tiles.block_m,
            "BLOCK_N": tiles.block_n,
            "RESIDENT": tiles.resident,
            "num_warps": tiles.num_warps,
        },
    )


def _launch_walked(
    part: _Part, norm: _Norm, partials: Pointer, statistics: Pointer, bias_start: int
) -> Iterator[PlannedLaunch]:
    sizes, (x_strides, dy_strides, dx_strides) = part.piece.space.sizes, part.piece.space.strides
    has_weight = int(norm.weight is not None)
    x, weight, dy, dx = _pointers(part, norm)
    yield PlannedLaunch(
        norm_kernels.norm_backward_walked,
        (sizes[0] * sizes[1], 1, 1),
        (x, weight, dy, dx, statistics),
        (*sizes, *x_strides, *dy_strides, *dx_strides,
         has_weight, int(norm.is_centred), norm.share),
        {"BLOCK_N": NORM_BACKWARD_WALKED.block_n, "num_warps": NORM_BACKWARD_WALKED.num_warps},
    )  # fmt: skip
    if not has_weight and not norm.has_bias:
        return
    tiles = PARAMETERS_BACKWARD
    yield PlannedLaunch(
        norm_kernels.parameters_backward,
        (-(-sizes[2] // tiles.block_n), part.programs, 1),
        (x, dy, statistics, partials),
        (*sizes, *x_strides, *dy_strides, bias_start, has_weight, int(norm.has_bias)),
        tile_options(tiles),
    )


def _sum_partials(norm: _Norm, programs: int, columns: int) -> PlannedLaunch:
    # The grid's second axis counts what is wanted, from what is wanted first.
    wanted = [
        Pointer(number, 0, (columns,), (1,))
        for number, is_wanted in ((_DWEIGHT, norm.weight is not None), (_DBIAS, norm.has_bias))
        if is_wanted
    ]
    skipped = 0 if norm.weight is not None else programs * columns
    count = 2 * programs * columns - skipped
    return PlannedLaunch(
        norm_kernels.sum_partials,
        (-(-columns // PARTIALS.block_n), len(wanted), 1),
        (Pointer(_SUMS, skipped, (count,), (1,)), wanted[0], wanted[-1]),
        (programs, columns),
        tile_options(PARTIALS),
    )
