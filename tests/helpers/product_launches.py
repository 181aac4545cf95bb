"""Kernels of `helpers.pointer_products` as modules, and launches of them on small numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from helpers.kernel_source import signature_of
from tilewright.abi.signature import ConstexprValue
from tilewright.language.kernel import Kernel
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.proof import Launch
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize

SMALL = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32}
WIDE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
_GROUP = 2


def optimized(
    kernel: Kernel, tiles: dict[str, int], *, num_warps: int = 4, dtype: str = "f16"
) -> Module:
    """Return the optimised tile IR of a kernel's fast form; a, b and c are its arrays."""
    names = [p.name for p in kernel.parameters if not p.is_constexpr]
    types: dict[str, ConstexprValue] = {n: f"*{dtype}" if n in "abc" else "i64" for n in names}
    types |= tiles
    if _is_grouped(kernel):
        types["GROUP"] = _GROUP
    signature = signature_of(kernel, types, specialization="fast", num_warps=num_warps)
    module = optimize(lower_kernel(kernel, replace(signature, num_stages=3)))
    verify(module)
    return module


def launch_of(
    kernel: Kernel,
    m: int,
    n: int,
    k: int,
    *,
    seed: int = 0,
    batch: int = 1,
    is_turned: bool = False,
) -> Launch:
    """Return a launch with tiles of `SMALL`; sizes along contiguous axes are multiples of 16.

    With `is_turned` b is `[N, K]`.
    """
    generator = np.random.default_rng(seed)

    def matrices(rows: int, columns: int) -> NDArray[np.float16]:
        size = batch * rows * columns
        memory = np.zeros(size + 32, np.float16)
        start = -(memory.ctypes.data // 2) % 32
        result: NDArray[np.float16] = memory[start : start + size]
        result[:] = generator.integers(-3, 4, size) / 4
        return result.reshape(batch, rows, columns)

    b = matrices(n, k) if is_turned else matrices(k, n)
    arrays = {"a": matrices(m, k), "b": b, "c": matrices(m, n)}
    scalars = {"m": m, "n": n, "k": k, "a_row": k, "b_row": n, "c_row": n}
    scalars |= {"a_batch": m * k, "b_batch": n * k, "c_batch": m * n}
    names = {p.name for p in kernel.parameters}
    tiles = -(-m // SMALL["BLOCK_M"]), -(-n // SMALL["BLOCK_N"])
    grid = (tiles[0] * tiles[1], 1, 1) if _is_grouped(kernel) else (*tiles, batch)
    return Launch(grid, {**arrays, **{key: v for key, v in scalars.items() if key in names}})


def _is_grouped(kernel: Kernel) -> bool:
    return any(p.name == "GROUP" for p in kernel.parameters)
