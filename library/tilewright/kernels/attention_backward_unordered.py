"""Attention backward by blocks of keys: the gradients of K and V, and that of Q with sums in any
order.

One kernel walks the queries of a block of keys. Where no order of the sums is asked for it does
five products instead of the seven of `attention_backward`: what the block does to the gradient of Q
it adds to an f32 array, as other programs do (FlashAttention-2, Dao 2023). That array is scaled and
rounded at the end.

What belongs to rows lies in one array `[2, heads, padded]`, to be copied by blocks: the logarithms
of the sums to base 2, infinite where a row has no weights, and the sums of `y * dy`.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.attention import LOG2_E, heads_of, rows_at, tile_of_heads


@tl.kernel(divisible=("dim", "y_batch", "y_head", "y_row", "dy_batch", "dy_head", "dy_row"))
def row_statistics(
    y, dy, lse, deltas, statistics,
    queries, dim, heads, batches, padded,
    y_batch, y_head, y_row, dy_batch, dy_head, dy_row,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write what belongs to each row; `padded` rows of each head, a multiple of `BLOCK_M`.

    `deltas` are the row-major sums of `y * dy`, as `query_gradients` takes them.
    Grid: blocks of padded rows of all heads.
    """
    batch, head, first = tile_of_heads(padded, heads, batches, heads * 0 + 1, 0, BLOCK_M)
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    inside = rows < tl.minimum(queries - first, BLOCK_M).to(tl.int32)
    mask = inside[:, None] & (columns < dim.to(tl.int32))[None, :]
    y_rows = y + batch * y_batch + head * y_head + first * y_row
    dy_rows = dy + batch * dy_batch + head * dy_head + first * dy_row
    left = tl.load(y_rows + (rows[:, None] * y_row + columns[None, :]), mask=mask)
    right = tl.load(dy_rows + (rows[:, None] * dy_row + columns[None, :]), mask=mask)
    products = tl.sum(left.to(tl.float32) * right.to(tl.float32), axis=1)
    number = batch * heads + head
    sums = tl.load(lse + number * queries + first + rows, mask=inside, other=float("-inf"))
    # A row that sees no key has no sum, and one that does not exist has none either.
    logarithms = tl.where(sums == float("-inf"), float("inf"), sums * LOG2_E)
    place = statistics + number * padded + first
    tl.store(place + rows, logarithms)
    tl.store(place + heads * batches * padded + rows, products)
    tl.store(deltas + number * queries + first + rows, products, mask=inside)


@tl.kernel
def rows_of(statistics, which, number, start):
    """Return what belongs to the rows of a head from `start` on."""
    block = statistics.load([which, number, start])
    return tl.reshape(block, (statistics.block_shape[2],))


