"""Gradients of the operations along the last axis: softmax and norms; any width and strides.

Each takes what its operation was given, or gave, with the gradient `dy` of its result, and returns
new arrays. What normalises a row is computed again, so that nothing is kept from the way forward.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.abi.dtypes import float32, float64
from tilewright.errors import ArgumentError
from tilewright.kernels import norm_backward as norm_kernels
from tilewright.kernels import softmax_backward as softmax_kernels
from tilewright.runtime.device import device as device_of
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import (
    Array,
    Operand,
    are_aligned,
    as_array,
    as_number,
    check_is_float,
    check_same_dtype,
    dtype_of,
    fits_fast,
    output,
    pieces,
    strides_of,
)
from tilewright.tensor.configurations import (
    NORM_BACKWARD,
    NORM_BACKWARD_WALKED,
    PARAMETERS_BACKWARD,
    PARTIALS,
    SOFTMAX_BACKWARD,
    SOFTMAX_BACKWARD_WALKED,
    SOFTMAX_BACKWARD_WALKED_64,
    rows_configuration,
)
from tilewright.tensor.rows import number_for, parameters_of_rows
from tilewright.tensor.strides import IndexSpace

# What stands for the multiprocessors of a GPU in the interpreter.
_HOST_MULTIPROCESSORS = 2
# Programs that sum down the columns, for each multiprocessor.
_PARAMETER_PROGRAMS = 4


@dataclass(frozen=True, slots=True)
class _Norm:
    """What tells the norms apart, with the weight and which gradients of parameters are wanted."""

    weight: Array | None
    has_bias: bool
    is_centred: bool
    share: float
    eps: float


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the rows: its x, dy and dx, over an index space `[size0, size1, columns]`.

    `programs` is how many rows of partial sums it leaves.
    """

    arrays: tuple[Array, Array, Array]
    space: IndexSpace
    is_held: bool
    programs: int


