"""Operations along the last axis: softmax, norms, sum, maximum; any width and strides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.abi.dtypes import float64
from tilewright.abi.signature import DIVISOR, INT31_MAX
from tilewright.errors import ArgumentError
from tilewright.kernels import norm, reduce
from tilewright.kernels import softmax as softmax_kernels
from tilewright.language.kernel import Kernel
from tilewright.runtime.device import device as device_of
from tilewright.runtime.memory import DeviceArray
from tilewright.tensor.arrays import (
    Array,
    Operand,
    address_of,
    as_array,
    as_number,
    check_computed_in_f32,
    check_is_float,
    check_same_dtype,
    dtype_of,
    output,
    pieces,
    strides_of,
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
from tilewright.tensor.strides import IndexSpace, Shape

LongRows = Callable[[Array, Array, IndexSpace], bool]
"""Launches a kernel of long contiguous rows over an input and an output, or says that none fits."""

# A multiple of the rows that can begin differently within 16 bytes.
_PROGRAMS_STEP = 8
_WARPS_A_MULTIPROCESSOR = 16


def softmax(x: object, *, out: object | None = None) -> Array:
    """Return the softmax over the last axis of `x` `[..., columns]`, see `reference.softmax`."""
    array = _with_rows(x)
    result = output(out, array.shape, array)
    operands = (Operand(array, strides_of(array)), Operand(result, strides_of(result)))
    _launch(
        softmax_kernels.softmax,
        softmax_kernels.softmax_looped,
        array.shape,
        operands,
        long_rows=_softmax_of_long_rows,
        table=TILES,
    )
    return result


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
    array = _with_rows(x)
    columns = array.shape[-1]
    return _norm(
        array,
        {"weight": weight, "bias": bias},
        out,
        is_centred=True,
        share=1 / columns if columns else 0.0,
        eps=eps,
    )


def rms_norm(
    x: object, weight: object | None = None, *, eps: float = 1e-5, out: object | None = None
) -> Array:
    """Return `x / sqrt(mean(x ** 2) + eps) * weight`, the mean over the last axis of `x`.

    `x` is `[..., columns]`, `weight` `[columns]`, contiguous, of the dtype of `x`. See
    `reference.norm.rms_norm`.
    """
    array = _with_rows(x)
    columns = array.shape[-1]
    share = 1 / columns if columns else 0.0
    return _norm(array, {"weight": weight}, out, is_centred=False, share=share, eps=eps)


def l2_norm(x: object, *, eps: float = 1e-6, out: object | None = None) -> Array:
    """Return `x / sqrt(sum(x ** 2) + eps)`, the sum over the last axis of `x` `[..., columns]`.

    A row of zeros gives zeros. See `reference.norm.l2_norm`.
    """
    return _norm(_with_rows(x), {}, out, is_centred=False, share=1.0, eps=eps)


def sum(x: object, *, out: object | None = None) -> Array:  # the operation's name
    """Return the sum over the last axis of `x` `[..., columns]`; an empty row gives 0."""
    array = _with_rows(x)
    check_computed_in_f32(array)
    return _reduce(reduce.sum_rows, reduce.sum_rows_looped, array, out)


def max(x: object, *, out: object | None = None) -> Array:  # the operation's name
    """Return the maximum over the last axis of `x` `[..., columns]`; NaN if any element is NaN.

    Raises ArgumentError for an empty last axis, which has no maximum.
    """
    array = _with_rows(x)
    check_computed_in_f32(array)
    if array.shape[-1] == 0:
        msg = f"maximum over an empty axis: x has shape {array.shape}"
        raise ArgumentError(msg)
    return _reduce(reduce.max_rows, reduce.max_rows_looped, array, out)


def _with_rows(x: object) -> Array:
    array = as_array(x, name="x")
    check_is_float(array)
    if len(array.shape) == 0:
        msg = "x has no axes; an operation along the last axis needs at least one"
        raise ArgumentError(msg)
    return array


def _reduce(kernel: Kernel, looped: Kernel, array: Array, out: object | None) -> Array:
    result = output(out, array.shape[:-1], array)
    # Seen from the index space of the input, the result is repeated along the last axis.
    operands = (Operand(array, strides_of(array)), Operand(result, (*strides_of(result), 0)))
    _launch(kernel, looped, array.shape, operands, out_strides=2)
    return result


def parameters_of_rows(array: Array, parameters: dict[str, object | None]) -> dict[str, Array]:
    """Return those weights of the columns of an array that are given, after checking them."""
    columns = array.shape[-1]
    given: dict[str, Array] = {}
    for name, parameter in parameters.items():
        if parameter is None:
            continue
        given[name] = as_array(parameter, name=name)
        check_same_dtype({"x": array, name: given[name]})
        strides = strides_of(given[name])
        if given[name].shape != (columns,) or (strides != (1,) and columns > 1):
            msg = (
                f"{name} must be contiguous of shape ({columns},), got shape {given[name].shape} "
                f"with strides {strides}"
            )
            raise ArgumentError(msg)
    return given


def number_for(array: Array, number: float) -> float:
    """Return a number as a kernel takes it that computes in the working type of an array."""
    return np.float64(number) if dtype_of(array) == float64 else number


def _norm(
    array: Array,
    parameters: dict[str, object | None],
    out: object | None,
    *,
    is_centred: bool,
    share: float,
    eps: float,
) -> Array:
    result = output(out, array.shape, array)
    given = parameters_of_rows(array, parameters)
    # What is absent is never read; the result's address keeps the pointer valid.
    between = (given.get("weight", result), given.get("bias", result))
    after = (
        int("weight" in given),
        int("bias" in given),
        int(is_centred),
        number_for(array, share),
        number_for(array, as_number(eps, name="eps")),
    )

    def long_rows(x: Array, out: Array, space: IndexSpace) -> bool:
        return _norm_of_long_rows(x, out, space, between, after)

    _launch(
        norm.layer_norm,
        norm.layer_norm_looped,
        array.shape,
        (Operand(array, strides_of(array)), Operand(result, strides_of(result))),
        between=between,
        after=after,
        long_rows=long_rows,
        table=TILES,
    )
    return result


def _softmax_of_long_rows(x: Array, out: Array, space: IndexSpace) -> bool:
    chosen = rows_configuration(space.sizes[2], LONG_ROWS)
    if chosen is None:
        return False
    softmax_kernels.softmax_row[(space.sizes[0] * space.sizes[1],)](
        x,
        out,
        *space.sizes,
        *_row_strides(space),
        BLOCK_N=chosen.block_n,
        num_warps=chosen.num_warps,
    )
    return True


def _norm_of_long_rows(
    x: Array,
    out: Array,
    space: IndexSpace,
    parameters: tuple[Array, Array],
    after: tuple[int | float, ...],
) -> bool:
    strides = _row_strides(space)
    pointers = (address_of(array) for array in (x, *parameters, out))
    # As the fast specialization has it, which alone is bundled for some of these.
    is_aligned = not any(number % DIVISOR for number in (*pointers, *strides))
    is_aligned = is_aligned and all(abs(size) <= INT31_MAX for size in (*space.sizes, *strides))
    chosen = rows_configuration(space.sizes[2], LONG_ROWS if is_aligned else LONG_ROWS_UNALIGNED)
    if chosen is None:
        return False
    rows = space.sizes[0] * space.sizes[1]
    kernel, programs = norm.layer_norm_row, rows
    if not is_aligned and dtype_of(x).bits == 16:  # of 32 bits a word is an element anyway
        kernel, programs = norm.layer_norm_rows, _resident_programs(x, rows, chosen.num_warps)
    kernel[(programs,)](
        x, *parameters, out, *space.sizes, *strides, *after,
        BLOCK_N=chosen.block_n, num_warps=chosen.num_warps,
    )  # fmt: skip
    return True


def _resident_programs(array: Array, rows: int, num_warps: int) -> int:
    """Return how many programs walk the rows: as many as fit on the device at once."""
    needed = -(-rows // _PROGRAMS_STEP) * _PROGRAMS_STEP
    if not isinstance(array, DeviceArray):
        return min(needed, _PROGRAMS_STEP)
    at_once = device_of(array.device).multiprocessors * _WARPS_A_MULTIPROCESSOR // num_warps
    return min(needed, at_once // _PROGRAMS_STEP * _PROGRAMS_STEP)


def _row_strides(space: IndexSpace) -> tuple[int, ...]:
    return (*space.strides[0][:2], *space.strides[1][:2])


def _launch(
    kernel: Kernel,
    looped: Kernel,
    shape: Shape,
    operands: tuple[Operand, Operand],
    *,
    between: tuple[Array, ...] = (),
    after: tuple[int | float, ...] = (),
    out_strides: int = 3,
    long_rows: LongRows | None = None,
    table: tuple[Configuration, ...] = ROWS,
) -> None:
    for (x, out), space in pieces(shape, operands, rank=3, keep_last=True):
        rows, columns = space.sizes[0] * space.sizes[1], space.sizes[2]
        is_wide = dtype_of(x) == float64
        configuration = None if is_wide else rows_configuration(columns, table)
        if configuration is None and long_rows is not None and not is_wide:
            is_contiguous = all(operand[2] == 1 for operand in space.strides)
            if is_contiguous and long_rows(x, out, space):
                continue
        strides = (*space.strides[0], *space.strides[1][:out_strides])
        arguments = (x, *between, out, *space.sizes, *strides, *after)
        if configuration is None:
            chunks = ROWS_LOOPED_64 if is_wide else ROWS_LOOPED
            looped[(rows,)](*arguments, BLOCK_N=chunks.block_n, num_warps=chunks.num_warps)
        else:
            kernel[(-(-rows // configuration.block_m),)](
                *arguments,
                BLOCK_M=configuration.block_m,
                BLOCK_N=configuration.block_n,
                num_warps=configuration.num_warps,
            )