@tl.kernel
def add_in_order(place, block):
    """Add a block to the sums at `place`, in the order in which threads hold products.

    Of 16 rows by 8 columns of a product a thread of matrix instructions has two neighbours of a
    row and those 8 rows below: these four lie together, so that it adds them at once, and a warp
    whole lines. `round_sums` knows the order, too.
    """
    rows, columns = block.shape[0], block.shape[1]
    parts = tl.reshape(block, (rows // 16, 2, 8, 2, columns // 16, 4, 2))
    parts = tl.permute(parts, (3, 0, 4, 2, 5, 1, 6))
    lanes = tl.arange(0, rows * columns)
    tl.atomic_add(place + lanes, tl.reshape(parts, (rows * columns,)), sem="relaxed")


@tl.kernel
def add_block(
    key, value, qs, dys, of_rows, sums, batch, head, number, start, unit, seen, left,
    sum_k, sum_v,
    MASKED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Add a block of queries to the gradients of a block of keys and values, transposed, and with
    `ADDS` that block of keys to the gradient of those queries.

    With `MASKED` key j is seen by the queries `i >= seen + j - start` of the block, and only the
    first `left` keys are any.
    """
    query = rows_at(qs, batch, head, start)
    scores = tl.dot(key, tl.trans(query))
    gradient = rows_at(dys, batch, head, start)
    deltas = rows_of(of_rows, 1, number, start)
    logarithms = rows_of(of_rows, 0, number, start)
    if MASKED:
        weight_gradients = tl.dot(value, tl.trans(gradient)) - deltas[None, :]
    else:  # the sum starts from them, so that they take no registers of their own
        below = tl.broadcast_to(-deltas[None, :], scores.shape)
        weight_gradients = tl.dot(value, tl.trans(gradient), below)
    weights = tl.exp2(tl.fma(scores, unit, -logarithms[None, :]))
    if MASKED:
        # Of what no query sees the weight may be infinite, also past the last key.
        keys, queries = tl.arange(0, key.shape[0]), tl.arange(0, query.shape[0])
        first_query = tl.maximum(seen - start, -key.shape[0]).to(tl.int32) + keys
        first_query = tl.where(keys < left, first_query, query.shape[0])
        weights = tl.where(first_query[:, None] <= queries[None, :], weights, 0.0)
    sum_v = tl.dot(weights.to(gradient.dtype), gradient, sum_v)
    inner = (weights * weight_gradients).to(query.dtype)
    if ADDS:
        added = tl.dot(tl.trans(inner), key)
        sum_k = tl.dot(inner, query, sum_k)
        add_in_order(sums + start * query.shape[1], added)
    else:
        sum_k = tl.dot(inner, query, sum_k)
    return sum_k, sum_v


@tl.kernel(
    divisible=(
        "dim", "padded",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "dy_batch", "dy_head", "dy_row", "dk_batch", "dk_head", "dk_row",
        "dv_batch", "dv_head", "dv_row",
    ),
)  # fmt: skip
def all_gradients(
    q, k, v, dy, dk, dv, statistics, sums,
    queries, keys, dim, group, batches, shared_heads, band, padded,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    dy_batch, dy_head, dy_row, dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row,
    scale, causal,
    ADDS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradients of K and V, and with `ADDS` add that of Q, not scaled, to `sums`, zero at
    first.

    `statistics` are those of `row_statistics`; `sums` are f32, `padded` rows of `BLOCK_D` columns
    for each head, each `BLOCK_M` of them in the order of `add_in_order`. Grid: blocks of keys of
    all heads, in the order of `tile_of_heads`; the first see the most queries.
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
    of_rows = tl.make_tensor_descriptor(
        statistics, [2, batches * heads, padded], [batches * heads * padded, padded, 1],
        [1, 1, BLOCK_M],
    )  # fmt: skip
    key = rows_at(ks, batch, head, first)
    value = rows_at(vs, batch, head, first)
    # The first query that sees the first key: all do unless it is causal.
    begin, whole, seen = queries * 0, queries * 0, queries * 0 - BLOCK_N
    if causal != 0:
        seen = first - (keys - queries)
        begin = tl.maximum(seen, 0) // BLOCK_M * BLOCK_M
        whole = tl.cdiv(tl.maximum(seen + BLOCK_N - 1, 0), BLOCK_M) * BLOCK_M
        whole = tl.minimum(whole, queries)
    left = (keys - first).to(tl.int32)
    if left < BLOCK_N:
        whole = queries
    sum_k = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    sum_v = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    unit = scale * LOG2_E
    for member in range(group):
        own = head * group + member
        number = batch * heads + own
        place = sums + number * padded * BLOCK_D
        for start in range(begin, whole, BLOCK_M):
            sum_k, sum_v = add_block(
                key, value, qs, dys, of_rows, place, batch, own, number, start, unit, seen,
                left, sum_k, sum_v, True, ADDS,
            )  # fmt: skip
        for start in range(whole, queries, BLOCK_M):
            sum_k, sum_v = add_block(
                key, value, qs, dys, of_rows, place, batch, own, number, start, unit, seen,
                left, sum_k, sum_v, False, ADDS,
            )  # fmt: skip
    dvs.store([batch, head, first, 0], tl.reshape(sum_v.to(dv.dtype), (1, 1, BLOCK_N, BLOCK_D)))
    sum_k = sum_k * scale
    dks.store([batch, head, first, 0], tl.reshape(sum_k.to(dk.dtype), (1, 1, BLOCK_N, BLOCK_D)))


@tl.kernel(divisible=("dim", "padded", "dq_batch", "dq_head", "dq_row"))
def round_sums(
    sums, dq,
    queries, dim, heads, batches, padded,
    dq_batch, dq_head, dq_row,
    scale,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the gradient of Q from its sums, blocks of `BLOCK_M` rows as `add_in_order` has them.

    Grid: such blocks of all heads.
    """
    batch, head, first = tile_of_heads(queries, heads, batches, heads * 0 + 1, 0, BLOCK_M)
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    half = columns.shape[0] // 2
    of_row = rows % 8 * 16 + rows // 8 % 2 * 2 + rows // 16 * (8 * BLOCK_D)
    of_column = columns % 2 + columns // 2 % 4 * 4 + columns % half // 8 * 128
    of_column += columns // half * (half * BLOCK_M)
    source = sums + ((batch * heads + head) * padded + first) * BLOCK_D
    total = tl.load(source + (of_row[:, None] + of_column[None, :]))
    inside = rows < tl.minimum(queries - first, BLOCK_M).to(tl.int32)
    mask = inside[:, None] & (columns < dim.to(tl.int32))[None, :]
    target = dq + batch * dq_batch + head * dq_head + first * dq_row
    scaled = (total * scale).to(dq.dtype)
    tl.store(target + (rows[:, None] * dq_row + columns[None, :]), scaled, mask=mask)
