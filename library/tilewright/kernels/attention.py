"""Attention forward: softmax(scale * Q K^T + bias) V, without the matrix of scores in memory.

The online softmax of Milakov and Gimelshein (2018) over blocks of keys, as in FlashAttention (Dao
et al. 2022): scores are in f32, exponentials to base 2, rounded to the dtype of V for the second
product. A row that sees no key gives 0, and -inf as its logarithm of the sum.

`attention` takes any strides and scales; `attention_blocks` reads blocks of tensor descriptors, for
GPUs that copy them by themselves.
"""

from __future__ import annotations

import tilewright.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
SMALLEST = tl.constexpr(1e-30)


@tl.kernel
def seen_in_window(own, length, left, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return which of the first `length` columns each row sees: `-left <= column - row <= right`.

    `own` is the column that the first row stands at.
    """
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    begins = tl.clamp(own - left, -ROWS, COLUMNS).to(tl.int32) + rows
    limits = tl.clamp(own + right + 1, -ROWS, COLUMNS).to(tl.int32) + rows
    limits = tl.minimum(limits, tl.minimum(length, COLUMNS).to(tl.int32))
    # One comparison, without a sign, says whether a column is behind the one and before the other.
    widths = tl.maximum(limits - begins, 0).to(tl.uint32)
    return (columns[None, :] - begins[:, None]).to(tl.uint32) < widths[:, None]


@tl.kernel
def masked_scores(
    scores, own, length, left, right, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Set to -inf the scores of keys past the last one, and of keys outside the window.

    A block that lies wholly inside costs two comparisons.
    """
    result = scores
    if (tl.minimum(length, own + right + 1) < BLOCK_N) | (own + BLOCK_M - 1 > left):
        is_seen = seen_in_window(own, length, left, right, BLOCK_M, BLOCK_N)
        result = tl.where(is_seen, scores, float("-inf"))
    return result


@tl.kernel
def reach_of_rows(own, length, left, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return `begin, whole, whole_end, end`: the columns that rows see, and that all of them see.

    The first of `ROWS` rows stands at column `own`, and sees as in `seen_in_window`. All but the
    end are multiples of `COLUMNS`; `whole` is `whole_end` where no block is seen whole.
    """
    begin = tl.clamp(own - left, 0, length) // COLUMNS * COLUMNS
    end = tl.clamp(own + ROWS + right, 0, length)
    whole_end = tl.maximum(tl.clamp(own + right + 1, 0, length) // COLUMNS * COLUMNS, begin)
    whole = tl.cdiv(tl.clamp(own + ROWS - 1 - left, 0, length), COLUMNS) * COLUMNS
    return begin, tl.minimum(whole, whole_end), whole_end, end


@tl.kernel
def around_whole(place, whole_end, between):
    """Return the column of a block before or behind those seen whole.

    Places count from `between` columns behind the first that is seen, so that one loop has both.
    """
    return place - tl.where(place < whole_end, between, 0)


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row",
        "v_batch", "v_head", "v_row", "out_batch", "out_head", "out_row",
    ),
    unit=("q_dim", "k_dim", "v_dim", "out_dim", "bias_column"),
)  # fmt: skip
def attention(
    q, k, v, bias, out, lse,
    queries, keys, dim, group,
    q_batch, q_head, q_row, q_dim,
    k_batch, k_head, k_row, k_dim,
    v_batch, v_head, v_row, v_dim,
    bias_batch, bias_head, bias_row, bias_column,
    out_batch, out_head, out_row, out_dim,
    lse_batch, lse_head,
    scale, left, right, has_bias, has_lse,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the attention of each head to `out`, and the logarithm of its sums to `lse` if asked.

    Q is `[queries, dim]` for each batch and head, K and V `[keys, dim]`; `group` heads of Q share a
    head of K and V. Query i sees key j if `-left <= j - i - (keys - queries) <= right`: with 0 on
    the right the last query sees the last key. Grid: blocks of queries, heads, batch; `dim <=
    BLOCK_D`.
    """
    first = tl.program_id(0) * BLOCK_M
    head, batch = tl.program_id(1), tl.program_id(2)
    shared_head = (head.to(tl.int32) // group.to(tl.int32)).to(tl.int64)
    lanes_m, lanes_n, lanes_d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    row_mask = lanes_m < tl.minimum(queries - first, BLOCK_M).to(tl.int32)
    inside_d = lanes_d < dim.to(tl.int32)

    q_origin = q + batch * q_batch + head * q_head + first * q_row
    query = tl.load(
        q_origin + (lanes_m[:, None] * q_row + lanes_d[None, :] * q_dim),
        mask=row_mask[:, None] & inside_d[None, :],
    )
    k_origin = k + batch * k_batch + shared_head * k_head
    v_origin = v + batch * v_batch + shared_head * v_head
    bias_origin = bias + batch * bias_batch + head * bias_head + first * bias_row

    # Places among the keys have 31 bits: a register holds them where 64 bits would take two.
    own, length = (first + keys - queries).to(tl.int32), keys.to(tl.int32)
    before, behind = left.to(tl.int32), right.to(tl.int32)
    begin, _, _, end = reach_of_rows(own, length, before, behind, BLOCK_M, BLOCK_N)
    if scale < 0:  # exact, and so the largest product is the largest score
        query = -query
    factor = tl.abs(scale)
    # Scores stay as the product gives them, up to this factor, unless a bias is added. Never 0,
    # which would make NaN of -inf.
    unit = tl.where(has_bias != 0, 1.0, tl.maximum(factor, SMALLEST)) * LOG2_E
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(begin, end, BLOCK_N):
        inside_n = lanes_n < length - start
        mask = inside_n[:, None] & inside_d[None, :]
        # Rows first, then columns: an offset of every element would stay in registers.
        k_rows = (k_origin + start * k_row) + (lanes_n * k_row)[:, None]
        v_rows = (v_origin + start * v_row) + (lanes_n * v_row)[:, None]
        key = tl.load(k_rows + (lanes_d * k_dim)[None, :], mask=mask)
        value = tl.load(v_rows + (lanes_d * v_dim)[None, :], mask=mask)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        if has_bias != 0:
            shown = row_mask[:, None] & inside_n[None, :]
            bias_rows = (bias_origin + start * bias_column) + (lanes_m * bias_row)[:, None]
            added = tl.load(bias_rows + (lanes_n * bias_column)[None, :], mask=shown)
            scores = tl.fma(scores, factor, added.to(tl.float32))
        scores = masked_scores(
            scores, own - start, length - start, before, behind, BLOCK_M, BLOCK_N
        )
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        # Before a row has seen a key its maximum is -inf, and -inf - -inf would be NaN.
        top = tl.where(new_max == float("-inf"), 0.0, new_max)
        # The difference first: a bias may be the least number of its dtype, -inf times `unit`.
        weights = tl.exp2((scores - top[:, None]) * unit)
        # Exactly 1 while the maximum stays: the rounding error of a product would be multiplied
        # into the sums at every block.
        decay = tl.exp2((row_max - top) * unit)
        row_sum = row_sum * decay + tl.sum(weights, axis=1)
        total = total * decay[:, None]
        total = tl.dot(weights.to(value.dtype), value, total, input_precision=PRECISION)
        row_max = new_max
    scale_rows = tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)
    out_origin = out + batch * out_batch + head * out_head + first * out_row
    tl.store(
        out_origin + (lanes_m[:, None] * out_row + lanes_d[None, :] * out_dim),
        total * scale_rows[:, None],
        mask=row_mask[:, None] & inside_d[None, :],
    )
    if has_lse != 0:
        pointers = lse + batch * lse_batch + head * lse_head + first + lanes_m
        tl.store(pointers, row_max * (unit * LN_2) + tl.log2(row_sum) * LN_2, mask=row_mask)


@tl.kernel
def heads_of(
    x, batches, heads, rows, dim, batch, head, row, ROWS: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """Return a descriptor of the heads at `x`: blocks of `ROWS` rows, contiguous along `dim`."""
    return tl.make_tensor_descriptor(
        x,
        shape=[batches, heads, rows, dim],
        strides=[batch, head, row, 1],
        block_shape=[1, 1, ROWS, BLOCK_D],
    )


@tl.kernel
def rows_at(x, batch, head, row):
    """Return the block of a head that begins at `row`; rows past the last are 0."""
    block = x.load([batch, head, row, 0])
    return tl.reshape(block, (x.block_shape[2], x.block_shape[3]))


@tl.kernel
def add_keys(scores, value, row_max, row_sum, total, unit, HAS_BIAS: tl.constexpr):
    """Add a block of keys with these scores, in units of `unit` > 0, to what rows have seen."""
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))
    # Before a row has seen a key its maximum is -inf, and -inf - -inf would be NaN.
    top = tl.where(new_max == float("-inf"), 0.0, new_max)
    if HAS_BIAS:  # which may be the least number of its dtype: times `unit` it would be -inf
        weights = tl.exp2((scores - top[:, None]) * unit)
    else:
        weights = tl.exp2(tl.fma(scores, unit, -(top * unit)[:, None]))
    decay = tl.exp2((row_max - top) * unit)
    row_sum = row_sum * decay + tl.sum(weights, axis=1)
    total = tl.dot(weights.to(value.dtype), value, total * decay[:, None])
    return new_max, row_sum, total


@tl.kernel
def tile_of_heads(queries, heads, batches, band, is_backwards, BLOCK_M: tl.constexpr):
    """Return batch, head and first row of this program.

    Programs go through `band` heads side by side, whose keys and values so stay in L2, and through
    their rows from the last to the first with `is_backwards`, as those see the most keys.
    """
    tiles = tl.cdiv(queries, BLOCK_M).to(tl.int32)
    program, side = tl.program_id(0).to(tl.int32), band.to(tl.int32)
    first_head = program // (side * tiles) * side
    inside = program % (side * tiles)
    width = tl.minimum((heads * batches).to(tl.int32) - first_head, side)
    tile = inside // width
    if is_backwards:
        tile = tiles - 1 - tile
    number = first_head + inside % width
    heads = heads.to(tl.int32)
    return (
        (number // heads).to(tl.int64),
        (number % heads).to(tl.int64),
        tile.to(tl.int64) * BLOCK_M,
    )


@tl.kernel
def biased(scores, biases, batch, head, first, start, scale, HAS_BIAS: tl.constexpr):
    """Return `scale * scores` plus the block of the bias there; without a bias, the scores."""
    result = scores
    if HAS_BIAS:
        block = biases.load([batch, head, first, start])
        added = tl.reshape(block, (biases.block_shape[2], biases.block_shape[3]))
        result = tl.fma(scores, scale, added.to(tl.float32))
    return result


@tl.kernel(
    divisible=(
        "dim",
        "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
        "bias_batch", "bias_head", "bias_row", "out_batch", "out_head", "out_row",
    ),
)  # fmt: skip
def attention_blocks(
    q, k, v, bias, out, lse,
    queries, keys, dim, group, batches, heads, shared_heads, band,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    bias_batch, bias_head, bias_row, out_batch, out_head, out_row,
    lse_batch, lse_head,
    scale, left, right, has_lse,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Do as `attention` by blocks of tensor descriptors, for a `scale` of at least `SMALLEST`.

    Q has `heads` heads, K and V `shared_heads`; the last axis of all is contiguous. Grid: blocks of
    queries of all heads, in the order of `tile_of_heads`.
    """
    batch, head, first = tile_of_heads(queries, heads, batches, band, right < queries, BLOCK_M)
    qs = heads_of(q, batches, heads, queries, dim, q_batch, q_head, q_row, BLOCK_M, BLOCK_D)
    ks = heads_of(k, batches, shared_heads, keys, dim, k_batch, k_head, k_row, BLOCK_N, BLOCK_D)
    vs = heads_of(v, batches, shared_heads, keys, dim, v_batch, v_head, v_row, BLOCK_N, BLOCK_D)
    biases = qs
    if HAS_BIAS:
        biases = heads_of(
            bias, batches, heads, queries, keys, bias_batch, bias_head, bias_row, BLOCK_M, BLOCK_N
        )
    outs = heads_of(
        out, batches, heads, queries, dim, out_batch, out_head, out_row, BLOCK_M, BLOCK_D
    )
    shared_head = (head.to(tl.int32) // group.to(tl.int32)).to(tl.int64)
    query = rows_at(qs, batch, head, first)
    own, length = (first + keys - queries).to(tl.int32), keys.to(tl.int32)
    before, behind = left.to(tl.int32), right.to(tl.int32)
    begin, whole, whole_end, end = reach_of_rows(own, length, before, behind, BLOCK_M, BLOCK_N)
    unit = LOG2_E if HAS_BIAS else scale * LOG2_E
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    # Blocks that every row sees whole come first: a mask costs a tenth of the time. Then those
    # before and behind them, as one loop.
    for start in range(whole, whole_end, BLOCK_N):
        scores = tl.dot(query, tl.trans(rows_at(ks, batch, shared_head, start)))
        scores = biased(scores, biases, batch, head, first, start, scale, HAS_BIAS)
        value = rows_at(vs, batch, shared_head, start)
        row_max, row_sum, total = add_keys(scores, value, row_max, row_sum, total, unit, HAS_BIAS)
    between = whole_end - whole
    for place in range(begin + between, end, BLOCK_N):
        start = around_whole(place, whole_end, between)
        scores = tl.dot(query, tl.trans(rows_at(ks, batch, shared_head, start)))
        scores = biased(scores, biases, batch, head, first, start, scale, HAS_BIAS)
        scores = masked_scores(
            scores, own - start, length - start, before, behind, BLOCK_M, BLOCK_N
        )
        value = rows_at(vs, batch, shared_head, start)
        row_max, row_sum, total = add_keys(scores, value, row_max, row_sum, total, unit, HAS_BIAS)
    total = total * tl.where(row_sum == 0.0, 0.0, 1.0 / row_sum)[:, None]
    outs.store([batch, head, first, 0], tl.reshape(total.to(out.dtype), (1, 1, BLOCK_M, BLOCK_D)))
    if has_lse != 0:
        rows = tl.arange(0, BLOCK_M)
        pointers = lse + batch * lse_batch + head * lse_head + first + rows
        inside = rows < tl.minimum(queries - first, BLOCK_M).to(tl.int32)
        tl.store(pointers, row_max * (unit * LN_2) + tl.log2(row_sum) * LN_2, mask=inside)
