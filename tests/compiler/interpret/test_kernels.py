"""Kernels as users write them, interpreted from each form that the compiler gives them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.interpreted_kernels import (
    error_function,
    gather,
    greatest_common_divisor,
    in_turn,
    row_softmax,
    smoothed,
    strided_sum,
    unmasked,
    vecadd,
)
from helpers.kernel_source import signature_of
from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import InterpreterError, OutOfBoundsError
from tilewright.language import Kernel
from tilewright_compiler import passes
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.core import Module
from tilewright_compiler.schedule.plan import schedule_module

STAGES: dict[str, Callable[[Module], Module]] = {
    "tile": lambda module: module,
    "optimized": passes.optimize,
    "scheduled": lambda module: schedule_module(passes.optimize(module)),
}


@pytest.fixture(params=STAGES)
def launch(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run `kernel` over a one-dimensional grid from one stage of its compilation."""

    def run_stage(kernel: Kernel, programs: int, **arguments: Any) -> None:
        constexprs = {p.name for p in kernel.parameters if p.is_constexpr}
        types = {
            name: value if name in constexprs else _type(value) for name, value in arguments.items()
        }
        module = lower_kernel(kernel, signature_of(kernel, types))
        values = {name: value for name, value in arguments.items() if name not in constexprs}
        run(STAGES[request.param](module), grid=(programs, 1, 1), arguments=values)

    return run_stage


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"*{from_numpy(value.dtype)}"
    return {bool: "i1", int: "i64", float: "f32"}[type(value)]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32], ids=str)
def test_vector_addition(launch: Callable[..., None], dtype: Any, size: int) -> None:
    x, y = (np.random.default_rng(seed).standard_normal(size).astype(dtype) for seed in (0, 1))
    out = np.full(size + 3, 9, dtype)
    launch(vecadd, -(-size // 256), x=x, y=y, out=out, n=size, BLOCK=256)
    assert np.array_equal(out[:size], x + y)
    assert (out[size:] == 9).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (7, 65), (40, 300)], ids=str)
def test_softmax_in_chunks(launch: Callable[..., None], shape: tuple[int, int]) -> None:
    x = 5 * np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    out = np.full_like(x, np.nan)
    launch(row_softmax, shape[0], x=x, out=out, columns=shape[1], BLOCK=64)
    exact = np.exp(x.astype(np.float64))
    # The exponent, at most about 40, is off by a rounding: 40 * 2**-24 relative, and a few more.
    np.testing.assert_allclose(out, exact / exact.sum(-1, keepdims=True), rtol=3e-6)


def test_a_while_loop_of_another_length_in_each_program(launch: Callable[..., None]) -> None:
    x, y = np.random.default_rng(0).integers(0, 10_000, (2, 3000))
    out = np.zeros(3000, np.int64)
    launch(greatest_common_divisor, 3000, x=x, y=y, out=out)
    assert np.array_equal(out, np.gcd(x, y))


@pytest.mark.parametrize("size", [1, 2, 3, 500])
def test_branches_and_nested_calls_that_part(launch: Callable[..., None], size: int) -> None:
    x = np.random.default_rng(0).standard_normal(size)
    out = np.zeros(size)
    launch(smoothed, size, x=x, out=out, n=size)
    expected = x.copy()
    for i in range(1, size - 1):
        expected[i] = sorted(x[i - 1 : i + 2])[1]
    assert np.array_equal(out, expected)


def test_programs_that_stride_over_the_work(launch: Callable[..., None]) -> None:
    x = np.arange(10_007, dtype=np.float64)  # whole numbers add exactly in any order
    out = np.zeros(13)
    launch(strided_sum, 13, x=x, out=out, n=x.size, BLOCK=64)
    assert out.sum() == x.sum()
    assert out[12] == sum(x[start : start + 64].sum() for start in range(12 * 64, x.size, 13 * 64))


def test_programs_wait_for_later_ones(launch: Callable[..., None]) -> None:
    turn, out = np.zeros(1, np.int64), np.full(30, -1)
    launch(in_turn, 30, turn=turn, out=out, n=30)
    assert out.tolist() == list(range(29, -1, -1))
    with pytest.raises(InterpreterError, match="kernel 'in_turn' never ends"):
        launch(in_turn, 30, turn=np.full(1, 77), out=out, n=30)


def test_an_access_out_of_bounds_shows_the_line(launch: Callable[..., None]) -> None:
    x, out = np.zeros(40, np.float32), np.zeros(64, np.float32)
    message = (
        r"kernel 'unmasked', program \(1, 0, 0\): load of f32 outside of argument 'x' "
        r"at element offset 40, its memory holds offsets 0 to 39"
    )
    with pytest.raises(OutOfBoundsError, match=message) as caught:
        launch(unmasked, 2, x=x, out=out, BLOCK=32)
    assert "tl.store(out + offsets, tl.load(x + offsets))" in str(caught.value)
    assert "interpreted_kernels.py" in str(caught.value)


def test_indices_from_memory_reach_both_ends_of_strided_arrays(launch: Callable[..., None]) -> None:
    x = np.arange(64, dtype=np.float32)[::-2]
    indices = np.array([0, -2, -62, 0], np.int32)
    out = np.zeros(4, np.float32)
    launch(gather, 1, x=x, indices=indices, out=out, n=4, BLOCK=4)
    assert out.tolist() == [63, 61, 1, 63]


def test_functions_of_narrow_floats_round_once_from_f32(launch: Callable[..., None]) -> None:
    x = np.linspace(-2, 2, 30).astype(ml_dtypes.bfloat16)
    out = np.zeros_like(x)
    launch(error_function, 1, x=x, out=out, n=30, BLOCK=32)
    exact = np.array([math.erf(float(value)) for value in x], np.float32)
    assert np.array_equal(out, exact.astype(ml_dtypes.bfloat16))
