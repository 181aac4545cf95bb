"""Scaled dot-product attention: Vaswani et al., "Attention Is All You Need" (2017)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ArgumentError
from tilewright.reference.precision import Array, factor, rounded


@np.errstate(all="ignore")
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    input_precision: str = "ieee",
) -> tuple[Array, Array]:
    """Return `softmax(scale * q @ k.T + bias) @ v` and the logarithm of the softmax's sums.

    `q` is `[..., H, M, D]`, `k` `[..., G, N, D]`, `v` `[..., G, N, E]`: each of the G heads of `k`
    and `v` serves H / G consecutive heads of `q`. The result is `[..., H, M, E]` in the dtype of
    `q`, the logarithms `[..., H, M]` in the dtype that it is computed in. `bias` broadcasts to the
    scores `[..., H, M, N]`; `scale` is `1 / sqrt(D)` unless given. With `causal` query i sees the
    keys `j <= i + N - M`: the last query sees all of them. A query that sees no key, hidden or
    masked by a bias of -inf, gives 0, and -inf as the logarithm.
    """
    queries, keys, values = _factors(q, k, v, input_precision)
    exponentials, highest = _exponentials(queries, keys, bias, causal=causal, scale=scale)
    sums = exponentials.sum(axis=-1, keepdims=True)
    result = exponentials @ values / np.where(sums == 0, 1, sums)
    return rounded(result, from_numpy(q.dtype)), (highest + np.log(sums))[..., 0]


@np.errstate(all="ignore")
def attention_backward(
    q: Array, k: Array, v: Array, dy: Array, *, causal: bool = False, scale: float | None = None
) -> tuple[Array, Array, Array]:
    """Return the gradients of `q`, `k` and `v`, for the gradient `dy` of their attention.

    With the weights `w`, `dw = dy @ v.T` and `ds = w * (dw - sum(dw * w))` over the keys, they are
    `scale * ds @ k`, `scale * ds.T @ q` and `w.T @ dy`, the last two summed over the heads of `q`
    that share one of `k` and `v`. Queries that see no key have weights 0.
    """
    queries, keys, values = _factors(q, k, v, "ieee")
    gradient = dy.astype(queries.dtype)
    exponentials, _ = _exponentials(queries, keys, None, causal=causal, scale=scale)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(sums == 0, 1, sums)
    by_weights = gradient @ np.swapaxes(values, -1, -2)
    by_scores = weights * (by_weights - (by_weights * weights).sum(axis=-1, keepdims=True))
    by_scores = by_scores * _scale(queries, scale)

    def shared(x: Array) -> Array:
        """Add up the heads that share one of `k` and `v`."""
        groups = x.reshape(*k.shape[:-2], q.shape[-3] // k.shape[-3], *x.shape[-2:])
        return np.asarray(groups.sum(axis=-3))

    dk = shared(np.swapaxes(by_scores, -1, -2) @ queries)
    dv = shared(np.swapaxes(weights, -1, -2) @ gradient)
    dq, dtype = by_scores @ keys, from_numpy(q.dtype)
    return rounded(dq, dtype), rounded(dk, dtype), rounded(dv, dtype)


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


def _exponentials(
    queries: Array, keys: Array, bias: Array | None, *, causal: bool, scale: float | None
) -> tuple[Array, Array]:
    """Return the exponentials of scores less the highest of their row, and that."""
    scores = queries @ np.swapaxes(keys, -1, -2)
    scores = scores * _scale(queries, scale)
    if bias is not None:
        scores = scores + bias.astype(scores.dtype)
    if causal:
        rows, columns = scores.shape[-2:]
        is_seen = np.tri(rows, columns, columns - rows, dtype=np.bool_)
        scores = np.where(is_seen, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    highest = np.where(highest == -np.inf, 0, highest)
    return np.exp(scores - highest), highest
