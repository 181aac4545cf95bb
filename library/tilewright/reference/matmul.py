"""Matrix products: a is `[..., M, K]`, b `[..., K, N]`, the result `[..., M, N]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, int32
from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ArgumentError
from tilewright.reference.elementwise import gelu
from tilewright.reference.precision import Array, factor, rounded

Activation = Literal["relu", "gelu", "silu", "sigmoid"]


@np.errstate(all="ignore")
def matmul(
    a: Array,
    b: Array,
    *,
    bias: Array | None = None,
    residual: Array | None = None,
    gate: Array | None = None,
    activation: Activation | None = None,
    alpha: float = 1.0,
    input_precision: str = "ieee",
    out_dtype: DType | None = None,
) -> Array:
    """Return `activation(alpha * a @ b + bias) * gate + residual`, rounded once to `out_dtype`.

    Axes before the last two are batches, and broadcast. `a` and `b` have one dtype, or two of 8
    bits of one kind. `bias` is `[N]`; `gate` and `residual` broadcast to the result. `activation`
    is relu `max(x, 0)`, gelu (`reference.elementwise`), silu `x * sigmoid(x)` or sigmoid
    `1 / (1 + exp(-x))`. f32 is multiplied as `input_precision` says ("ieee", "tf32", "tf32x3").

    8-bit integers are summed in i32, which wraps, and have no epilogue. Without `out_dtype` they
    give i32, 8-bit floats bf16, other floats their own dtype.
    """
    dtypes = from_numpy(a.dtype), from_numpy(b.dtype)
    _check(a, b, dtypes)
    if dtypes[0].is_integer:
        if alpha != 1 or any(x is not None for x in (bias, residual, gate, activation)):
            msg = f"matmul of {dtypes[0]} has no epilogue; apply it to the i32 result"
            raise ArgumentError(msg)
        return rounded(np.matmul(a, b, dtype=np.int32, casting="unsafe"), out_dtype or int32)
    left, right = (factor(x, input_precision=input_precision, operation="matmul") for x in (a, b))
    result = left @ right * left.dtype.type(alpha)
    if bias is not None:
        result = result + bias.astype(result.dtype)
    if activation is not None:
        result = ACTIVATIONS[activation](result)
    if gate is not None:
        result = result * gate.astype(result.dtype)
    if residual is not None:
        result = result + residual.astype(result.dtype)
    return rounded(result, out_dtype or (dtypes[0] if dtypes[0].has_arithmetic else bfloat16))


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu,
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
}


def _check(a: Array, b: Array, dtypes: tuple[DType, DType]) -> None:
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        msg = f"matmul takes [..., M, K] and [..., K, N], got shapes {a.shape} and {b.shape}"
        raise ArgumentError(msg)
    left, right = dtypes
    is_pair = left.bits == right.bits == 8 and left.is_float == right.is_float
    if (left != right and not is_pair) or (left.is_integer and left.bits != 8):
        msg = (
            f"matmul takes two arrays of one float dtype, or of 8-bit integers, or of 8-bit floats,"
            f" got {left} and {right}; convert them first"
        )
        raise ArgumentError(msg)
