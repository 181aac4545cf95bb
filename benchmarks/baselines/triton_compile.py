"""The kernels of suite `compile` in Triton, for the same types and options as ours."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_DIVISIBLE = [["tt.divisibility", 16]]


@triton.jit
def vecadd(x, y, out, n, BLOCK: tl.constexpr):  # noqa: D103
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@triton.jit
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


def compile_kernel(
    name: str,
    types: dict[str, str],
    divisible: tuple[str, ...],
    blocks: dict[str, int],
    *,
    num_warps: int,
    num_stages: int,
) -> bytes:
    """Compile for compute capability 9.0 and return the cubin."""
    parameters = list(types | blocks)
    source = ASTSource(
        {"vecadd": vecadd, "matmul": matmul}[name],
        types | dict.fromkeys(blocks, "constexpr"),
        {(parameters.index(block),): extent for block, extent in blocks.items()},
        {(parameters.index(parameter),): _DIVISIBLE for parameter in divisible},
    )
    options = {"num_warps": num_warps, "num_stages": num_stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    cubin: bytes = compiled.asm["cubin"]
    return cubin
