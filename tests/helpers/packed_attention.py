"""Attention of sequences in a row, one after the other, by the definition in fp64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.sides import HostArray
from tilewright.reference import attention as definition


def exact_in_turn(
    q: HostArray,
    k: HostArray,
    v: HostArray,
    dy: HostArray,
    q_starts: Sequence[int],
    k_starts: Sequence[int],
    **options: Any,
) -> list[Any]:
    """Return attention, the logarithms of its sums, and the gradients of q, k and v.

    q and dy are `[H, rows, D]`, k and v `[G, rows, D]`.
    """
    results: list[Any] = [np.zeros(x.shape) for x in (q, q[..., 0], q, k, v)]
    for number in range(len(q_starts) - 1):
        rows, keys = (slice(*x[number : number + 2]) for x in (q_starts, k_starts))
        alone = [q[:, rows], k[:, keys], v[:, keys]]
        wide = [x.astype(np.float64) for x in (*alone, dy[:, rows])]
        results[0][:, rows], results[1][:, rows] = definition.attention(*wide[:3], **options)
        gradients = definition.attention_backward(*wide, **options)
        for place, part, gradient in zip((2, 3, 4), (rows, keys, keys), gradients, strict=True):
            results[place][:, part] = gradient
    return results
