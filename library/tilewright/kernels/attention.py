"""Attention forward: softmax(scale * Q K^T + bias) V, without the matrix of scores in memory.

The online softmax of Milakov and Gimelshein (2018) over blocks of keys, as in FlashAttention (Dao
et al. 2022): scores are in f32, exponentials to base 2, rounded to the dtype of V for the second
product. A row that sees no key gives 0, and -inf as its logarithm of the sum.
"""

from __future__ import annotations

import tilewright.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
SMALLEST = tl.constexpr(1e-30)


@tl.kernel
def masked_scores(
    scores, first, start, keys, shift, causal, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Set to -inf the scores of keys past the last one, and of keys that `causal` hides.

    Row i sees key j if `j <= i + shift`. A block that lies wholly inside costs one comparison.
    """
    visible = keys
    if causal != 0:
        visible = tl.minimum(keys, first + shift + 1)
    result = scores
    if start + BLOCK_N > visible:
        limits = tl.full((BLOCK_M,), tl.minimum(keys - start, BLOCK_N).to(tl.int32), tl.int32)
        if causal != 0:
            seen = tl.clamp(first + shift + 1 - start, -BLOCK_M, BLOCK_N).to(tl.int32)
            limits = tl.minimum(limits, tl.arange(0, BLOCK_M) + seen)
        columns = tl.arange(0, BLOCK_N)
        result = tl.where(columns[None, :] < limits[:, None], scores, float("-inf"))
    return result


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
    scale, causal, has_bias, has_lse,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write the attention of each head to `out`, and the logarithm of its sums to `lse` if asked.

    Q is `[queries, dim]` for each batch and head, K and V `[keys, dim]`; `group` heads of Q share a
    head of K and V. With `causal` the last query sees the last key. Grid: blocks of queries, heads,
    batch; `dim <= BLOCK_D`.
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

    shift = keys - queries
    end = keys
    if causal != 0:
        end = tl.minimum(keys, tl.maximum(first + BLOCK_M + shift, 0))
    if scale < 0:  # exact, and so the largest product is the largest score
        query = -query
    factor = tl.abs(scale) * LOG2_E
    # Scores stay as the product gives them, up to this factor; a bias must be added in units of
    # log2. Never 0, which would make NaN of -inf.
    unit = tl.where(has_bias != 0, 1.0, tl.maximum(factor, SMALLEST))
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(0, end, BLOCK_N):
        inside_n = lanes_n < tl.minimum(keys - start, BLOCK_N).to(tl.int32)
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
            scores = scores * factor + added.to(tl.float32) * LOG2_E
        scores = masked_scores(scores, first, start, keys, shift, causal, BLOCK_M, BLOCK_N)
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        # Before a row has seen a key its maximum is -inf, and -inf - -inf would be NaN.
        top = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(tl.fma(scores, unit, -(top * unit)[:, None]))
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
        tl.store(pointers, (row_max * unit + tl.log2(row_sum)) * LN_2, mask=row_mask)
