"""The gradients of attention with all that may happen to scores, that of its bias among them.

As `attention_backward`, of which these are the forms with flags, for the same reason as forward:
see `attention_features`. What a weight is and whether dropout keeps it is computed again, from the
same counters.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.attention import (
    LOG2_E,
    heads_of,
    reach_of_rows,
    rows_at,
    seen_in_window,
    tile_of_heads,
)
from tilewright.kernels.attention_backward import of_rows
from tilewright.kernels.attention_features import (
    block_of,
    capped,
    kept_weights,
    sequence_of,
    unit_of,
    with_bias,
)
from tilewright.kernels.random import joined


@tl.kernel
def sums_of(lse, first, queries, BLOCK: tl.constexpr):
    """Return the logarithms of the sums from row `first` on, infinite where a weight is 0."""
    sums = of_rows(lse, first, queries, float("inf"), BLOCK)
    return tl.where(sums == float("-inf"), float("inf"), sums)


@tl.kernel
def sloped(x, scores, softcap):
    """Return `x` times the derivative of the cap where it gives these scores."""
    bent = scores * (1 / softcap)
    return x * (1 - bent * bent)


@tl.kernel
def masked_weights(
    weights, own, length, left, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Set to 0 the weights outside the window; a block that lies inside costs two comparisons."""
    result = weights
    if (tl.minimum(length, own + right + 1) < COLUMNS) | (own + ROWS - 1 > left):
        is_seen = seen_in_window(own, length, left, right, ROWS, COLUMNS)
        result = tl.where(is_seen, weights, 0.0)
    return result


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "dy_batch", "dy_head", "dy_row", "dk_batch", "dk_head", "dk_row",
        "dv_batch", "dv_head", "dv_row",
        "bias_batch", "bias_head", "bias_row", "mask_batch", "mask_head", "mask_row",
    ),
)  # fmt: skip
def featured_key_gradients(
    q, k, v, dy, bias, mask, dk, dv, lse, deltas, q_starts, k_starts,
    q_rows, k_rows, queries, keys, dim, group, stored, batches, heads, shared_heads, band,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    dy_batch, dy_head, dy_row, dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row,
    bias_batch, bias_head, bias_row, mask_batch, mask_head, mask_row,
    scale, softcap, seed0, seed1, seed2, offset0, offset1, offset2, threshold, kept_scale,
    left, right, is_packed, has_bias, has_mask, has_dropout,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradients of K and V, as `key_gradients`, of `featured_attention`.

    Of a block of scores, rows are keys and columns queries. Grid: blocks of keys of all heads.
    """
    batch, head, first = tile_of_heads(keys, shared_heads, batches, band, 0, BLOCK_N)
    qs = heads_of(q, stored, heads, q_rows, dim, q_batch, q_head, q_row, BLOCK_M, BLOCK_D)
    dys = heads_of(dy, stored, heads, q_rows, dim, dy_batch, dy_head, dy_row, BLOCK_M, BLOCK_D)
    ks = heads_of(k, stored, shared_heads, k_rows, dim, k_batch, k_head, k_row, BLOCK_N, BLOCK_D)
    vs = heads_of(v, stored, shared_heads, k_rows, dim, v_batch, v_head, v_row, BLOCK_N, BLOCK_D)
    width = tl.cdiv(keys, 16) * 8
    per_head = tl.cdiv(queries, 16) * 8 * width
    counters = joined(offset0, offset1, offset2) + batch * heads * per_head
    seed = joined(seed0, seed1, seed2)
    bias_origin, mask_origin = bias + batch * bias_batch, mask + batch * mask_batch
    batch, q_start, k_start, queries, keys = sequence_of(
        batch, q_starts, k_starts, queries, keys, is_packed
    )
    key = rows_at(ks, batch, head, k_start + first)
    value = rows_at(vs, batch, head, k_start + first)
    before, behind = right.to(tl.int32), left.to(tl.int32)
    own, length = (first + queries - keys).to(tl.int32), queries.to(tl.int32)
    begin, _, _, end = reach_of_rows(own, length, before, behind, BLOCK_N, BLOCK_M)
    if first >= keys:
        end = begin
    is_bent, unit = unit_of(scale, softcap, has_bias)
    sum_k = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    sum_v = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for member in range(group):
        sharing = head * group + member
        place = (batch * heads + sharing) * q_rows + q_start
        bias_head_origin = bias_origin + sharing * bias_head
        mask_head_origin = mask_origin + sharing * mask_head
        for start in range(begin, end, BLOCK_M):
            query = rows_at(qs, batch, sharing, q_start + start)
            gradient = rows_at(dys, batch, sharing, q_start + start)
            scores = tl.dot(key, tl.trans(query))
            if is_bent:
                scores = capped(scores, scale, softcap)
            bent = scores
            if has_bias != 0:
                added = block_of(
                    bias_head_origin, bias_row, start, queries, first, keys, True, BLOCK_N, BLOCK_M
                )
                scores = with_bias(scores, added)
            logarithms = sums_of(lse + place, start, length, BLOCK_M) * LOG2_E
            weights = tl.exp2(tl.fma(scores, unit, -logarithms[None, :]))
            weights = masked_weights(
                weights, own - start, length - start, before, behind, BLOCK_N, BLOCK_M
            )
            if has_mask != 0:
                is_open = block_of(
                    mask_head_origin, mask_row, start, queries, first, keys, True, BLOCK_N, BLOCK_M
                )
                weights = tl.where(is_open, weights, 0.0)
            used, by_weights = weights, tl.dot(value, tl.trans(gradient))
            if softcap != 0:
                weights = sloped(weights, bent, softcap)
            if has_dropout != 0:
                is_kept = kept_weights(
                    seed, counters + sharing * per_head, width, start, first,
                    threshold.to(tl.uint32), True, BLOCK_N, BLOCK_M,
                )  # fmt: skip
                used = tl.where(is_kept, used * kept_scale, 0.0)
                by_weights = tl.where(is_kept, by_weights * kept_scale, 0.0)
            sum_v = tl.dot(used.to(gradient.dtype), gradient, sum_v)
            row_deltas = of_rows(deltas + place, start, length, 0.0, BLOCK_M)
            inner = weights * (by_weights - row_deltas[None, :])
            sum_k = tl.dot(inner.to(query.dtype), query, sum_k)
    rows, columns = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    inside = rows < tl.minimum(keys - first, BLOCK_N).to(tl.int32)
    mask_d = inside[:, None] & (columns < dim.to(tl.int32))[None, :]
    dk_rows = dk + batch * dk_batch + head * dk_head + (k_start + first) * dk_row
    dv_rows = dv + batch * dv_batch + head * dv_head + (k_start + first) * dv_row
    tl.store(dk_rows + (rows[:, None] * dk_row + columns[None, :]), sum_k * scale, mask=mask_d)
    tl.store(dv_rows + (rows[:, None] * dv_row + columns[None, :]), sum_v, mask=mask_d)


@tl.kernel
def score_gradients(
    query, gradient, key, value, sums, row_deltas,
    bias, bias_row, mask, mask_row, seed, counter, width, threshold, kept_scale,
    scale, softcap, own, first, queries, start, keys, before, behind,
    has_bias, has_mask, has_dropout,
    WITH_CAP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Return the gradient of a block of scores, with the cap's part in it if WITH_CAP."""
    is_bent, unit = unit_of(scale, softcap, has_bias)
    scores = tl.dot(query, tl.trans(key))
    if is_bent:
        scores = capped(scores, scale, softcap)
    bent = scores
    by_weights = tl.dot(gradient, tl.trans(value))
    if has_bias != 0:
        added = block_of(bias, bias_row, first, queries, start, keys, False, BLOCK_M, BLOCK_N)
        scores = with_bias(scores, added)
    weights = tl.exp2(tl.fma(scores, unit, -(sums * LOG2_E)[:, None]))
    length = keys.to(tl.int32)
    weights = masked_weights(weights, own - start, length - start, before, behind, BLOCK_M, BLOCK_N)
    if has_mask != 0:
        is_open = block_of(mask, mask_row, first, queries, start, keys, False, BLOCK_M, BLOCK_N)
        weights = tl.where(is_open, weights, 0.0)
    if WITH_CAP and softcap != 0:
        weights = sloped(weights, bent, softcap)
    if has_dropout != 0:
        is_kept = kept_weights(
            seed, counter, width, first, start, threshold.to(tl.uint32), False, BLOCK_M, BLOCK_N
        )
        by_weights = tl.where(is_kept, by_weights * kept_scale, 0.0)
    return weights * (by_weights - row_deltas[:, None])


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "dy_batch", "dy_head", "dy_row", "dq_batch", "dq_head", "dq_row",
        "bias_batch", "bias_head", "bias_row", "mask_batch", "mask_head", "mask_row",
    ),
)  # fmt: skip
def featured_query_gradients(
    q, k, v, dy, bias, mask, dq, lse, deltas, q_starts, k_starts,
    q_rows, k_rows, queries, keys, dim, group, stored, batches, heads, shared_heads, band,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    dy_batch, dy_head, dy_row, dq_batch, dq_head, dq_row,
    bias_batch, bias_head, bias_row, mask_batch, mask_head, mask_row,
    scale, softcap, seed0, seed1, seed2, offset0, offset1, offset2, threshold, kept_scale,
    left, right, is_packed, has_bias, has_mask, has_dropout,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradient of Q, as `query_gradients`, of `featured_attention`."""
    batch, head, first = tile_of_heads(queries, heads, batches, band, right < queries, BLOCK_M)
    qs = heads_of(q, stored, heads, q_rows, dim, q_batch, q_head, q_row, BLOCK_M, BLOCK_D)
    dys = heads_of(dy, stored, heads, q_rows, dim, dy_batch, dy_head, dy_row, BLOCK_M, BLOCK_D)
    ks = heads_of(k, stored, shared_heads, k_rows, dim, k_batch, k_head, k_row, BLOCK_N, BLOCK_D)
    vs = heads_of(v, stored, shared_heads, k_rows, dim, v_batch, v_head, v_row, BLOCK_N, BLOCK_D)
    shared_head = (head.to(tl.int32) // group.to(tl.int32)).to(tl.int64)
    width = tl.cdiv(keys, 16) * 8
    counter = (batch * heads + head) * (tl.cdiv(queries, 16) * 8) * width
    counter += joined(offset0, offset1, offset2)
    seed = joined(seed0, seed1, seed2)
    bias_origin = bias + batch * bias_batch + head * bias_head
    mask_origin = mask + batch * mask_batch + head * mask_head
    batch, q_start, k_start, queries, keys = sequence_of(
        batch, q_starts, k_starts, queries, keys, is_packed
    )
    query = rows_at(qs, batch, head, q_start + first)
    gradient = rows_at(dys, batch, head, q_start + first)
    before, behind = left.to(tl.int32), right.to(tl.int32)
    own, length = (first + keys - queries).to(tl.int32), keys.to(tl.int32)
    begin, _, _, end = reach_of_rows(own, length, before, behind, BLOCK_M, BLOCK_N)
    if first >= queries:
        end = begin
    place = (batch * heads + head) * q_rows + q_start
    sums = sums_of(lse + place, first, queries, BLOCK_M)
    row_deltas = of_rows(deltas + place, first, queries, 0.0, BLOCK_M)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(begin, end, BLOCK_N):
        key = rows_at(ks, batch, shared_head, k_start + start)
        value = rows_at(vs, batch, shared_head, k_start + start)
        inner = score_gradients(
            query, gradient, key, value, sums, row_deltas,
            bias_origin, bias_row, mask_origin, mask_row, seed, counter, width, threshold,
            kept_scale, scale, softcap, own, first, queries, start, keys, before, behind,
            has_bias, has_mask, has_dropout, True, BLOCK_M, BLOCK_N,
        )  # fmt: skip
        total = tl.dot(inner.to(key.dtype), key, total)
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    inside = rows < tl.minimum(queries - first, BLOCK_M).to(tl.int32)
    dq_rows = dq + batch * dq_batch + head * dq_head + (q_start + first) * dq_row
    tl.store(
        dq_rows + (rows[:, None] * dq_row + columns[None, :]),
        total * scale,
        mask=inside[:, None] & (columns < dim.to(tl.int32))[None, :],
    )


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "dy_batch", "dy_head", "dy_row",
        "bias_batch", "bias_head", "bias_row", "mask_batch", "mask_head", "mask_row",
    ),
)  # fmt: skip
def bias_gradients(
    q, k, v, dy, bias, mask, dbias, lse, deltas,
    queries, keys, dim, group, batches, heads, shared_heads,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    dy_batch, dy_head, dy_row, dbias_batch, dbias_head, dbias_row,
    bias_batch, bias_head, bias_row, mask_batch, mask_head, mask_row,
    all_batches, all_heads, all_rows, all_columns,
    scale, softcap, seed0, seed1, seed2, offset0, offset1, offset2, threshold, kept_scale,
    left, right, has_bias, has_mask, has_dropout,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a bias, summed in a fixed order along the axes that it lacks.

    `all_batches` and so on are 1 where one element of the bias serves the whole axis, else 0. Grid:
    blocks of its rows and columns, its heads and batches.
    """
    row_blocks, column_blocks = tl.cdiv(queries, BLOCK_M), tl.cdiv(keys, BLOCK_N)
    columns_own = tl.where(all_columns != 0, 1, column_blocks)
    rows_own = tl.where(all_rows != 0, 1, row_blocks)
    heads_own = tl.where(all_heads != 0, 1, heads)
    program = tl.program_id(0)
    own_column, own_row = program % columns_own, program // columns_own % rows_own
    own_head = program // (columns_own * rows_own) % heads_own
    own_batch = program // (columns_own * rows_own * heads_own)
    columns_here = column_blocks // columns_own
    rows_here = row_blocks // rows_own
    heads_here = heads // heads_own
    batches_here = tl.where(all_batches != 0, batches, 1)
    qs = heads_of(q, batches, heads, queries, dim, q_batch, q_head, q_row, BLOCK_M, BLOCK_D)
    dys = heads_of(dy, batches, heads, queries, dim, dy_batch, dy_head, dy_row, BLOCK_M, BLOCK_D)
    ks = heads_of(k, batches, shared_heads, keys, dim, k_batch, k_head, k_row, BLOCK_N, BLOCK_D)
    vs = heads_of(v, batches, shared_heads, keys, dim, v_batch, v_head, v_row, BLOCK_N, BLOCK_D)
    width = tl.cdiv(keys, 16) * 8
    per_head = tl.cdiv(queries, 16) * 8 * width
    counters, seed = joined(offset0, offset1, offset2), joined(seed0, seed1, seed2)
    before, behind = left.to(tl.int32), right.to(tl.int32)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(columns_here * rows_here * heads_here * batches_here):
        start = (own_column + step % columns_here) * BLOCK_N
        first = (own_row + step // columns_here % rows_here) * BLOCK_M
        head = own_head + step // (columns_here * rows_here) % heads_here
        batch = own_batch + step // (columns_here * rows_here * heads_here)
        shared_head = head // group
        number = batch * heads + head
        place = number * queries
        total += score_gradients(
            rows_at(qs, batch, head, first),
            rows_at(dys, batch, head, first),
            rows_at(ks, batch, shared_head, start),
            rows_at(vs, batch, shared_head, start),
            sums_of(lse + place, first, queries, BLOCK_M),
            of_rows(deltas + place, first, queries, 0.0, BLOCK_M),
            bias + batch * bias_batch + head * bias_head, bias_row,
            mask + batch * mask_batch + head * mask_head, mask_row,
            seed, counters + number * per_head, width, threshold, kept_scale,
            scale, softcap, (first + keys - queries).to(tl.int32), first, queries, start, keys,
            before, behind, has_bias, has_mask, has_dropout, False, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    row_count = tl.minimum(queries - own_row * BLOCK_M, BLOCK_M).to(tl.int32)
    column_count = tl.minimum(keys - own_column * BLOCK_N, BLOCK_N).to(tl.int32)
    if all_rows != 0:
        total = tl.broadcast_to(tl.sum(total, axis=0)[None, :], (BLOCK_M, BLOCK_N))
        row_count = tl.minimum(row_count, 1)
    if all_columns != 0:
        total = tl.broadcast_to(tl.sum(total, axis=1)[:, None], (BLOCK_M, BLOCK_N))
        column_count = tl.minimum(column_count, 1)
    origin = dbias + own_batch * dbias_batch + own_head * dbias_head
    origin += own_row * BLOCK_M * dbias_row + own_column * BLOCK_N
    tl.store(
        origin + (rows[:, None] * dbias_row + columns[None, :]),
        total,
        mask=(rows < row_count)[:, None] & (columns < column_count)[None, :],
    )
