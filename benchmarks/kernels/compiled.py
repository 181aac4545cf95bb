"""The kernels of suite `compile`, in words that Triton has too."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def vecadd(x, y, out, n, BLOCK: tl.constexpr):
    """Write `x + y` of `n` elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@tl.kernel(divisible=("n", "k"))
def matmul(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Write `a @ b` of row-major matrices `[m, k]` and `[k, n]`."""
    tiles_n = tl.cdiv(n, BLOCK_N)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = start + depth < k
        a_tile = tl.load(
            a + rows[:, None] * k + (start + depth)[None, :],
            mask=(rows < m)[:, None] & inside[None, :],
            other=0.0,
        )
        b_tile = tl.load(
            b + (start + depth)[:, None] * n + columns[None, :],
            mask=inside[:, None] & (columns < n)[None, :],
            other=0.0,
        )
        total = tl.dot(a_tile, b_tile, total)
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=mask)
