"""Scaled dot-product attention: Vaswani et al., "Attention Is All You Need" (2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ArgumentError
from tilewright.reference.precision import Array, factor, rounded
from tilewright.reference.random import words_at

Window = tuple[int | None, int | None]


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
    `kept`; the logarithms are those of all weights. A query that sees no key, hidden or masked by a
    bias of -inf, gives 0, and -inf as the logarithm.
    """
    queries, keys, values = _factors(q, k, v, input_precision)
    scores, _ = _scores(queries, keys, scale, softcap)
    scores = _masked(scores, bias, mask, causal=causal, window=window)
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


def kept(shape: tuple[int, ...], p: float, *, seed: int, offset: int = 0) -> Array:
    """Return what dropout multiplies weights `[..., M, N]` by: 0 or `1 / (1 - p)`, in f64.

    Weight `[n, i, j]`, n counting the heads of all batches, is dropped where half of a word of
    Philox is below `p * 2^31`: word `2 (i // 8 % 2) + j // 8 % 2` at counter `offset + (n C(M) +
    c(i)) C(N) + c(j)`, where `c(i) = i // 16 * 8 + i % 8` and `C(M) = 8 ceil(M / 16)`. So one
    counter serves four weights that one thread has of a block of scores, and of a transposed one.
    """
    if p in (0, 1):
        return np.full(shape, 1.0 - p)
    *outer, rows, columns = shape
    i, j = np.arange(rows, dtype=np.uint64)[:, None], np.arange(columns, dtype=np.uint64)[None, :]
    n = np.arange(math.prod(outer), dtype=np.uint64).reshape(*outer, 1, 1)
    eight, sixteen = np.uint64(8), np.uint64(16)
    height, width = (np.uint64(8 * -(-extent // 16)) for extent in (rows, columns))
    places = n * height + i // sixteen * eight + i % eight
    counters = places * width + j // sixteen * eight + j % eight + np.uint64(offset % 2**64)
    number = 2 * (i // eight % np.uint64(2)) + j // eight % np.uint64(2)
    words = words_at(counters, seed=seed)
    chosen = np.take_along_axis(words, np.broadcast_to(number, shape)[..., None].astype(int), -1)
    threshold = min(round(p * 2**31), 2**31 - 1)
    is_kept: Array = (chosen[..., 0] >> np.uint32(1)) >= threshold
    return np.where(is_kept, 1 / (1 - p), 0.0)


@np.errstate(all="ignore")
def _backward(
    q: Array, k: Array, v: Array, dy: Array, options: Mapping[str, Any]
) -> tuple[Array, Array, Array]:
    """Return the weights as kept, the gradients of scores, and the slopes of the cap."""
    given: dict[str, Any] = {"bias": None, "mask": None, "causal": False, "window": None}
    given |= {"softcap": 0.0, "scale": None, "dropout": 0.0, "seed": 0, "offset": 0, **options}
    queries, keys, values = _factors(q, k, v, "ieee")
    scores, slopes = _scores(queries, keys, given["scale"], given["softcap"])
    masked = _masked(
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


def _scores(
    queries: Array, keys: Array, scale: float | None, softcap: float
) -> tuple[Array, Array]:
    """Return the scores without a bias, and how much of a change of the products they take on."""
    scores = queries @ np.swapaxes(keys, -1, -2)
    scores = scores * _scale(queries, scale)
    if not softcap:
        return scores, np.ones_like(scores)
    bent = np.tanh(scores / scores.dtype.type(softcap))
    return scores.dtype.type(softcap) * bent, 1 - bent**2


def _masked(
    scores: Array, bias: Array | None, mask: Array | None, *, causal: bool, window: Window | None
) -> Array:
    """Add the bias, and set to -inf what is hidden."""
    if bias is not None:
        scores = scores + bias.astype(scores.dtype)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    rows, columns = scores.shape[-2:]
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None] - (columns - rows)
    left, right = window or (None, None)
    if causal:
        right = 0
    if right is not None:
        scores = np.where(distance <= right, scores, -np.inf)
    if left is not None:
        scores = np.where(distance >= -left, scores, -np.inf)
    return scores


def _exponentials(scores: Array) -> tuple[Array, Array]:
    """Return the exponentials of scores less the highest of their row, and that."""
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    highest = np.where(highest == -np.inf, 0, highest)
    return np.exp(scores - highest), highest
