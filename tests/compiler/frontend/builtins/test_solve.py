"""tl.solve_tril: against NumPy in f64, on every schedule's threads, and as machine code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.kernel_source import load_kernel, lower_text, run_text, signature_of
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.types import element_dtype
from tilewright_compiler.passes import optimize
from tilewright_compiler.pipeline import compile_signature
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]

INVERSE = """
@tl.kernel
def k(a, out, N: tl.constexpr, PRECISION: tl.constexpr = None):
    rows = tl.arange(0, N)
    places = rows[:, None] * N + rows[None, :]
    tl.store(out + places, tl.solve_tril(tl.load(a + places), input_precision=PRECISION))
"""
BATCH = """
@tl.kernel
def k(a, out, B: tl.constexpr, N: tl.constexpr):
    places = tl.reshape(tl.arange(0, 2 * B * N * N), (2, B, N, N))
    tl.store(out + places, tl.solve_tril(tl.load(a + places)))
"""
SOLUTION = """
@tl.kernel
def k(a, b, out, N: tl.constexpr, M: tl.constexpr):
    rows = tl.arange(0, N)
    places = rows[:, None] * M + tl.arange(0, M)[None, :]
    matrix = tl.load(a + rows[:, None] * N + rows[None, :])
    tl.store(out + places, tl.solve_tril(matrix, tl.load(b + places)))
"""


def matrices(*shape: int, dtype: Any = np.float32) -> Array:
    """Return random matrices, whose diagonals and upper triangles mean nothing."""
    return (0.3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)


def inverse(a: Array) -> Array:
    unit = np.tril(a.astype(np.float64), -1) + np.eye(a.shape[-1])
    result: Array = np.linalg.inv(unit)
    return result


def error(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("n", [1, 2, 8, 16, 32, 64, 128])
def test_inverse(n: int, tmp_path: Path) -> None:
    a = matrices(n, n) * (1 if n <= 64 else 0.5)
    out = np.full((n, n), np.nan, np.float32)
    run_text(tmp_path, INVERSE, {"a": a, "out": out}, N=n)
    assert error(out, inverse(a)) < n * 2.0**-24
    assert not np.triu(out, 1).any()
    assert (np.diag(out) == 1).all()


@pytest.mark.parametrize(("precision", "bound"), [("tf32", 2e-3), ("tf32x3", 2e-6)])
@pytest.mark.parametrize("n", [16, 32, 64])
def test_inverse_in_blocks(n: int, precision: str, bound: float, tmp_path: Path) -> None:
    a = matrices(n, n)
    out = np.full((n, n), np.nan, np.float32)
    run_text(tmp_path, INVERSE, {"a": a, "out": out}, N=n, PRECISION=precision)
    assert error(out, inverse(a)) < bound
    assert not np.triu(out, 1).any()


@pytest.mark.parametrize(
    ("dtype", "result", "unit"),
    [
        (np.float16, np.float32, 2.0**-24),
        (ml_dtypes.bfloat16, np.float32, 2.0**-24),
        (np.float64, np.float64, 2.0**-53),
    ],
    ids=["f16", "bf16", "f64"],
)
def test_only_the_input_is_rounded(dtype: Any, result: Any, unit: float, tmp_path: Path) -> None:
    a = matrices(32, 32, dtype=dtype)
    out = np.full((32, 32), np.nan, result)
    run_text(tmp_path, INVERSE, {"a": a, "out": out}, N=32)
    assert error(out, inverse(a)) < 32 * unit


def test_batch(tmp_path: Path) -> None:
    a = matrices(2, 2, 16, 16)
    out = np.full(a.shape, np.nan, np.float32)
    run_text(tmp_path, BATCH, {"a": a, "out": out}, B=2, N=16)
    assert error(out, inverse(a)) < 16 * 2.0**-24


def test_solution(tmp_path: Path) -> None:
    a, b = matrices(32, 32), matrices(32, 8)
    out = np.full(b.shape, np.nan, np.float32)
    run_text(tmp_path, SOLUTION, {"a": a, "b": b, "out": out}, N=32, M=8)
    assert error(out, inverse(a) @ b.astype(np.float64)) < 32 * 2.0**-24


def test_large_elements_lose_no_digits(tmp_path: Path) -> None:
    # The strict triangle's powers have elements of 1e16, the inverse ones below 4e9.
    n = 32
    distance = np.subtract.outer(np.arange(n), np.arange(n))
    expected = np.where(distance > 0, -3.0 * (-2.0) ** np.maximum(distance - 1, 0), distance == 0)
    a = np.where(distance > 0, 3, np.nan).astype(np.float32)
    out = np.full((n, n), np.nan, np.float32)
    run_text(tmp_path, INVERSE, {"a": a, "out": out}, N=n)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("options", [{"N": 16}, {"N": 32, "PRECISION": "tf32"}], ids=str)
def test_the_schedule_is_proven(options: dict[str, Any], tmp_path: Path) -> None:
    n = options["N"]
    module = lower_text(tmp_path, INVERSE, a="*f32", out="*f32", **options)
    a = matrices(n, n)
    out = np.full((n, n), np.nan, np.float32)
    scheduled.run(schedule_module(optimize(module)), grid=(1, 1, 1), arguments={"a": a, "out": out})
    assert error(out, inverse(a)) < 2e-3


@pytest.mark.parametrize(
    "options",
    [{"N": 64}, {"N": 64, "PRECISION": "tf32"}, {"N": 32, "PRECISION": "tf32x3"}],
    ids=str,
)
def test_machine_code_spills_nothing(options: dict[str, Any], tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, INVERSE)
    signature = signature_of(kernel, {"a": "*f32", "out": "*f32", **options})
    compiled = compile_signature(kernel, signature, targets=list(TARGETS))
    assert {cubin.spill_bytes for cubin in compiled.cubins.values()} == {0}
    assert compiled.abi.shared_bytes <= 48 << 10


def test_products_run_on_tensor_cores_only_where_that_is_asked_for(tmp_path: Path) -> None:
    def dots(**options: Any) -> int:
        module = optimize(lower_text(tmp_path, INVERSE, a="*f32", out="*f32", N=64, **options))
        return sum(operation.name == "dot" for operation in module.kernel.body.walk())

    assert dots() == dots(PRECISION="ieee") == 0
    assert dots(PRECISION="tf32") == 4


def test_f64_has_one_precision(tmp_path: Path) -> None:
    module = lower_text(tmp_path, INVERSE, a="*f64", out="*f64", N=64, PRECISION="tf32")
    values = [value for operation in module.kernel.body.walk() for value in operation.results]
    assert "f64" in {element_dtype(value.type).name for value in values}
