"""Triton's best form of a product on Hopper: persistent programs that read and write tensor maps.

As its tutorial 09: tiles in grouped order, the loop over tiles flattened into that along K, the
result written in two halves where that is faster. Each shape takes the fastest of `CONFIGURATIONS`.
Sums of 8-bit floats are kept apart for each block along K, as ours and cuBLAS's are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

VERSION: str = triton.__version__
GROUP_M = 8

# Rows and columns of a tile, bytes of a block along K, stages, warps, parts of a tile's store.
CONFIGURATIONS = (
    (128, 256, 128, 3, 8, 1),
    (128, 256, 128, 3, 8, 2),
    (128, 256, 128, 4, 8, 2),
    (128, 128, 128, 4, 8, 1),
    (64, 128, 128, 4, 4, 1),
    (64, 64, 256, 5, 4, 1),
)


@triton.jit
def matmul(  # noqa: D103
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, PARTS: tl.constexpr,
    PRECISION: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    group = GROUP_M * tiles_n
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True):
        first = tile // group * GROUP_M
        height = min(tiles_m - first, GROUP_M)
        row = (first + tile % height) * BLOCK_M
        column = tile % group // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, k, BLOCK_K):
            left, right = a.load([row, start]), b.load([column, start])
            total = tl.dot(
                left, right.T, total, input_precision=PRECISION, max_num_imprecise_acc=APART
            )
        if PARTS == 2:
            halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            one, other = tl.split(halves)
            c.store([row, column], one.to(c.dtype))
            c.store([row, column + BLOCK_N // 2], other.to(c.dtype))
        else:
            c.store([row, column], total.to(c.dtype))


def _set_blocks(arguments: dict[str, Any]) -> None:
    m, n, k = (arguments[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    arguments["a"].block_shape = [m, k]
    arguments["b"].block_shape = [n, k]
    arguments["c"].block_shape = [m, n // arguments["PARTS"]]


def _tuned(size_bytes: int) -> Any:
    """Return the kernel with configurations for elements of that size."""
    configurations = [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": bytes_k // size_bytes, "PARTS": parts},
            num_stages=stages,
            num_warps=warps,
            pre_hook=_set_blocks,
        )
        for m, n, bytes_k, stages, warps, parts in CONFIGURATIONS
        # Of 8-bit floats no more than 128 products are added up apart.
        if size_bytes > 1 or bytes_k <= 128
    ]

    def timed(call: Callable[[], object], quantiles: Any) -> Any:
        return triton.testing.do_bench(call, warmup=2, rep=10, quantiles=quantiles)

    return triton.autotune(configurations, ["m", "n", "k", "PRECISION"], do_bench=timed)(matmul)


_KERNELS: dict[int, Any] = {}


def launcher(
    a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, precision: str
) -> Callable[[], torch.Tensor] | None:
    """Return a call that multiplies `a` `[M, K]` by `b` `[K, N]`, both contiguous along K.

    None where rows of an operand or of the result do not begin at multiples of 16 bytes, which
    tensor maps need, and for f32 that is not rounded, which Triton multiplies without them.
    """
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), device="cuda", dtype=out_dtype)
    lines = [x.stride(0) * x.element_size() for x in (a, b.T, out)]
    is_read_along_k = a.stride(1) == 1 and b.stride(0) == 1
    if any(line % 16 for line in lines) or not is_read_along_k or _is_exact(a, precision):
        return None
    kernel = _KERNELS.setdefault(a.element_size(), _tuned(a.element_size()))
    a_map, b_map, c_map = (
        TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1]) for x in (a, b.T, out)
    )
    programs = torch.cuda.get_device_properties("cuda").multi_processor_count

    def grid(meta: dict[str, int]) -> tuple[int]:
        tiles = triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])
        return (min(programs, tiles),)

    def call() -> torch.Tensor:
        kernel[grid](
            a_map, b_map, c_map, m, n, k,
            GROUP_M=GROUP_M, PROGRAMS=programs, PRECISION=precision,
            APART=128 if a.element_size() == 1 else None,
        )  # fmt: skip
        return out

    return call


def _is_exact(a: torch.Tensor, precision: str) -> bool:
    return a.dtype == torch.float32 and precision != "tf32"
