"""Scaled dot-product attention: Vaswani et al., "Attention Is All You Need" (2017)."""

from __future__ import annotations

import math

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
    heads, shared = q.shape[-3], k.shape[-3]
    if shared == 0 or heads % shared:
        msg = f"attention: {heads} heads of q cannot share {shared} heads of k and v"
        raise ArgumentError(msg)
    queries, keys, values = (
        factor(x, input_precision=input_precision, operation="attention") for x in (q, k, v)
    )
    keys, values = (np.repeat(x, heads // shared, axis=-3) for x in (keys, values))
    scores = queries @ np.swapaxes(keys, -1, -2)
    scores = scores * scores.dtype.type(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if bias is not None:
        scores = scores + bias.astype(scores.dtype)
    if causal:
        rows, columns = scores.shape[-2:]
        is_seen = np.tri(rows, columns, columns - rows, dtype=np.bool_)
        scores = np.where(is_seen, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    highest = np.where(highest == -np.inf, 0, highest)
    exponentials = np.exp(scores - highest)
    sums = exponentials.sum(axis=-1, keepdims=True)
    result = exponentials @ values / np.where(sums == 0, 1, sums)
    return rounded(result, from_numpy(q.dtype)), (highest + np.log(sums))[..., 0]