def softmax_backward(y: object, dy: object, *, out: object | None = None) -> Array:
    """Return `dx = y * (dy - sum(dy * y))` over the last axis, for `y = softmax(x)`.

    `y` and `dy` are `[..., columns]` of one dtype. See `reference.softmax.softmax_backward`.
    """
    result, gradient = _rows_with_gradient(y, dy, name="y")
    dx = output(out, result.shape, result)
    operands = tuple(Operand(a, strides_of(a)) for a in (result, gradient, dx))
    for arrays, space in pieces(result.shape, operands, rank=3, keep_last=True):
        rows, columns = space.sizes[0] * space.sizes[1], space.sizes[2]
        arguments = (*arrays, *space.sizes, *(s for operand in space.strides for s in operand))
        kernel = softmax_kernels.softmax_backward
        tiles = rows_configuration(columns, SOFTMAX_BACKWARD)
        is_fast = are_aligned(arrays) and fits_fast(kernel, 3, arguments[3:])
        if tiles is not None and is_fast and dtype_of(result) != float64:
            kernel[(-(-rows // tiles.block_m),)](
                *arguments, BLOCK_M=tiles.block_m, BLOCK_N=tiles.block_n, num_warps=tiles.num_warps
            )
        else:
            is_wide = dtype_of(result) == float64
            tiles = SOFTMAX_BACKWARD_WALKED_64 if is_wide else SOFTMAX_BACKWARD_WALKED
            softmax_kernels.softmax_backward_walked[(rows,)](
                *arguments, BLOCK_N=tiles.block_n, num_warps=tiles.num_warps
            )
    return dx


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
    array, gradient = _rows_with_gradient(x, dy, name="x")
    columns = array.shape[-1]
    share = 1 / columns if columns else 0.0
    given = parameters_of_rows(array, {"weight": weight}).get("weight")
    norm = _Norm(given, has_bias, True, share, as_number(eps, name="eps"))
    return _norm_backward(array, gradient, norm, out)


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
    array, gradient = _rows_with_gradient(x, dy, name="x")
    columns = array.shape[-1]
    share = 1 / columns if columns else 0.0
    given = parameters_of_rows(array, {"weight": weight}).get("weight")
    norm = _Norm(given, False, False, share, as_number(eps, name="eps"))
    return _norm_backward(array, gradient, norm, out)[:2]


def l2_norm_backward(
    x: object, dy: object, *, eps: float = 1e-6, out: object | None = None
) -> Array:
    """Return the gradient `dx = r * (dy - h * sum(dy * h))` of `l2_norm(x)`.

    `r = 1 / sqrt(sum(x ** 2) + eps)` and `h = x * r`: for a row of zeros it is `dy / sqrt(eps)`.
    """
    array, gradient = _rows_with_gradient(x, dy, name="x")
    norm = _Norm(None, False, False, 1.0, as_number(eps, name="eps"))
    return _norm_backward(array, gradient, norm, out)[0]


def _rows_with_gradient(x: object, dy: object, *, name: str) -> tuple[Array, Array]:
    array, gradient = as_array(x, name=name), as_array(dy, name="dy")
    check_is_float(array)
    check_same_dtype({name: array, "dy": gradient})
    if len(array.shape) == 0:
        msg = f"{name} has no axes; an operation along the last axis needs at least one"
        raise ArgumentError(msg)
    if gradient.shape != array.shape:
        msg = f"dy has shape {gradient.shape}, {name} has {array.shape}; they must be equal"
        raise ArgumentError(msg)
    return array, gradient


def _norm_backward(
    x: Array, dy: Array, norm: _Norm, out: object | None
) -> tuple[Array, Array | None, Array | None]:
    dx = output(out, x.shape, x)
    columns = x.shape[-1]
    operands = tuple(Operand(array, strides_of(array)) for array in (x, dy, dx))
    parts = [
        _piece(arrays, space, norm)
        for arrays, space in pieces(x.shape, operands, rank=3, keep_last=True)
    ]
    programs = sum(part.programs for part in parts)
    wide = float64 if dtype_of(x) == float64 else float32
    has_sums = norm.weight is not None or norm.has_bias
    sums = output(None, (2 * programs * columns if has_sums else 1,), x, wide)
    first = 0
    for part in parts:
        partials = sums[first * columns :] if has_sums else sums
        launch = _launch_held if part.is_held else _launch_walked
        launch(part, norm, partials, programs * columns)
        first += part.programs
    dweight = output(None, (columns,), x) if norm.weight is not None else None
    dbias = output(None, (columns,), x) if norm.has_bias else None
    if has_sums and columns:
        blocks = -(-columns // PARTIALS.block_n)
        # The grid's second axis counts what is wanted, from what is wanted first.
        start = sums if dweight is not None or not programs else sums[programs * columns :]
        given = [array for array in (dweight, dbias) if array is not None]
        norm_kernels.sum_partials[(blocks, len(given))](
            start, given[0], given[-1], programs, columns,
            BLOCK_M=PARTIALS.block_m, BLOCK_N=PARTIALS.block_n, num_warps=PARTIALS.num_warps,
        )  # fmt: skip
    return dx, dweight, dbias


def _piece(arrays: tuple[Array, ...], space: IndexSpace, norm: _Norm) -> _Piece:
    x, dy, dx = arrays
    rows, columns = space.sizes[0] * space.sizes[1], space.sizes[2]
    multiprocessors = _multiprocessors(x)
    tiles = rows_configuration(columns, NORM_BACKWARD)
    is_held = (
        tiles is not None
        and dtype_of(x) != float64
        and space.sizes[0] == 1
        and all(strides[2] == 1 for strides in space.strides)
        and are_aligned((x, dy, dx, *((norm.weight,) if norm.weight is not None else ())))
        and fits_fast(norm_kernels.norm_backward, 5, (rows, columns, *_row_strides(space)))
    )
    if tiles is not None and is_held:
        programs = min(-(-rows // tiles.block_m), multiprocessors * tiles.resident)
    else:
        blocks = -(-columns // PARAMETERS_BACKWARD.block_n)
        at_once = -(-multiprocessors * _PARAMETER_PROGRAMS // max(blocks, 1))
        programs = min(-(-rows // PARAMETERS_BACKWARD.block_m), at_once)
    return _Piece((x, dy, dx), space, is_held, programs)


def _row_strides(space: IndexSpace) -> tuple[int, ...]:
    return tuple(strides[1] for strides in space.strides)


def _multiprocessors(array: Array) -> int:
    if not isinstance(array, DeviceArray):
        return _HOST_MULTIPROCESSORS
    return device_of(array.device).multiprocessors


def _launch_held(part: _Piece, norm: _Norm, partials: Array, bias_start: int) -> None:
    x, dy, dx = part.arrays
    _, rows, columns = part.space.sizes
    tiles = rows_configuration(columns, NORM_BACKWARD)
    assert tiles is not None
    norm_kernels.norm_backward[(part.programs,)](
        x, x if norm.weight is None else norm.weight, dy, dx, partials,
        rows, columns, *_row_strides(part.space), bias_start,
        int(norm.weight is not None), int(norm.has_bias), int(norm.is_centred),
        norm.share, norm.eps,
        BLOCK_M=tiles.block_m, BLOCK_N=tiles.block_n, RESIDENT=tiles.resident,
        num_warps=tiles.num_warps,
    )  # fmt: skip


def _launch_walked(part: _Piece, norm: _Norm, partials: Array, bias_start: int) -> None:
    x, dy, dx = part.arrays
    sizes, (x_strides, dy_strides, dx_strides) = part.space.sizes, part.space.strides
    rows = sizes[0] * sizes[1]
    has_weight = int(norm.weight is not None)
    wide = float64 if dtype_of(x) == float64 else float32
    statistics = output(None, (3 * rows,), x, wide)
    norm_kernels.norm_backward_walked[(rows,)](
        x, x if norm.weight is None else norm.weight, dy, dx, statistics,
        *sizes, *x_strides, *dy_strides, *dx_strides,
        has_weight, int(norm.is_centred),
        number_for(x, norm.share), number_for(x, norm.eps),
        BLOCK_N=NORM_BACKWARD_WALKED.block_n, num_warps=NORM_BACKWARD_WALKED.num_warps,
    )  # fmt: skip
    if not has_weight and not norm.has_bias:
        return
    tiles = PARAMETERS_BACKWARD
    norm_kernels.parameters_backward[(-(-sizes[2] // tiles.block_n), part.programs)](
        x, dy, statistics, partials, *sizes, *x_strides, *dy_strides,
        bias_start, has_weight, int(norm.has_bias),
        BLOCK_M=tiles.block_m, BLOCK_N=tiles.block_n, num_warps=tiles.num_warps,
    )  # fmt: skip
