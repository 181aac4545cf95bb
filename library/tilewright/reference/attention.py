"""Scaled dot-product attention: Vaswani et al., "Attention Is All You Need" (2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ArgumentError
from tilewright.reference.attention_features import Window, capped, hidden, kept
from tilewright.reference.precision import Array, factor, rounded


@np.errstate(all="ignore")
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    bias: Array | None = None,
    mask: Array | None = None,
    causal: bool = False,
    window: Window | None = None,
    softcap: float = 0.0,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    input_precision: str = "ieee",
) -> tuple[Array, Array]:
    """Return `softmax(scale * q @ k.T + bias) @ v` and the logarithm of the softmax's sums.

    `q` is `[..., H, M, D]`, `k` `[..., G, N, D]`, `v` `[..., G, N, E]`: each of the G heads of `k`
    and `v` serves H / G consecutive heads of `q`. The result is `[..., H, M, E]` in the dtype of
    `q`, the logarithms `[..., H, M]` in the dtype that it is computed in. `bias` and `mask`, which
    is true where a key is seen, broadcast to the scores `[..., H, M, N]`; `scale` is `1 / sqrt(D)`
    unless given. With `causal` query i sees the keys `j <= i + N - M`: the last query sees all of
    them. With `window=(left, right)` it sees those of `-left <= j - i - (N - M) <= right`. With
    `softcap` scores become `softcap * tanh(score / softcap)` before the bias is added. With
    `dropout` weights become 0 with that probability, or `1 / (1 - dropout)` times as large, see
    `attention_features.kept`; the logarithms are those of all weights. A query that sees no key,
    hidden or masked by a bias of -inf, gives 0, and -inf as the logarithm.
    """
    queries, keys, values = _factors(q, k, v, input_precision)
    scores, _ = capped(_products(queries, keys, scale), softcap)
    scores = hidden(scores, bias, mask, causal=causal, window=window)
    exponentials, highest = _exponentials(scores)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(sums == 0, 1, sums)
    weights = weights * kept(scores.shape, dropout, seed=seed, offset=offset).astype(scores.dtype)
    return rounded(weights @ values, from_numpy(q.dtype)), (highest + np.log(sums))[..., 0]


def attention_backward(
    q: Array, k: Array, v: Array, dy: Array, **options: Any
) -> tuple[Array, Array, Array]:
    """Return the gradients of `q`, `k` and `v`, for the gradient `dy` of their attention.

    `options` are those of `attention`. With the weights `w`, kept ones `z` times as large, `dw = z
    * (dy @ v.T)` and `ds = w * (dw - sum(dw * w))` over the keys, times the derivative `1 -
    tanh^2` of the cap, they are `scale * ds @ k`, `scale * ds.T @ q` and `(z * w).T @ dy`, the last
    two summed over the heads of `q` that share one of `k` and `v`. Queries that see no key have
    weights 0.
    """
    queries, keys, _ = _factors(q, k, v, "ieee")
    weights, by_scores, slopes = _backward(q, k, v, dy, options)
    by_products = by_scores * slopes * _scale(queries, options.get("scale"))

    def shared(x: Array) -> Array:
        """Add up the heads that share one of `k` and `v`."""
        groups = x.reshape(*k.shape[:-2], q.shape[-3] // k.shape[-3], *x.shape[-2:])
        return np.asarray(groups.sum(axis=-3))

    dk = shared(np.swapaxes(by_products, -1, -2) @ queries)
    dv = shared(np.swapaxes(weights, -1, -2) @ dy.astype(queries.dtype))
    dq, dtype = by_products @ keys, from_numpy(q.dtype)
    return rounded(dq, dtype), rounded(dk, dtype), rounded(dv, dtype)


def attention_bias_backward(
    q: Array, k: Array, v: Array, dy: Array, *, bias: Array, **options: Any
) -> Array:
    """Return the gradient of `bias`: `ds` of `attention_backward`, summed where it broadcasts."""
    _, by_scores, _ = _backward(q, k, v, dy, {"bias": bias, **options})
    lead = by_scores.ndim - bias.ndim
    axes = tuple(
        axis for axis in range(by_scores.ndim) if axis < lead or bias.shape[axis - lead] == 1
    )
    summed = by_scores.sum(axis=axes, keepdims=True).reshape(bias.shape)
    return rounded(summed, from_numpy(bias.dtype))


@np.errstate(all="ignore")
def _backward(
    q: Array, k: Array, v: Array, dy: Array, options: Mapping[str, Any]
) -> tuple[Array, Array, Array]:
    """Return the weights as kept, the gradients of scores, and the slopes of the cap."""
    given: dict[str, Any] = {"bias": None, "mask": None, "causal": False, "window": None}
    given |= {"softcap": 0.0, "scale": None, "dropout": 0.0, "seed": 0, "offset": 0, **options}
    queries, keys, values = _factors(q, k, v, "ieee")
    scores, slopes = capped(_products(queries, keys, given["scale"]), given["softcap"])
    masked = hidden(
        scores, given["bias"], given["mask"], causal=given["causal"], window=given["window"]
    )
    exponentials, _ = _exponentials(masked)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(sums == 0, 1, sums)
    factors = kept(scores.shape, given["dropout"], seed=given["seed"], offset=given["offset"])
    factors = factors.astype(scores.dtype)
    by_weights = dy.astype(queries.dtype) @ np.swapaxes(values, -1, -2) * factors
    by_scores = weights * (by_weights - (by_weights * weights).sum(axis=-1, keepdims=True))
    return weights * factors, by_scores, slopes


def _factors(q: Array, k: Array, v: Array, input_precision: str) -> tuple[Array, Array, Array]:
    """Return what is multiplied, K and V once for each head of Q."""
    heads, shared = q.shape[-3], k.shape[-3]
    if shared == 0 or heads % shared:
        msg = f"attention: {heads} heads of q cannot share {shared} heads of k and v"
        raise ArgumentError(msg)
    queries, keys, values = (
        factor(x, input_precision=input_precision, operation="attention") for x in (q, k, v)
    )
    group = heads // shared
    return queries, np.repeat(keys, group, axis=-3), np.repeat(values, group, axis=-3)


def _scale(queries: Array, scale: float | None) -> np.number[Any]:
    number: np.number[Any] = queries.dtype.type(
        1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    )
    return number


def _products(queries: Array, keys: Array, scale: float | None) -> Array:
    scores: Array = queries @ np.swapaxes(keys, -1, -2) * _scale(queries, scale)
    return scores


def _exponentials(scores: Array) -> tuple[Array, Array]:
    """Return the exponentials of scores less the highest of their row, and that."""
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    highest = np.where(highest == -np.inf, 0, highest)
    return np.exp(scores - highest), highest
