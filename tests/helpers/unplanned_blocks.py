"""Kernels of several products, by blocks of tensor descriptors: none of them known to any pass."""

from __future__ import annotations

import tilewright.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@tl.kernel(divisible=("n", "k"))
def gated(
    x, gate, up, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `silu(x @ gate) * (x @ up)`, both factors `[K, N]`."""
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(gate, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
    b2 = tl.make_tensor_descriptor(up, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    left = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    right = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        tile = a.load([row, start])
        left = tl.dot(tile, b.load([start, column]), left)
        right = tl.dot(tile, b2.load([start, column]), right)
    result = left / (1.0 + tl.exp(-left)) * right
    c.store([row, column], result.to(out.dtype))


@tl.kernel(divisible=("n", "k"))
def product_softmax(
    x, w, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the softmax of each row of `x @ w.T`, `w` `[N, K]` with N within one block."""
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(w, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    row = tl.program_id(0) * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        total = tl.dot(a.load([row, start]), tl.trans(b.load([0, start])), total)
    inside = tl.arange(0, BLOCK_N) < n
    total = tl.where(inside[None, :], total, float("-inf"))
    weights = tl.exp2((total - tl.max(total, axis=1)[:, None]) * LOG2_E)
    scale = 1.0 / tl.sum(weights, axis=1)
    c.store([row, 0], (weights * scale[:, None]).to(out.dtype))


@tl.kernel(divisible=("n", "k", "d"))
def three_factors(
    x, y, z, out, m, n, k, d,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write `x @ y @ z` with the inner product rounded, `z` `[N, D]` with D within one block."""
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(y, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(z, [n, d], [d, 1], [BLOCK_N, BLOCK_D])
    target = tl.make_tensor_descriptor(out, [m, d], [d, 1], [BLOCK_M, BLOCK_D])
    row = tl.program_id(0) * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for middle in range(0, n, BLOCK_N):
        inner = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            inner = tl.dot(a.load([row, start]), b.load([start, middle]), inner)
        total = tl.dot(inner.to(z.dtype), c.load([middle, 0]), total)
    target.store([row, 0], total.to(out.dtype))


@tl.kernel
def attention(
    q, k, v, out, rows, keys, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Write `softmax2(q @ k.T * scale) @ v`, of heads of `D` columns."""
    queries = tl.make_tensor_descriptor(q, [rows, D], [D, 1], [BLOCK_M, D])
    ks = tl.make_tensor_descriptor(k, [keys, D], [D, 1], [BLOCK_N, D])
    vs = tl.make_tensor_descriptor(v, [keys, D], [D, 1], [BLOCK_N, D])
    target = tl.make_tensor_descriptor(out, [rows, D], [D, 1], [BLOCK_M, D])
    row = tl.program_id(0) * BLOCK_M
    query = queries.load([row, 0])
    most = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, keys, BLOCK_N):
        scores = tl.dot(query, tl.trans(ks.load([start, 0]))) * scale
        inside = tl.arange(0, BLOCK_N) < keys - start
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new = tl.maximum(most, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(most - new)
        total = total * shrink + tl.sum(weights, axis=1)
        result = tl.dot(weights.to(v.dtype), vs.load([start, 0]), result * shrink[:, None])
        most = new
    target.store([row, 0], (result / total[:, None]).to(out.dtype))


@tl.kernel(divisible=("n", "k"))
def walking_product(
    x, y, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `x @ y`, each program tile after tile."""
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(y, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    rows, columns = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    for tile in range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        row, column = tile % rows * BLOCK_M, tile // rows * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            total = tl.dot(a.load([row, start]), b.load([start, column]), total)
        c.store([row, column], total.to(out.dtype))


@tl.kernel(divisible=("n", "k"))
def split_product(
    x, y, out, m, n, k, part,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Add `x @ y` to `out`, f32: programs along axis 2 share K in parts, a multiple of a block."""
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(y, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    first = tl.program_id(2) * part
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(first, tl.minimum(first + part, k), BLOCK_K):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.atomic_add(out + rows[:, None] * n + columns[None, :], total, mask=inside)


@tl.kernel(divisible=("n", "k"))
def two_walks(x, y, out, m, n, k, half, BLOCK: tl.constexpr):
    """Write `x @ y`, K in two loops and an outer one."""
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK, BLOCK])
    b = tl.make_tensor_descriptor(y, [k, n], [n, 1], [BLOCK, BLOCK])
    c = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK, BLOCK])
    for row in range(0, m, BLOCK):
        total = tl.dot(a.load([row, 0]), b.load([0, 0]))
        for start in range(BLOCK, half, BLOCK):
            total = tl.dot(a.load([row, start]), b.load([start, 0]), total)
        for start in range(half, k, BLOCK):
            total = tl.dot(a.load([row, start]), b.load([start, 0]), total * 0.5)
        c.store([row, 0], total.to(out.dtype))


@tl.kernel(divisible=("n", "k"))
def scattered_products(
    x, y, scale, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Add `(x @ y.T * scale).T @ x` to `out`, f32 `[N, K]`, the inner product rounded.

    `scale` is f32 `[1, N]`, and K within one block. Programs have rows of x, and add to all of
    `out`.
    """
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(y, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(scale, [n], [1], [BLOCK_N])
    target = tl.make_tensor_descriptor(out, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    rows = a.load([tl.program_id(0) * BLOCK_M, 0])
    for start in range(0, n, BLOCK_N):
        inner = tl.dot(rows, tl.trans(b.load([start, 0])))
        inner = (inner * c.load([start])[None, :]).to(x.dtype)
        target.atomic_add([start, 0], tl.dot(tl.trans(inner), rows))
