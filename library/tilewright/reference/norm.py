"""Normalisation over the last axis, and its gradients."""

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


def layer_norm_backward(
    x: Array, dy: Array, weight: Array | None = None, *, eps: float = 1e-5
) -> tuple[Array, Array, Array]:
    """Return the gradients of `layer_norm` by `x`, `weight` and `bias`, for the gradient `dy`.

    With `r = 1 / sqrt(var + eps)`, `h = (x - mean) * r` and `g = dy * weight`,
    `dx = r * (g - mean(g) - h * mean(g * h))`; the others are `dy * h` and `dy`, summed over all
    rows.
    """
    wide = widened(x, operation="layer_norm_backward")
    centred = wide - _mean(wide)
    dx, h = _gradient(centred, dy, weight, _share(wide), eps, is_centred=True)
    by_rows = tuple(range(x.ndim - 1))
    gradient = dy.astype(wide.dtype)
    dweight, dbias = (gradient * h).sum(axis=by_rows), gradient.sum(axis=by_rows)
    return dx.astype(x.dtype), dweight.astype(x.dtype), dbias.astype(x.dtype)


def rms_norm_backward(
    x: Array, dy: Array, weight: Array | None = None, *, eps: float = 1e-5
) -> tuple[Array, Array]:
    """Return the gradients of `rms_norm` by `x` and `weight`, for the gradient `dy`.

    With `r = 1 / sqrt(mean(x ** 2) + eps)`, `h = x * r` and `g = dy * weight`,
    `dx = r * (g - h * mean(g * h))`; the other is `dy * h` summed over all rows.
    """
    wide = widened(x, operation="rms_norm_backward")
    dx, h = _gradient(wide, dy, weight, _share(wide), eps, is_centred=False)
    dweight = (dy.astype(wide.dtype) * h).sum(axis=tuple(range(x.ndim - 1)))
    return dx.astype(x.dtype), dweight.astype(x.dtype)


def l2_norm_backward(x: Array, dy: Array, *, eps: float = 1e-6) -> Array:
    """Return the gradient `r * (dy - h * sum(dy * h))` of `l2_norm`.

    `r = 1 / sqrt(sum(x ** 2) + eps)` and `h = x * r`: of a row of zeros it is `dy / sqrt(eps)`.
    """
    wide = widened(x, operation="l2_norm_backward")
    return _gradient(wide, dy, None, 1.0, eps, is_centred=False)[0].astype(x.dtype)


@np.errstate(all="ignore")
def _gradient(
    centred: Array, dy: Array, weight: Array | None, share: float, eps: float, *, is_centred: bool
) -> tuple[Array, Array]:
    """Return `dx` and what was normalised, both in the working dtype."""
    dtype = centred.dtype.type
    squares = np.square(centred).sum(axis=-1, keepdims=True) * dtype(share)
    r = 1 / np.sqrt(squares + dtype(eps))
    h = centred * r
    g = dy.astype(centred.dtype)
    if weight is not None:
        g = g * weight.astype(centred.dtype)
    along = (g * h).sum(axis=-1, keepdims=True) * dtype(share)
    level = _mean(g) if is_centred else dtype(0)
    return r * (g - level - h * along), h


@np.errstate(all="ignore")
def _mean(x: Array) -> Array:
    return np.asarray(x.sum(axis=-1, keepdims=True) * x.dtype.type(_share(x)))


def _share(x: Array) -> float:
    return 1 / x.shape[-1] if x.shape[-1] else 0.0
