"""Cross entropy of a row of 2-byte elements, of which registers hold as many as they have room for.

What does not fit is walked, with the recurrence of `kernels.cross_entropy_walk`, and read again
from the L2 cache, which has room for that much of the rows that all programs are at. Elements wait
as they were loaded, as pairs in words, and are converted where they are used, see
`kernels.norm_parts`.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.cross_entropy_parts import (
    IGNORED,
    finished_loss,
    gradient_of,
    store_zeros,
    upstream,
    weight_of,
)
from tilewright.kernels.cross_entropy_walk import folded, take_folded
from tilewright.kernels.norm_parts import as_words, halves, held_back
from tilewright.kernels.rows import edge_of, joined, load_part
from tilewright.kernels.softmax import LOG2_E, LOWEST, exponential

# Parts that registers hold.
HELD = tl.constexpr(8)


@tl.kernel
def largest_of(words, otherwise, dtype: tl.constexpr):
    """Return the largest of what lies in words, and of a number."""
    half: tl.constexpr = words[0].numel
    highest = tl.full((half,), LOWEST, tl.float32)
    for i in tl.static_range(len(words)):
        low, high = halves(words[i], dtype)
        highest = tl.maximum(highest, tl.maximum(low, high))
    return tl.maximum(otherwise, tl.max(highest, axis=0))


@tl.kernel
def sum_of_exponentials(words, highest, dtype: tl.constexpr):
    """Return the sum of exponentials relative to `highest`."""
    half: tl.constexpr = words[0].numel
    total = tl.zeros((half,), tl.float32)
    for i in tl.static_range(len(words)):
        low, high = halves(words[i], dtype)
        low = tl.exp2((low - highest) * LOG2_E)
        total = total + (low + tl.exp2((high - highest) * LOG2_E))
    return tl.sum(total, axis=0)


@tl.kernel
def all_held_back(words, result):
    """Return words so that the compiler converts them anew behind `result`."""
    again = ()
    for i in tl.static_range(len(words)):
        again = joined(again, held_back(words[i], result))
    return again


@tl.kernel
def store_chunk(
    dx_row, values, lanes, mask, highest, place, factor, share, confidence,
):  # fmt: skip
    """Write the gradient of some elements."""
    result = exponential(values, highest)
    result = gradient_of(result, lanes, place, factor, share, confidence)
    tl.store(dx_row + lanes, result, mask=mask, eviction_policy="evict_first")


@tl.kernel
def entropy_of_held_row(
    x_row, dx_row, lead, columns, place, weight, has_weight, loss_of_row, given, counted, is_mean,
    smoothing, z_loss, has_gradient,
    PART: tl.constexpr, STAGES: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write loss and gradient of a row of which HELD * PART elements are held, and others walked.

    A row that does not count is read too, as in `entropy_of_row`.
    """
    dtype: tl.constexpr = x_row.dtype
    width = columns - lead
    body = width & -8
    edge_lanes, inside = edge_of(lead, body, width, 16)
    lowest = float("-inf")
    words = ()
    for i in tl.static_range(HELD):
        part = load_part(x_row, i * PART, (i + 1) * PART, body, lowest, ".cg")
        words = joined(words, as_words(part))
    edge = tl.load(x_row + edge_lanes, mask=inside, other=lowest).to(tl.float32)
    first = HELD * PART
    full = first + tl.maximum(body - first, 0) // BLOCK_N * BLOCK_N
    rest = full + tl.arange(0, BLOCK_N)
    running_max = tl.full((rest.numel // 8,), LOWEST, tl.float32)
    running_sum = tl.zeros((rest.numel // 8,), tl.float32)
    for start in tl.range(first, full, BLOCK_N, num_stages=STAGES):
        values = tl.async_copy(x_row + start + tl.arange(0, BLOCK_N), cache_modifier=".cg")
        rows = folded(values, 1, 8)
        running_max, running_sum = take_folded(running_max, running_sum, rows, 1)
    if full < body:
        rows = folded(tl.load(x_row + rest, mask=rest < body, other=lowest), 1, 8)
        running_max, running_sum = take_folded(running_max, running_sum, rows, 1)
    column = place - lead
    at_target = tl.load(x_row + column, mask=place >= 0, other=float("nan")).to(tl.float32)
    confidence = weight_of(weight, place, has_weight) * (1 - smoothing)
    highest = tl.maximum(tl.max(running_max, axis=0), tl.max(edge, axis=0))
    highest = largest_of(words, highest, dtype)
    again = all_held_back(words, highest)
    total = tl.sum(running_sum * tl.exp2((running_max - highest) * LOG2_E), axis=0)
    total = total + tl.sum(exponential(edge, highest), axis=0)
    total = total + sum_of_exponentials(again, highest, dtype)
    factor = finished_loss(
        highest, total, at_target, confidence, place, x_row - lead, columns, smoothing, z_loss,
        loss_of_row, PART,
    )  # fmt: skip
    if has_gradient != 0:
        if place == IGNORED:
            store_zeros(dx_row, lead, columns, PART)
        else:
            given = upstream(given, counted, place, is_mean)
            factor = given * factor / total
            share = given * (smoothing / columns)
            less = given * confidence
            edge_lanes, inside = edge_of(lead, body, width, 16)
            edge = tl.load(x_row + edge_lanes, mask=inside).to(tl.float32)
            store_chunk(dx_row, edge, edge_lanes, inside, highest, column, factor, share, less)
            if full < body:
                mask = rest < body
                values = tl.load(x_row + rest, mask=mask)
                store_chunk(dx_row, values, rest, mask, highest, column, factor, share, less)
            for passed in tl.range(first, full, BLOCK_N, num_stages=STAGES):
                # In place too nothing is copied after it was written.
                lanes = full + first - BLOCK_N - passed + tl.arange(0, BLOCK_N)
                values = tl.async_copy(x_row + lanes, cache_modifier=".cg")
                store_chunk(dx_row, values, lanes, None, highest, column, factor, share, less)
            last = all_held_back(again, total)
            for i in tl.static_range(HELD):
                low, high = halves(last[i], dtype)
                lanes = i * PART + tl.arange(0, PART)
                store_chunk(
                    dx_row, tl.interleave(low, high), lanes, lanes < body, highest, column,
                    factor, share, less,
                )  # fmt: skip
