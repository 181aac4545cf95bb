"""Launches on NumPy arrays run in each of the ways that kernels by blocks have."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from helpers.hopper_launch import run_on_hopper
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.kernels import movement
from tilewright.kernels.attention_backward import row_products
from tilewright.kernels.attention_backward_unordered import round_sums, row_statistics
from tilewright.language.kernel import Kernel
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.ir.core import Module
from tilewright_compiler.pipeline import schedule_signature
from tilewright_compiler.snapshots import Snapshots

WAYS = ("tile", "common", "own", "ptx")
HOPPER = Target(9, 0, "a")
# They multiply no tiles, and have the common schedule alone; so have those that copy operands.
_COMMON = (row_products, row_statistics, round_sums)


def block_run(way: str, names: list[str]) -> Callable[..., None]:
    """Return what stands in for `jit.interpret_kernel`, and notes the names of kernels.

    It runs tile IR, the common schedule, that of Hopper, or Hopper's PTX.
    """

    def run(
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: dict[str, Any],
        stepwise: bool,
    ) -> None:
        assert not stepwise
        names.append(kernel.name)
        is_common = kernel in _COMMON or kernel.module == movement.__name__
        has_own = way in ("own", "ptx") and not is_common
        if way == "tile":
            tile.run(lower_kernel(kernel, signature), grid=grid, arguments=arguments)
            return
        module = _scheduled(kernel, signature, HOPPER if has_own else None)
        assert ("producer_warps" in module.attributes) == has_own
        if way == "ptx" and has_own:
            run_on_hopper(module, arguments, grid=grid, ctas=2)
        else:
            scheduled.run(module, grid=grid, arguments=arguments)

    return run


@lru_cache(maxsize=64)
def _scheduled(kernel: Kernel, signature: KernelSignature, target: Target | None) -> Module:
    """Return a schedule, which no run changes: the tests of a file launch the same few kernels."""
    return schedule_signature(kernel, signature, snapshots=Snapshots(), target=target)
