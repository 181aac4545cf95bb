"""Kernels with two dots that no pass was written for get the schedule that a matmul gets.

Right in the interpreter, proven by the schedule checker, and in machine code: every loop with a dot
copies ahead, reads fragments with ldmatrix, meets once an iteration and spills nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from helpers import unplanned_kernels as kernels
from helpers.kernel_source import signature_of
from helpers.sass import loop_with
from tilewright.abi.signature import KernelSignature
from tilewright.language.kernel import Kernel
from tilewright_compiler.backend.ptxas import disassemble
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.types import SharedType
from tilewright_compiler.pipeline import compile_signature, schedule_signature
from tilewright_compiler.snapshots import Snapshots

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with the extents of its arrays, its tiles, and what it computes, in f64.

    `arrays` gives the shape of each array by extents, the output last. Sizes are odd along an axis
    that the kernel does not need divisible. `loops` with dots are nested if `is_nested`.
    """

    kernel: Kernel
    arrays: dict[str, str]
    extents: dict[str, int]
    blocks: dict[str, int]
    grid: Callable[[dict[str, int]], tuple[int, int]]
    expected: Callable[..., Array]
    loops: int
    is_nested: bool = False
    scale: float | None = None


def silu(x: Array) -> Array:
    result: Array = x / (1 + np.exp(-x))
    return result


def softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    result: Array = weights / weights.sum(axis=1, keepdims=True)
    return result


CASES = {
    "product of three": Case(
        kernels.product_of_three,
        {"a": "mk", "b": "kn", "c": "np", "out": "mp"},
        {"m": 75, "k": 48, "n": 96, "p": 80},
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "BLOCK_P": 64},
        lambda e: (-(-e["m"] // 64), -(-e["p"] // 64)),
        lambda a, b, c: a @ b @ c,
        loops=2,
        is_nested=True,
    ),
    "gated product": Case(
        kernels.gated_product,
        {"x": "mk", "gate": "kn", "up": "kn", "out": "mn"},
        {"m": 150, "k": 80, "n": 80},
        {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32},
        lambda e: (-(-e["m"] // 128), -(-e["n"] // 64)),
        lambda x, gate, up: silu(x @ gate) * (x @ up),
        loops=1,
    ),
    "biased attention": Case(
        kernels.biased_attention,
        {"q": "qd", "k": "kd", "v": "kd", "bias": "qk", "out": "qd"},
        {"q": 75, "k": 112, "d": 64},
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_D": 64},
        lambda e: (-(-e["q"] // 64), 1),
        lambda q, k, v, bias: softmax(0.2 * (q @ k.T) + bias) @ v,
        loops=2,
        scale=0.2,
    ),
}


def arguments(case: Case) -> dict[str, Array]:
    """Return random arrays and, in place of the output, NaN."""
    generator = np.random.default_rng(0)
    shapes = {name: [case.extents[axis] for axis in axes] for name, axes in case.arrays.items()}
    made = {name: generator.standard_normal(s).astype(np.float16) for name, s in shapes.items()}
    return {**made, "out": np.full(shapes["out"], np.nan, np.float16)}


def scalars(case: Case) -> dict[str, int | float]:
    return {**case.extents, **({} if case.scale is None else {"scale": case.scale})}


def numbers(case: Case) -> dict[str, int | float]:
    """Return the scalar arguments by the kernel's names, in its order."""
    names = {"queries": "q", "keys": "k", "dim": "d"}
    given = scalars(case)
    return {
        p.name: given[names.get(p.name, p.name)]
        for p in case.kernel.parameters
        if not p.is_constexpr and p.name not in case.arrays
    }


def signature(case: Case) -> KernelSignature:
    types: dict[str, Any] = dict.fromkeys(case.arrays, "*f16")
    types |= {n: "f32" if isinstance(v, float) else "i64" for n, v in numbers(case).items()}
    return signature_of(case.kernel, {**types, **case.blocks}, specialization="fast")


@cache
def schedule(name: str) -> Module:
    case = CASES[name]
    return schedule_signature(case.kernel, signature(case), snapshots=Snapshots())


def close(found: Array, case: Case, arrays: dict[str, Array]) -> None:
    expected = case.expected(*(x.astype(np.float64) for n, x in arrays.items() if n != "out"))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=2e-3 * scale)


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    case = CASES[name]
    arrays = arguments(case)
    case.kernel[case.grid(case.extents)](*arrays.values(), **numbers(case), **case.blocks)
    close(arrays["out"], case, arrays)


@pytest.mark.parametrize("name", CASES)
def test_schedules_are_proven(name: str) -> None:
    case = CASES[name]
    arrays = arguments(case)
    grid = (*case.grid(case.extents), 1)
    scheduled.run(schedule(name), grid=grid, arguments={**arrays, **numbers(case)})
    close(arrays["out"], case, arrays)


def loops_with_dots(module: Module) -> list[Operation]:
    """Return the loops in whose body, not in a loop inside, a dot stands."""
    return [
        operation
        for operation in module.kernel.body.walk()
        if operation.name == "for"
        and any(inner.name == "dot" for inner in operation.regions[0].operations)
    ]


@pytest.mark.parametrize("name", CASES)
def test_every_loop_runs_ahead_and_meets_once(name: str) -> None:
    loops = loops_with_dots(schedule(name))
    assert len(loops) == CASES[name].loops
    for loop in loops:
        body = loop.regions[0]
        assert sum(operation.name == "barrier" for operation in body.operations) == 1
        inside = {operation.name for operation in body.walk()}
        assert "async_copy" in inside
        # What is loaded goes to shared memory at once, and nothing is exchanged between threads.
        assert not inside & {"load", "shared_store", "convert_layout", "reduce"}
        dots = [operation for operation in body.operations if operation.name == "dot"]
        for dot in dots:
            assert dot.attributes["atom"] == "mma.m16n8k16"
            assert isinstance(dot.operands[1].type, SharedType)


@pytest.mark.parametrize("target", [t for t in TARGETS if str(t) in ("sm_80", "sm_90a")], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_machine_code(name: str, target: Any) -> None:
    case = CASES[name]
    compiled = compile_signature(case.kernel, signature(case), targets=[target])
    cubin = compiled.cubins[str(target)]
    assert cubin.spill_bytes == 0
    assert cubin.warnings == ()
    loop = loop_with(disassemble(cubin.data), "HMMA")
    assert loop["LDSM"] > 0
    assert loop["LDGSTS"] > 0
    assert loop["BAR"] == (case.loops if case.is_nested else 1)
    assert loop["STS"] == loop["LDG"] == loop["LDL"] == loop["STL"] == 0
