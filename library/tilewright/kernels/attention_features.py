"""Attention with all that may happen to scores: a cap, masks, dropout, sequences in a row.

As `attention_blocks`, but a run-time flag each decides what is done to the scores of every block.
In the kernel without them these flags would take registers and instructions of the loop that most
calls run, so this is one of its own.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.attention import (
    LN_2,
    LOG2_E,
    SMALLEST,
    heads_of,
    masked_scores,
    reach_of_rows,
    rows_at,
    tile_of_heads,
)
from tilewright.kernels.random import joined

LEAST = tl.constexpr(-2e38)


@tl.kernel
def capped(scores, scale, softcap):
    """Return `softcap * tanh(scale * scores / softcap)`; with a cap of 0, `scale * scores`."""
    result = scores * scale
    if softcap != 0:
        # 1 - 2 / (1 + exp(2 x)), which overflows to the right values.
        powers = tl.exp2(result * (2 * LOG2_E / softcap))
        result = softcap - tl.fdiv(2 * softcap, 1 + powers)
    return result


@tl.kernel
def unit_of(scale, softcap, has_bias):
    """Return whether scores are bent, and by what they are multiplied in the exponent of 2.

    Scores stay as the product gives them, up to the scale, unless a cap or a bias needs them, or
    the largest product would not be the largest score.
    """
    is_bent = (softcap != 0) | (has_bias != 0) | (scale < SMALLEST)
    return is_bent, tl.where(is_bent, 1.0, scale) * LOG2_E


@tl.kernel
def with_bias(scores, added):
    """Return scores with a bias added, which may be the least number of its dtype.

    Such a one is raised to what is finite in units of the exponent of 2; -inf stays.
    """
    result = scores + added.to(tl.float32)
    return tl.where(result == float("-inf"), result, tl.maximum(result, LEAST))


@tl.kernel
def block_of(
    x, row, first, queries, start, keys, IS_TRANSPOSED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return a block of what is added to scores, or hides them; of keys past the last, anything.

    It begins at query `first` and key `start`; its rows are keys with `IS_TRANSPOSED`. Queries past
    the last are that one, and rows go on to a multiple of 16 keys, so that one condition serves the
    neighbours that one load takes.
    """
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    first, start = tl.multiple_of(first, 16), tl.multiple_of(start, 16)
    last_query = (queries - 1 - first).to(tl.int32)
    key_count = tl.cdiv((keys - start).to(tl.int32), 16) * 16
    origin = x + first * row + start
    if IS_TRANSPOSED:
        pointers = (origin + tl.minimum(columns, last_query) * row)[None, :] + rows[:, None]
        mask = tl.broadcast_to((rows < key_count)[:, None], (ROWS, COLUMNS))
    else:
        pointers = (origin + tl.minimum(rows, last_query) * row)[:, None] + columns[None, :]
        mask = tl.broadcast_to((columns < key_count)[None, :], (ROWS, COLUMNS))
    return tl.load(pointers, mask=mask)


@tl.kernel
def sequence_of(batch, q_starts, k_starts, queries, keys, is_packed):
    """Return batch, first rows of Q and K, and the lengths of a sequence.

    With `is_packed` all lie in a row, each from its start to that of the next.
    """
    q_start, k_start = queries * 0, keys * 0
    if is_packed != 0:
        q_start = tl.load(q_starts + batch).to(tl.int64)
        k_start = tl.load(k_starts + batch).to(tl.int64)
        queries = tl.load(q_starts + batch + 1).to(tl.int64) - q_start
        keys = tl.load(k_starts + batch + 1).to(tl.int64) - k_start
        batch = batch * 0
    return batch, q_start, k_start, queries, keys


