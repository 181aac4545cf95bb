"""Kernels with dots, as text: each has one thing that a general schedule must not trip over."""

from __future__ import annotations

MATMUL = """
@tl.kernel(divisible=("n", "k"))
def matmul(x, y, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a_mask = (rows[:, None] < m) & (at[None, :] < k)
        b_mask = (at[:, None] < k) & (columns[None, :] < n)
        a = tl.load(x + rows[:, None] * k + at[None, :], mask=a_mask)
        b = tl.load(y + at[:, None] * n + columns[None, :], mask=b_mask)
        acc = tl.dot(a, b, acc)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], acc.to(tl.bfloat16), mask=mask)
"""

# The pointers are carried by the loop, so a tile's pointer is no index arithmetic.
WALKING_POINTERS = """
@tl.kernel(divisible=("n", "k"))
def walking(x, y, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = x + rows[:, None] * k + inner[None, :]
    b_at = y + inner[:, None] * n + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        acc = tl.dot(tl.load(a_at), tl.load(b_at), acc)
        a_at += BK
        b_at += BK * n
    tl.store(out + rows[:, None] * n + columns[None, :], acc.to(tl.bfloat16))
"""

# Weights of 8 bits with a scale a column.
DEQUANTIZED = """
@tl.kernel(divisible=("n", "k"))
def dequantized(x, y, scales, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    inner = tl.arange(0, BK)
    scale = tl.load(scales + columns)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a = tl.load(x + rows[:, None] * k + at[None, :])
        b = tl.load(y + at[:, None] * n + columns[None, :])
        acc = tl.dot(a, b.to(tl.bfloat16) * scale[None, :], acc)
    tl.store(out + rows[:, None] * n + columns[None, :], acc.to(tl.bfloat16))
"""

# y is [N, K] in memory.
TRANSPOSED = """
@tl.kernel(divisible=("n", "k"))
def transposed(x, y, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a = tl.load(x + rows[:, None] * k + at[None, :])
        b = tl.load(y + columns[:, None] * k + at[None, :])
        acc = tl.dot(a, b.T, acc)
    tl.store(out + rows[:, None] * n + columns[None, :], acc.to(tl.bfloat16))
"""

CHAIN = """
@tl.kernel(divisible=("k",))
def chain(x, y, z, out, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BP: tl.constexpr):
    rows, columns, last = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BP)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a = tl.load(x + rows[:, None] * k + at[None, :])
        b = tl.load(y + at[:, None] * BN + columns[None, :])
        acc = tl.dot(a, b, acc)
    c = tl.load(z + columns[:, None] * BP + last[None, :])
    result = tl.dot(acc.to(tl.bfloat16), c)
    tl.store(out + rows[:, None] * BP + last[None, :], result.to(tl.bfloat16))
"""

ATTENTION = """
@tl.kernel
def attention(q, k, v, out, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, columns, width = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + width[None, :])
    top = tl.full((BM,), -1.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        at = start + columns
        keys = tl.load(k + at[:, None] * D + width[None, :])
        scores = tl.dot(queries, keys.T) * 0.125
        scores = tl.where(at[None, :] < length, scores, -1.0e38)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp(scores - new_top[:, None])
        alpha = tl.exp(top - new_top)
        total = total * alpha + tl.sum(p, 1)
        values = tl.load(v + at[:, None] * D + width[None, :])
        acc = tl.dot(p.to(tl.bfloat16), values, acc * alpha[:, None])
        top = new_top
    acc = acc / total[:, None]
    tl.store(out + rows[:, None] * D + width[None, :], acc.to(tl.bfloat16))
"""

GATED = """
@tl.kernel(divisible=("n", "k"))
def gated(x, y, z, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    inner = tl.arange(0, BK)
    up = tl.zeros((BM, BN), tl.float32)
    gate = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a = tl.load(x + rows[:, None] * k + at[None, :])
        b = at[:, None] * n + columns[None, :]
        up = tl.dot(a, tl.load(y + b), up)
        gate = tl.dot(a, tl.load(z + b), gate)
    result = up / (1 + tl.exp(-gate))
    tl.store(out + rows[:, None] * n + columns[None, :], result.to(tl.bfloat16))
"""

