"""Kernels of several products by blocks, which no pass was written for, under the Hopper schedule:
proven by the schedule checker, and in machine code without spills or serialised products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import unplanned_blocks as kernels
from helpers.kernel_source import signature_of
from tilewright.abi.dtypes import BY_NAME
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import ConstexprValue
from tilewright.language.kernel import Kernel
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import HOPPER
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.proof import Launch, prove
from tilewright_compiler.ir.core import Module
from tilewright_compiler.options import DEFAULT
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.hopper import schedule_hopper, why_not

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, its arrays by their shapes, its sizes, and small and fast tiles."""

    kernel: Kernel
    arrays: dict[str, tuple[int, int]]
    scalars: dict[str, int | float]
    grid: tuple[int, int, int]
    small: dict[str, int]
    fast: dict[str, int]
    out: str = "bf16"


CASES = {
    "gated": Case(
        kernels.gated,
        {"x": (100, 48), "gate": (48, 80), "up": (48, 80), "out": (100, 80)},
        {"m": 100, "n": 80, "k": 48},
        (2, 3, 1),
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
    ),
    "product_softmax": Case(
        kernels.product_softmax,
        {"x": (100, 48), "w": (48, 48), "out": (100, 48)},
        {"m": 100, "n": 48, "k": 48},
        (2, 1, 1),
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32},
        {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64},
    ),
    "three_factors": Case(
        kernels.three_factors,
        {"x": (100, 48), "y": (48, 80), "z": (80, 48), "out": (100, 48)},
        {"m": 100, "n": 80, "k": 48, "d": 48},
        (2, 1, 1),
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "BLOCK_D": 64},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "BLOCK_D": 128},
    ),
    "walking_product": Case(
        kernels.walking_product,
        {"x": (100, 48), "y": (48, 80), "out": (100, 80)},
        {"m": 100, "n": 80, "k": 48},
        (4, 1, 1),
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32},
        {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64},
    ),
    "split_product": Case(
        kernels.split_product,
        {"x": (100, 112), "y": (112, 80), "out": (100, 80)},
        {"m": 100, "n": 80, "k": 112, "part": 64},
        (2, 3, 2),
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
        out="f32",
    ),
    "attention": Case(
        kernels.attention,
        {"q": (100, 64), "k": (70, 64), "v": (70, 64), "out": (100, 64)},
        {"rows": 100, "keys": 70, "scale": 0.125},
        (2, 1, 1),
        {"BLOCK_M": 64, "BLOCK_N": 32, "D": 64},
        {"BLOCK_M": 128, "BLOCK_N": 128, "D": 128},
    ),
}


def optimized(case: Case, tiles: dict[str, int], *, num_warps: int) -> Module:
    types: dict[str, ConstexprValue] = dict.fromkeys(case.arrays, "*bf16")
    types["out"] = f"*{case.out}"
    types |= {n: "f32" if isinstance(v, float) else "i64" for n, v in case.scalars.items()}
    types |= tiles
    signature = signature_of(case.kernel, types, specialization="fast", num_warps=num_warps)
    return optimize(lower_kernel(case.kernel, signature))


def scheduled(module: Module) -> Module:
    result = schedule_hopper(module)
    assert result is not None, why_not(module)
    return result


def matrix(rows: int, columns: int, seed: int, *, dtype: str = "bf16") -> Array:
    """Return small numbers, aligned as the fast form promises."""
    memory = np.zeros(rows * columns + 32, to_numpy(BY_NAME[dtype]))
    start = -(memory.ctypes.data // memory.itemsize) % 32
    result: Array = memory[start : start + rows * columns].reshape(rows, columns)
    result[:] = np.random.default_rng(seed).integers(-3, 4, (rows, columns)) / 4
    return result


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_schedule_computes_what_the_kernel_says(case: Case) -> None:
    module = optimized(case, case.small, num_warps=4)
    arrays = {
        name: matrix(*shape, seed, dtype=case.out if name == "out" else "bf16")
        for seed, (name, shape) in enumerate(case.arrays.items())
    }
    launch = Launch(case.grid, {**arrays, **case.scalars})
    assert prove(module, scheduled(module), [launch], seeds=(0, 1, 2))


@cache
def assembled(name: str) -> Any:
    case = CASES[name]
    module = scheduled(optimized(case, case.fast, num_warps=8))
    ptx = lower_to_ptx(emit_module(module), flavor=HOPPER, options=DEFAULT)
    return assemble(ptx, HOPPER.target, options=DEFAULT)


@pytest.mark.parametrize("name", CASES)
def test_machine_code_spills_nothing_and_serialises_nothing(name: str) -> None:
    cubin = assembled(name)
    assert cubin.spill_bytes == 0
    assert cubin.registers == 168
    assert not [warning for warning in cubin.warnings if "C75" in warning]