@tl.kernel
def in_rows(x, y, EIGHTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return `ROWS` rows, eight of `x` and eight of `y` in turn."""
    both = tl.reshape(tl.join(x, y), (EIGHTS, 8, COLUMNS, 2))
    return tl.reshape(tl.permute(both, (0, 3, 1, 2)), (ROWS, COLUMNS))


@tl.kernel
def in_columns(x, y, EIGHTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return `COLUMNS` columns, eight of `x` and eight of `y` in turn."""
    both = tl.reshape(tl.join(x, y), (ROWS, EIGHTS, 8, 2))
    return tl.reshape(tl.permute(both, (0, 1, 3, 2)), (ROWS, COLUMNS))


@tl.kernel
def in_squares(
    a, b, c, d, HALF_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Return squares of eight by eight elements of `a` and `b` side by side, `c` and `d` below."""
    above = in_columns(a, b, COLUMNS // 16, HALF_ROWS, COLUMNS)
    below = in_columns(c, d, COLUMNS // 16, HALF_ROWS, COLUMNS)
    return in_rows(above, below, ROWS // 16, ROWS, COLUMNS)


@tl.kernel
def counters_of(width, IS_TRANSPOSED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the counters of a block, from that of its first weights on."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    if IS_TRANSPOSED:
        return rows.to(tl.int64) + columns.to(tl.int64) * width
    return rows.to(tl.int64) * width + columns.to(tl.int64)


@tl.kernel
def kept_weights(
    seed, counter, width, first, start, threshold,
    IS_TRANSPOSED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return which weights of a block dropout keeps, as `reference.attention_features.kept`.

    `counter` is that of the head's first weight, and `width` how many counters a query has. The
    block begins at query `first` and key `start`; its rows are keys with `IS_TRANSPOSED`.
    """
    places = counters_of(width, IS_TRANSPOSED, ROWS // 2, COLUMNS // 2)
    words = tl.randint4x(seed, places + (counter + first // 2 * width + start // 2))
    # Compared before they are put in order: words would stay in registers, four for each counter.
    a, b, c, d = (
        (words[0] >> 1) >= threshold,
        (words[1] >> 1) >= threshold,
        (words[2] >> 1) >= threshold,
        (words[3] >> 1) >= threshold,
    )
    if IS_TRANSPOSED:
        return in_squares(a, c, b, d, ROWS // 2, ROWS, COLUMNS)
    return in_squares(a, b, c, d, ROWS // 2, ROWS, COLUMNS)


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "out_batch", "out_head", "out_row",
        "bias_batch", "bias_head", "bias_row", "mask_batch", "mask_head", "mask_row",
    ),
)  # fmt: skip
def featured_attention(
    q, k, v, bias, mask, out, lse, q_starts, k_starts,
    q_rows, k_rows, queries, keys, dim, group, stored, batches, heads, shared_heads, band,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    out_batch, out_head, out_row, lse_batch, lse_head,
    bias_batch, bias_head, bias_row, mask_batch, mask_head, mask_row,
    scale, softcap, seed0, seed1, seed2, offset0, offset1, offset2, threshold, kept_scale,
    left, right, is_packed, has_bias, has_mask, has_dropout, has_lse,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Do as `attention_blocks`, for any scale, with what `reference.attention` does to scores.

    Q has `q_rows` rows of each head, K and V `k_rows`, in `stored` batches. With `is_packed` there
    is one, of `batches` sequences in a row, up to `queries` and `keys` long. Where a bias or a mask
    has strides of 0 it is broadcast, and its keys lie one behind the other. Weights are dropped
    below `threshold`, and all results multiplied by `kept_scale`.
    """
    batch, head, first = tile_of_heads(queries, heads, batches, band, right < queries, BLOCK_M)
    qs = heads_of(q, stored, heads, q_rows, dim, q_batch, q_head, q_row, BLOCK_M, BLOCK_D)
    ks = heads_of(k, stored, shared_heads, k_rows, dim, k_batch, k_head, k_row, BLOCK_N, BLOCK_D)
    vs = heads_of(v, stored, shared_heads, k_rows, dim, v_batch, v_head, v_row, BLOCK_N, BLOCK_D)
    shared_head = (head.to(tl.int32) // group.to(tl.int32)).to(tl.int64)
    number = batch * heads + head
    width = tl.cdiv(keys, 16) * 8
    counter = joined(offset0, offset1, offset2) + number * (tl.cdiv(queries, 16) * 8) * width
    seed = joined(seed0, seed1, seed2)
    bias_origin = bias + batch * bias_batch + head * bias_head
    mask_origin = mask + batch * mask_batch + head * mask_head
    batch, q_start, k_start, queries, keys = sequence_of(
        batch, q_starts, k_starts, queries, keys, is_packed
    )
    own, length = (first + keys - queries).to(tl.int32), keys.to(tl.int32)
    before, behind = left.to(tl.int32), right.to(tl.int32)
    begin, _, _, end = reach_of_rows(own, length, before, behind, BLOCK_M, BLOCK_N)
    if first >= queries:
        end = begin
    query = rows_at(qs, batch, head, q_start + first)
    lanes_m, lanes_d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    inside_m = lanes_m < tl.minimum(queries - first, BLOCK_M).to(tl.int32)
    is_bent, unit = unit_of(scale, softcap, has_bias)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(begin, end, BLOCK_N):
        key = rows_at(ks, batch, shared_head, k_start + start)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        value = rows_at(vs, batch, shared_head, k_start + start)
        if is_bent:
            scores = capped(scores, scale, softcap)
        if has_bias != 0:
            added = block_of(
                bias_origin, bias_row, first, queries, start, keys, False, BLOCK_M, BLOCK_N
            )
            scores = with_bias(scores, added)
        if has_mask != 0:
            is_open = block_of(
                mask_origin, mask_row, first, queries, start, keys, False, BLOCK_M, BLOCK_N
            )
            scores = tl.where(is_open, scores, float("-inf"))
        scores = masked_scores(
            scores, own - start, length - start, before, behind, BLOCK_M, BLOCK_N
        )
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        top = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(tl.fma(scores, unit, -(top * unit)[:, None]))
        decay = tl.exp2((row_max - top) * unit)
        row_sum = row_sum * decay + tl.sum(weights, axis=1)
        if has_dropout != 0:
            is_kept = kept_weights(
                seed, counter, width, first, start, threshold.to(tl.uint32), False, BLOCK_M, BLOCK_N
            )
            weights = tl.where(is_kept, weights, 0.0)
        total = tl.dot(
            weights.to(value.dtype), value, total * decay[:, None], input_precision=PRECISION
        )
        row_max = new_max
    total = total * tl.where(row_sum == 0.0, 0.0, kept_scale / row_sum)[:, None]
    out_rows = out + batch * out_batch + head * out_head + (q_start + first) * out_row
    tl.store(
        out_rows + (lanes_m[:, None] * out_row + lanes_d[None, :]),
        total,
        mask=inside_m[:, None] & (lanes_d < dim.to(tl.int32))[None, :],
    )
    if has_lse != 0:
        sums = lse + batch * lse_batch + head * lse_head + q_start + first + lanes_m
        tl.store(sums, row_max * (unit * LN_2) + tl.log2(row_sum) * LN_2, mask=inside_m)
