"""What may happen to the scores and weights of attention: a cap, masks, dropout by counter."""

from __future__ import annotations

import math

import numpy as np

from tilewright.reference.precision import Array
from tilewright.reference.random import words_at

Window = tuple[int | None, int | None]


def capped(scores: Array, softcap: float) -> tuple[Array, Array]:
    """Return `softcap * tanh(scores / softcap)` and its derivative; without a cap the scores."""
    if not softcap:
        return scores, np.ones_like(scores)
    bent = np.tanh(scores / scores.dtype.type(softcap))
    return scores.dtype.type(softcap) * bent, 1 - bent**2


def hidden(
    scores: Array, bias: Array | None, mask: Array | None, *, causal: bool, window: Window | None
) -> Array:
    """Return scores with the bias added, and -inf where a key is hidden."""
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
