"""Normalisation over the last axis."""

from __future__ import annotations

import numpy as np

from tilewright.reference.precision import Array, widened


@np.errstate(all="ignore")
def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5
) -> Array:
    """Return `(x - mean) / sqrt(var + eps) * weight + bias` over the last axis of `x` `[..., C]`.

    `mean` and `var = mean((x - mean) ** 2)` are taken over the C elements of a row. `weight` and
    `bias` are `[C]`, or left out. The result has the shape and dtype of `x`, a float. Ba, Kiros and
    Hinton, "Layer Normalization" (2016).
    """
    wide = widened(x, operation="layer_norm")
    if not wide.size:
        return x.copy()
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    result: Array = centred / np.sqrt(variance + wide.dtype.type(eps))
    if weight is not None:
        result = result * weight.astype(wide.dtype)
    if bias is not None:
        result = result + bias.astype(wide.dtype)
    return result.astype(x.dtype)


@np.errstate(all="ignore")
def rms_norm(x: Array, weight: Array | None = None, *, eps: float = 1e-5) -> Array:
    """Return `x / sqrt(mean(x ** 2) + eps) * weight` over the last axis of `x` `[..., C]`.

    `weight` is `[C]`, or left out. The result has the shape and dtype of `x`, a float. Zhang and
    Sennrich, "Root Mean Square Layer Normalization" (2019).
    """
    wide = widened(x, operation="rms_norm")
    if not wide.size:
        return x.copy()
    squares = np.square(wide).mean(axis=-1, keepdims=True)
    result: Array = wide / np.sqrt(squares + wide.dtype.type(eps))
    if weight is not None:
        result = result * weight.astype(wide.dtype)
    return result.astype(x.dtype)


@np.errstate(all="ignore")
def l2_norm(x: Array, *, eps: float = 1e-6) -> Array:
    """Return `x / sqrt(sum(x ** 2) + eps)` over the last axis of `x` `[..., C]`.

    `eps` under the root makes it smooth everywhere: a row of zeros gives zeros, and its derivative
    is `1 / sqrt(eps)` times the identity. The result has the shape and dtype of `x`, a float.
    """
    wide = widened(x, operation="l2_norm")
    squares = np.square(wide).sum(axis=-1, keepdims=True)
    return np.asarray(wide / np.sqrt(squares + wide.dtype.type(eps))).astype(x.dtype)
