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
from helpers.mutations import find, without
from tilewright.abi.dtypes import BY_NAME
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import ConstexprValue
from tilewright.errors import ScheduleError
from tilewright.language.kernel import Kernel
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import HOPPER
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.proof import Launch, prove
from tilewright_compiler.ir.core import Module, Operation
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
    wide: tuple[str, ...] = ()  # the arrays of f32, not bf16

    def dtype(self, name: str) -> str:
        """Return the dtype of an array."""
        return "f32" if name in self.wide else "bf16"


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
        wide=("out",),
    ),
    "attention": Case(
        kernels.attention,
        {"q": (100, 64), "k": (70, 64), "v": (70, 64), "out": (100, 64)},
        {"rows": 100, "keys": 70, "scale": 0.125},
        (2, 1, 1),
        {"BLOCK_M": 64, "BLOCK_N": 32, "D": 64},
        {"BLOCK_M": 128, "BLOCK_N": 128, "D": 128},
    ),
    "scattered_products": Case(
        kernels.scattered_products,
        {"x": (100, 48), "y": (144, 48), "scale": (1, 144), "out": (144, 48)},
        {"m": 100, "n": 144, "k": 48},
        (2, 1, 1),
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128},
        wide=("scale", "out"),
    ),
}


def optimized(case: Case, tiles: dict[str, int], *, num_warps: int) -> Module:
    types: dict[str, ConstexprValue] = {name: f"*{case.dtype(name)}" for name in case.arrays}
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
        name: matrix(*shape, seed, dtype=case.dtype(name))
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


def needed(module: Module) -> list[Operation]:
    """Return what keeps threads, copies and products of the loop of the consumers apart."""
    (roles,) = find(module, "roles")
    (loop,) = (o for o in roles.regions[1].operations[-3].regions[0].walk() if o.name == "for")
    names = ("barrier", "async_fence", "tma_store_wait")
    return [operation for operation in loop.walk() if operation.name in names]


def test_all_that_an_added_block_waits_for_is_needed() -> None:
    case = CASES["scattered_products"]
    module = optimized(case, {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=8)
    result = scheduled(module)
    arrays = {
        name: matrix(*shape, seed, dtype=case.dtype(name))
        for seed, (name, shape) in enumerate(case.arrays.items())
    }
    launch = Launch((1, 1, 1), {**arrays, **case.scalars})
    assert prove(module, result, [launch], seeds=range(4))
    parts = needed(result)
    assert [part.name for part in parts] == [
        "tma_store_wait", "async_fence", "barrier", "async_fence", "barrier",
    ]  # fmt: skip
    for part in parts:
        with pytest.raises(ScheduleError):
            prove(module, without(result, part), [launch], seeds=range(8))
