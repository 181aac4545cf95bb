"""Attention backward: the gradients of Q, K and V, without a matrix of scores in memory.

The weights of a block are computed again from the logarithms of the sums that attention wrote, as
in FlashAttention-2 (Dao 2023). One kernel walks the queries of a block of keys, the other the keys
of a block of queries: the scores are computed twice, and no two programs add to one place, so that
the order of every sum is fixed. Blocks that every row sees whole have loops of their own, without
masks, before those at the edges of the window.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.attention import (
    LOG2_E,
    around_whole,
    heads_of,
    reach_of_rows,
    rows_at,
    seen_in_window,
    tile_of_heads,
)


@tl.kernel(divisible=("dim", "y_batch", "y_head", "y_row", "dy_batch", "dy_head", "dy_row"))
def row_products(
    y, dy, deltas,
    queries, dim, heads, batches,
    y_batch, y_head, y_row, dy_batch, dy_head, dy_row,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write `sum(y * dy)` of each row to the row-major `deltas`.

    Grid: blocks of queries of all heads.
    """
    batch, head, first = tile_of_heads(queries, heads, batches, heads * 0 + 1, 0, BLOCK_M)
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    inside = rows < tl.minimum(queries - first, BLOCK_M).to(tl.int32)
    mask = inside[:, None] & (columns < dim.to(tl.int32))[None, :]
    y_rows = y + batch * y_batch + head * y_head + first * y_row
    dy_rows = dy + batch * dy_batch + head * dy_head + first * dy_row
    left = tl.load(y_rows + (rows[:, None] * y_row + columns[None, :]), mask=mask)
    right = tl.load(dy_rows + (rows[:, None] * dy_row + columns[None, :]), mask=mask)
    products = left.to(tl.float32) * right.to(tl.float32)
    place = (batch * heads + head) * queries + first
    tl.store(deltas + place + rows, tl.sum(products, axis=1), mask=inside)


@tl.kernel
def of_rows(x, first, queries, other: tl.constexpr, BLOCK: tl.constexpr):
    """Return what belongs to the rows from `first` on; `other` past the last."""
    rows = tl.arange(0, BLOCK)
    inside = rows < tl.minimum(queries - first, BLOCK).to(tl.int32)
    return tl.load(x + first + rows, mask=inside, other=other)


