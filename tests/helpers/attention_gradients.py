"""Operands of attention's gradients, and the gradients in f64 by the closed formula."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from helpers.sides import DTYPES, HostArray, random

_Wide = NDArray[np.float64]


def weights_of(
    q: HostArray, k: HostArray, *, causal: bool, scale: float | None
) -> tuple[_Wide, _Wide]:
    """Return the softmax of the scores, 0 where nothing is seen, and the logarithms of its sums."""
    wide_k = np.repeat(k.astype(np.float64), q.shape[-3] // k.shape[-3], axis=-3)
    scores = q.astype(np.float64) @ np.swapaxes(wide_k, -1, -2)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, keys = scores.shape[-2:]
        scores = np.where(np.tri(rows, keys, keys - rows, dtype=np.bool_), scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True)
    highest = np.where(highest == -np.inf, 0, highest)
    exponentials = np.exp(scores - highest)
    sums = exponentials.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logarithms = (highest + np.log(sums))[..., 0]
    return exponentials / np.where(sums == 0, 1, sums), logarithms


def operands_of(
    sizes: tuple[int, int, int, int, int, int],
    dtype: str,
    *,
    causal: bool = False,
    scale: float | None = None,
    given: tuple[HostArray, HostArray, HostArray, HostArray] | None = None,
) -> list[HostArray]:
    """Return q, k, v, y, lse and dy for batch, heads, heads of K and V, queries, keys, elements.

    `given` are q, k, v and dy if not random ones.
    """
    batch, heads, shared, queries, keys, dim = sizes
    extents = ((heads, queries), (shared, keys), (shared, keys), (heads, queries))
    q, k, v, dy = given or (
        random((batch, *extent, dim), DTYPES[dtype], seed=seed)
        for seed, extent in enumerate(extents)
    )
    weights, logarithms = weights_of(q, k, causal=causal, scale=scale)
    y = weights @ np.repeat(v.astype(np.float64), heads // shared, axis=-3)
    return [q, k, v, y.astype(q.dtype), logarithms.astype(np.float32), dy]


def exact_gradients(
    q: HostArray,
    k: HostArray,
    v: HostArray,
    _y: HostArray,
    _lse: HostArray,
    dy: HostArray,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[_Wide, _Wide, _Wide]:
    """Return the gradients of q, k and v."""
    group = q.shape[-3] // k.shape[-3]
    weights, _ = weights_of(q, k, causal=causal, scale=scale)
    gradient = dy.astype(np.float64)
    wide_k, wide_v = (np.repeat(x.astype(np.float64), group, axis=-3) for x in (k, v))
    by_weights = gradient @ np.swapaxes(wide_v, -1, -2)
    mean = (by_weights * weights).sum(axis=-1, keepdims=True)
    by_scores = weights * (by_weights - mean) * (q.shape[-1] ** -0.5 if scale is None else scale)
    of_keys = np.swapaxes(by_scores, -1, -2) @ q.astype(np.float64)
    of_values = np.swapaxes(weights, -1, -2) @ gradient
    dk, dv = (
        x.reshape(*k.shape[:-2], group, *k.shape[-2:]).sum(axis=-3) for x in (of_keys, of_values)
    )
    return by_scores @ wide_k, dk, dv
