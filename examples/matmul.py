"""Matrix product with a kernel of your own: a loop over K with `tl.dot`, pipelined by the compiler.

`tilewright.matmul` takes any dtype, shape and strides and has an epilogue; this kernel shows the
idea on row-major matrices. Shared memory, asynchronous copies and matrix instructions are the
compiler's affair.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tl.kernel(divisible=("n", "k"))
def matmul(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # noqa: D103
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
        )
        b_tile = tl.load(
            b + (start + depth)[:, None] * n + columns[None, :],
            mask=inside[:, None] & (columns < n)[None, :],
        )
        total = tl.dot(a_tile, b_tile, total)
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=mask)


def main() -> None:
    """Multiply two matrices of half precision and compare with NumPy in float64."""
    m, n, k = 500, 304, 176
    random = np.random.default_rng(0)
    a = random.standard_normal((m, k)).astype(np.float16)
    b = random.standard_normal((k, n)).astype(np.float16)
    grid = (-(-m // 64) * -(-n // 64),)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    if tw.device_count():
        c = tw.empty((m, n), tl.float16)
        matmul[grid](tw.from_numpy(a), tw.from_numpy(b), c, m, n, k, **blocks)
        result = c.numpy()
    else:
        result = np.empty((m, n), np.float16)
        matmul[grid](a, b, result, m, n, k, **blocks)
    for line in tw.resolved():
        print(line)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(result - exact).max() / np.abs(exact).max()
    print(
        f"matmul: {m} x {n} x {k}, largest error against NumPy {error:.1e} of the largest element"
    )


if __name__ == "__main__":
    main()