@tl.kernel
def add_queries(
    key, value, query, gradient, sums, deltas, start, queries, unit, own, before, behind,
    sum_k, sum_v,
    MASKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Add a block of queries to the gradients of a block of keys and values, transposed.

    With `MASKED` key j is seen by query i if `-before <= i - j - own <= behind`.
    """
    scores = tl.dot(key, tl.trans(query))
    # Past the last query the sum is infinite and the weights 0.
    logarithms = of_rows(sums, start, queries, float("inf"), BLOCK_M) * LOG2_E
    weights = tl.exp2(tl.fma(scores, unit, -logarithms[None, :]))
    if MASKED:
        # Of what no query sees the weight may be infinite.
        is_seen = seen_in_window(own - start, BLOCK_M, before, behind, BLOCK_N, BLOCK_M)
        weights = tl.where(is_seen, weights, 0.0)
    sum_v = tl.dot(weights.to(gradient.dtype), gradient, sum_v)
    weight_gradients = tl.dot(value, tl.trans(gradient))
    inner = weights * (weight_gradients - of_rows(deltas, start, queries, 0.0, BLOCK_M)[None, :])
    sum_k = tl.dot(inner.to(query.dtype), query, sum_k)
    return sum_k, sum_v


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "dy_batch", "dy_head", "dy_row", "dk_batch", "dk_head", "dk_row",
        "dv_batch", "dv_head", "dv_row",
    ),
)  # fmt: skip
def key_gradients(
    q, k, v, dy, dk, dv, lse, deltas,
    queries, keys, dim, group, batches, shared_heads, band,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    dy_batch, dy_head, dy_row, dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row,
    scale, left, right,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradients of K and V: of what `group` heads of Q do with a head of them.

    `lse` is what `attention` writes, `deltas` the `row_products` of its result and `dy`, both
    row-major. Grid: blocks of keys of all heads, in the order of `tile_of_heads`; the first see the
    most queries.
    """
    batch, head, first = tile_of_heads(keys, shared_heads, batches, band, 0, BLOCK_N)
    heads = shared_heads * group
    qs = heads_of(q, batches, heads, queries, dim, q_batch, q_head, q_row, BLOCK_M, BLOCK_D)
    dys = heads_of(dy, batches, heads, queries, dim, dy_batch, dy_head, dy_row, BLOCK_M, BLOCK_D)
    ks = heads_of(k, batches, shared_heads, keys, dim, k_batch, k_head, k_row, BLOCK_N, BLOCK_D)
    vs = heads_of(v, batches, shared_heads, keys, dim, v_batch, v_head, v_row, BLOCK_N, BLOCK_D)
    dks = heads_of(
        dk, batches, shared_heads, keys, dim, dk_batch, dk_head, dk_row, BLOCK_N, BLOCK_D
    )
    dvs = heads_of(
        dv, batches, shared_heads, keys, dim, dv_batch, dv_head, dv_row, BLOCK_N, BLOCK_D
    )
    key = rows_at(ks, batch, head, first)
    value = rows_at(vs, batch, head, first)
    # Seen from the keys, queries are behind that window of which keys are before, and rows past the
    # last query weigh nothing. Lengths are below 2**31, as forward.
    before, behind = right.to(tl.int32), left.to(tl.int32)
    own, length = (first + queries - keys).to(tl.int32), queries.to(tl.int32)
    begin, whole, whole_end, end = reach_of_rows(
        own, tl.cdiv(length, BLOCK_M) * BLOCK_M, before, behind, BLOCK_N, BLOCK_M
    )
    between = whole_end - whole
    unit = scale * LOG2_E
    sum_k = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    sum_v = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for member in range(group):
        sharing = head * group + member
        place = (batch * heads + sharing) * queries
        for start in range(whole, whole_end, BLOCK_M):
            query = rows_at(qs, batch, sharing, start)
            gradient = rows_at(dys, batch, sharing, start)
            sum_k, sum_v = add_queries(
                key, value, query, gradient, lse + place, deltas + place, start, length, unit,
                own, before, behind, sum_k, sum_v, False, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        for step in range(begin + between, end, BLOCK_M):
            start = around_whole(step, whole_end, between)
            query = rows_at(qs, batch, sharing, start)
            gradient = rows_at(dys, batch, sharing, start)
            sum_k, sum_v = add_queries(
                key, value, query, gradient, lse + place, deltas + place, start, length, unit,
                own, before, behind, sum_k, sum_v, True, BLOCK_M, BLOCK_N,
            )  # fmt: skip
    dvs.store([batch, head, first, 0], tl.reshape(sum_v.to(dv.dtype), (1, 1, BLOCK_N, BLOCK_D)))
    sum_k = sum_k * scale
    dks.store([batch, head, first, 0], tl.reshape(sum_k.to(dk.dtype), (1, 1, BLOCK_N, BLOCK_D)))


@tl.kernel
def add_keys(
    query, gradient, key, value, logarithms, deltas, unit, start, keys, own, before, behind, total,
    MASKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Add a block of keys to the gradient of a block of queries.

    With `MASKED` query i sees key j if `-before <= j - i - own <= behind`, and if there is one.
    """
    scores = tl.dot(query, tl.trans(key))
    weight_gradients = tl.dot(gradient, tl.trans(value))
    weights = tl.exp2(tl.fma(scores, unit, -logarithms[:, None]))
    if MASKED:
        # Of what no query sees the weight may be infinite, also past the last key.
        is_seen = seen_in_window(own - start, keys - start, before, behind, BLOCK_M, BLOCK_N)
        weights = tl.where(is_seen, weights, 0.0)
    inner = weights * (weight_gradients - deltas[:, None])
    return tl.dot(inner.to(key.dtype), key, total)


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "dy_batch", "dy_head", "dy_row", "dq_batch", "dq_head", "dq_row",
    ),
)  # fmt: skip
def query_gradients(
    q, k, v, dy, dq, lse, deltas,
    queries, keys, dim, group, batches, shared_heads, band,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    dy_batch, dy_head, dy_row, dq_batch, dq_head, dq_row,
    scale, left, right,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradient of Q. Grid: blocks of queries of all heads, in that order."""
    heads = shared_heads * group
    batch, head, first = tile_of_heads(queries, heads, batches, band, right < queries, BLOCK_M)
    qs = heads_of(q, batches, heads, queries, dim, q_batch, q_head, q_row, BLOCK_M, BLOCK_D)
    dys = heads_of(dy, batches, heads, queries, dim, dy_batch, dy_head, dy_row, BLOCK_M, BLOCK_D)
    ks = heads_of(k, batches, shared_heads, keys, dim, k_batch, k_head, k_row, BLOCK_N, BLOCK_D)
    vs = heads_of(v, batches, shared_heads, keys, dim, v_batch, v_head, v_row, BLOCK_N, BLOCK_D)
    dqs = heads_of(dq, batches, heads, queries, dim, dq_batch, dq_head, dq_row, BLOCK_M, BLOCK_D)
    shared_head = (head.to(tl.int32) // group.to(tl.int32)).to(tl.int64)
    query = rows_at(qs, batch, head, first)
    gradient = rows_at(dys, batch, head, first)
    before, behind = left.to(tl.int32), right.to(tl.int32)
    own, length = (first + keys - queries).to(tl.int32), keys.to(tl.int32)
    begin, whole, whole_end, end = reach_of_rows(own, length, before, behind, BLOCK_M, BLOCK_N)
    unit = scale * LOG2_E
    place = (batch * heads + head) * queries
    logarithms = of_rows(lse + place, first, queries, float("inf"), BLOCK_M) * LOG2_E
    row_deltas = of_rows(deltas + place, first, queries, 0.0, BLOCK_M)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(whole, whole_end, BLOCK_N):
        key = rows_at(ks, batch, shared_head, start)
        value = rows_at(vs, batch, shared_head, start)
        total = add_keys(
            query, gradient, key, value, logarithms, row_deltas, unit, start, length,
            own, before, behind, total, False, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    between = whole_end - whole
    for step in range(begin + between, end, BLOCK_N):
        start = around_whole(step, whole_end, between)
        key = rows_at(ks, batch, shared_head, start)
        value = rows_at(vs, batch, shared_head, start)
        total = add_keys(
            query, gradient, key, value, logarithms, row_deltas, unit, start, length,
            own, before, behind, total, True, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    total = total * scale
    dqs.store([batch, head, first, 0], tl.reshape(total.to(dq.dtype), (1, 1, BLOCK_M, BLOCK_D)))
