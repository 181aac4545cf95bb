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
