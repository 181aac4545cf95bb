"""Kernels with two dots that no pass of the compiler was written for.

They share nothing with the kernel library but the language: what they need, the general passes must
find by themselves. Shapes are row-major and any; the tests hold them against NumPy.
"""

from __future__ import annotations

import tilewright.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@tl.kernel
def load_matrix(x, row, column, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Load a tile of a row-major `[rows, columns]`, zeros outside."""
    lanes_m, lanes_n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    inside_m = lanes_m < tl.minimum(rows - row, BLOCK_M).to(tl.int32)
    inside_n = lanes_n < tl.minimum(columns - column, BLOCK_N).to(tl.int32)
    pointers = x + (row * columns + column) + (lanes_m[:, None] * columns + lanes_n[None, :])
    return tl.load(pointers, mask=inside_m[:, None] & inside_n[None, :])


@tl.kernel
def store_matrix(x, row, column, rows, columns, values):
    """Store what `load_matrix` would load."""
    lanes_m, lanes_n = tl.arange(0, values.shape[0]), tl.arange(0, values.shape[1])
    inside = (row + lanes_m < rows)[:, None] & (column + lanes_n < columns)[None, :]
    pointers = x + (row * columns + column) + (lanes_m[:, None] * columns + lanes_n[None, :])
    tl.store(pointers, values, mask=inside)


@tl.kernel(divisible=("k", "n", "p"))
def product_of_three(
    a, b, c, out, m, k, n, p,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Write `a @ b @ c`: `[m, k] @ [k, n] @ [n, p]`; the middle product is never in memory."""
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_P
    total = tl.zeros((BLOCK_M, BLOCK_P), tl.float32)
    for middle in range(0, n, BLOCK_N):
        inner = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for depth in range(0, k, BLOCK_K):
            left = load_matrix(a, row, depth, m, k, BLOCK_M, BLOCK_K)
            inner = tl.dot(left, load_matrix(b, depth, middle, k, n, BLOCK_K, BLOCK_N), inner)
        right = load_matrix(c, middle, column, n, p, BLOCK_N, BLOCK_P)
        total = tl.dot(inner.to(right.dtype), right, total)
    store_matrix(out, row, column, m, p, total)


@tl.kernel(divisible=("k", "n"))
def gated_product(
    x, gate, up, out, m, k, n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `silu(x @ gate) * (x @ up)`, two products of one operand in one loop."""
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    gates = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    values = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for depth in range(0, k, BLOCK_K):
        left = load_matrix(x, row, depth, m, k, BLOCK_M, BLOCK_K)
        gates = tl.dot(left, load_matrix(gate, depth, column, k, n, BLOCK_K, BLOCK_N), gates)
        values = tl.dot(left, load_matrix(up, depth, column, k, n, BLOCK_K, BLOCK_N), values)
    silu = gates * tl.fdiv(1.0, 1.0 + tl.exp2(-gates * LOG2_E))
    store_matrix(out, row, column, m, n, silu * values)


@tl.kernel(divisible=("dim", "keys"))
def biased_attention(
    q, k, v, bias, out, queries, keys, dim, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write `softmax(scale * q @ k.T + bias) @ v` of one head, with the maxima found first.

    The first loop computes the scores for their maxima alone, the second once more; the bias is
    what the product is added to.
    """
    row = tl.program_id(0) * BLOCK_M
    query = load_matrix(q, row, 0, queries, dim, BLOCK_M, BLOCK_D)
    query = (query.to(tl.float32) * (scale * LOG2_E)).to(query.dtype)
    lanes = tl.arange(0, BLOCK_N)
    largest = tl.full((BLOCK_M, BLOCK_N), float("-inf"), tl.float32)
    for start in range(0, keys, BLOCK_N):
        key = load_matrix(k, start, 0, keys, dim, BLOCK_N, BLOCK_D)
        added = load_matrix(bias, row, start, queries, keys, BLOCK_M, BLOCK_N)
        scores = tl.dot(query, key.T, added.to(tl.float32) * LOG2_E)
        hidden = tl.where(start + lanes < keys, 0.0, float("-inf"))
        largest = tl.maximum(largest, scores + hidden[None, :])
    row_max = tl.max(largest, axis=1)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(0, keys, BLOCK_N):
        key = load_matrix(k, start, 0, keys, dim, BLOCK_N, BLOCK_D)
        value = load_matrix(v, start, 0, keys, dim, BLOCK_N, BLOCK_D)
        added = load_matrix(bias, row, start, queries, keys, BLOCK_M, BLOCK_N)
        scores = tl.dot(query, key.T, added.to(tl.float32) * LOG2_E)
        hidden = tl.where(start + lanes < keys, 0.0, float("-inf"))
        weights = tl.exp2(scores + hidden[None, :] - row_max[:, None])
        sums = sums + weights
        total = tl.dot(weights.to(value.dtype), value, total)
    store_matrix(out, row, 0, queries, dim, total * tl.fdiv(1.0, tl.sum(sums, axis=1))[:, None])