EPILOGUE = """
@tl.kernel(divisible=("n", "k"))
def epilogue(x, y, bias, other, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a = tl.load(x + rows[:, None] * k + at[None, :])
        b = tl.load(y + at[:, None] * n + columns[None, :])
        acc = tl.dot(a, b, acc)
    place = rows[:, None] * n + columns[None, :]
    acc += tl.load(bias + columns)[None, :] + tl.load(other + place)
    tl.store(out + place, acc.to(tl.bfloat16))
"""

# Both gradients of attention for a block of keys: four dots that read one tile in two ways.
BACKWARD = """
@tl.kernel(divisible=("length",))
def backward(
    q, k, v, do, lse, delta, dk, dv, length,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):
    rows, columns, width = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    keys = tl.load(k + columns[:, None] * D + width[None, :])
    values = tl.load(v + columns[:, None] * D + width[None, :])
    dk_acc = tl.zeros((BN, D), tl.float32)
    dv_acc = tl.zeros((BN, D), tl.float32)
    for start in range(0, length, BM):
        at = start + rows
        queries = tl.load(q + at[:, None] * D + width[None, :])
        grads = tl.load(do + at[:, None] * D + width[None, :])
        top = tl.load(lse + at)
        scores = tl.dot(keys, queries.T)
        p = tl.exp(scores - top[None, :])
        dv_acc = tl.dot(p.to(tl.bfloat16), grads, dv_acc)
        dp = tl.dot(values, grads.T)
        ds = p * (dp - tl.load(delta + at)[None, :])
        dk_acc = tl.dot(ds.to(tl.bfloat16), queries, dk_acc)
    tl.store(dk + columns[:, None] * D + width[None, :], dk_acc.to(tl.bfloat16))
    tl.store(dv + columns[:, None] * D + width[None, :], dv_acc.to(tl.bfloat16))
"""

# A gated feed-forward layer whose hidden values are never stored.
MLP = """
@tl.kernel(divisible=("n",))
def mlp(x, gate, up, down, out, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BK), tl.float32)
    a = tl.load(x + rows[:, None] * BK + inner[None, :])
    for start in range(0, n, BN):
        at = start + columns
        g = tl.dot(a, tl.load(gate + inner[:, None] * n + at[None, :]))
        u = tl.dot(a, tl.load(up + inner[:, None] * n + at[None, :]))
        h = g / (1 + tl.exp(-g)) * u
        acc = tl.dot(h.to(tl.bfloat16), tl.load(down + at[:, None] * BK + inner[None, :]), acc)
    tl.store(out + rows[:, None] * BK + inner[None, :], acc.to(tl.bfloat16))
"""

# Rows of x and of the result are picked by an index.
GATHERED = """
@tl.kernel(divisible=("k", "n"))
def gathered(x, w, index, out, k, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    token = tl.load(index + rows)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        at = start + inner
        a = tl.load(x + token[:, None] * k + at[None, :])
        b = tl.load(w + at[:, None] * n + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(out + token[:, None] * n + columns[None, :], acc.to(tl.bfloat16))
"""

# One tile is both operands.
GRAM = """
@tl.kernel(divisible=("k",))
def gram(x, out, k, BM: tl.constexpr, BK: tl.constexpr):
    rows, inner = tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for start in range(0, k, BK):
        a = tl.load(x + rows[:, None] * k + (start + inner)[None, :])
        acc = tl.dot(a, a.T, acc)
    tl.store(out + rows[:, None] * BM + rows[None, :], acc)
"""

# Linear attention: a carried accumulator is an operand, too.
LINEAR = """
@tl.kernel(divisible=("length",))
def linear(q, k, v, out, length, BM: tl.constexpr, D: tl.constexpr):
    rows, width = tl.arange(0, BM), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, length, BM):
        at = (start + rows)[:, None] * D + width[None, :]
        queries, keys, values = tl.load(q + at), tl.load(k + at), tl.load(v + at)
        scores = tl.dot(queries, keys.T)
        scores = tl.where(rows[:, None] >= rows[None, :], scores, 0.0)
        result = tl.dot(queries, state.to(tl.bfloat16))
        result = tl.dot(scores.to(tl.bfloat16), values, result)
        state = tl.dot(keys.T, values, state)
        tl.store(out + at, result.to(tl.bfloat16))
"""
