"""Kernels run as Python functions: the same bits as the interpreter, and a debugger in them."""

from __future__ import annotations

import bdb
import io
import pdb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import constexpr_kernels, interpreted_kernels
from helpers.kernel_source import load_kernel
from helpers.vectors import differences, load_vectors
from tilewright.abi.numpy_types import from_numpy
from tilewright.abi.signature import Constexpr, KernelSignature, declared
from tilewright.errors import InterpreterError, KernelTypeError, OutOfBoundsError
from tilewright.language import Kernel
from tilewright_compiler import driver
from tilewright_compiler.stepping import Stepped

ARRAYS = np.random.default_rng(0)


def _signature(kernel: Kernel, arguments: dict[str, Any]) -> KernelSignature:
    declarations: dict[str, Any] = {}
    for parameter in kernel.parameters:
        value = arguments[parameter.name]
        if parameter.is_constexpr:
            declarations[parameter.name] = Constexpr(value)
        elif isinstance(value, np.ndarray):
            declarations[parameter.name] = (from_numpy(value.dtype),)
        else:
            declarations[parameter.name] = from_numpy(np.asarray(value).dtype)
    return declared(
        declarations, rule=kernel.rule, specialization="general", num_warps=4, num_stages=3
    )


def _run(kernel: Kernel, grid: int, arguments: dict[str, Any], *, stepwise: bool) -> None:
    signature = _signature(kernel, arguments)
    runtime = {name: arguments[name] for name, _ in signature.runtime}
    run = driver.step_kernel if stepwise else driver.interpret_kernel
    run(kernel, signature, grid=(grid, 1, 1), arguments=runtime)


CASES: list[tuple[Kernel, int, dict[str, Any]]] = [
    (
        interpreted_kernels.vecadd,
        3,
        {
            "x": ARRAYS.normal(size=70).astype(np.float32),
            "y": ARRAYS.normal(size=70).astype(np.float16),
            "out": np.zeros(70, np.float32),
            "n": 70,
            "BLOCK": 32,
        },
    ),
    (
        interpreted_kernels.row_softmax,
        2,
        {
            "x": ARRAYS.normal(size=(2, 41)).astype(np.float32),
            "out": np.zeros((2, 41), np.float32),
            "columns": 41,
            "BLOCK": 16,
        },
    ),
    (
        interpreted_kernels.greatest_common_divisor,
        3,
        {
            "x": np.array([12, 35, 8]),
            "y": np.array([18, 14, 0]),
            "out": np.zeros(3, np.int64),
        },
    ),
    (
        interpreted_kernels.smoothed,
        5,
        {"x": ARRAYS.normal(size=5), "out": np.zeros(5), "n": 5},
    ),
    (
        interpreted_kernels.strided_sum,
        2,
        {"x": ARRAYS.normal(size=50), "out": np.zeros(2), "n": 50, "BLOCK": 8},
    ),
    (
        constexpr_kernels.record,
        1,
        {
            "x": np.array([5]),
            "out": np.zeros(4, np.int64),
            "n": 3,
            "BLOCK": 8,
            "EVEN": True,
            "TWICE": 16,
        },
    ),
]


@pytest.mark.parametrize(("kernel", "grid", "arguments"), CASES, ids=[c[0].name for c in CASES])
def test_steps_give_the_interpreters_bits(
    kernel: Kernel, grid: int, arguments: dict[str, Any]
) -> None:
    expected, found = (
        {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        for _ in range(2)
    )
    _run(kernel, grid, expected, stepwise=False)
    _run(kernel, grid, found, stepwise=True)
    assert expected["out"].any()
    np.testing.assert_array_equal(found["out"], expected["out"])


EVERYTHING = """
WIDTH = tl.constexpr(4)

@tl.kernel
def halves(a, k: tl.constexpr = 2):
    return a // k, (a % k, k)

@tl.kernel
def k(x, out, n, B: tl.constexpr):
    lanes = tl.arange(0, B)
    total = 0
    for i in range(n):
        if i % 2 == 1:
            continue
        half, (rest, k) = halves(i)
        total += half * 10 + rest + k
    for j in tl.static_range(WIDTH):
        total = total + j
    window = tl.make_block_ptr(x, (n,), (1,), (0,), (B,), (0,))
    window = tl.advance(window, (1,))
    values = tl.load(window, boundary_check=(0,)).to(tl.float32)
    scale = tl.max(values) if n > 2 and not n == 5 else 1.0
    matrix = values[:, None] * scale + tl.where(lanes < 2, 1.0, -1.0)[None, :]
    result = matrix.sum(axis=1) + max(total, n) + len(matrix.shape) + abs(-n) + x.dtype.bits
    tl.device_assert(result == result, f"{B} lanes")
    tl.store(out + lanes, -result)
"""


@pytest.mark.parametrize("n", [0, 1, 3, 5, 6])
def test_everything_steps(n: int, tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, EVERYTHING)
    outs = np.zeros((2, 8), np.float32)
    for stepwise, out in enumerate(outs):
        arguments = {"x": np.arange(9, dtype=np.int16), "out": out, "n": n, "B": 8}
        _run(kernel, 1, arguments, stepwise=bool(stepwise))
    np.testing.assert_array_equal(outs[1], outs[0])


TOTAL = """
@tl.kernel
def k(x, out):
    i = tl.program_id(0)
    value = tl.load(x + tl.arange(0, 4))
    total = tl.sum(value, axis=0)
    tl.store(out + i, total)
"""


def test_a_debugger_stops_in_the_kernel_and_shows_values(tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, TOTAL)
    commands = f"""
break {tmp_path / "kernels.py"}:6
continue
p i
p value
next
p total
p int(total) + 1
where
clear 1
continue
"""
    output = io.StringIO()
    arguments = {"x": np.arange(1.0, 5.0), "out": np.zeros(2)}
    debugger = pdb.Pdb(stdin=io.StringIO(commands.lstrip()), stdout=output, readrc=False)
    debugger.use_rawinput = False
    debugger.runcall(_run, kernel, 2, arguments, stepwise=True)
    shown = output.getvalue()
    assert "kernels.py(6)k()" in shown
    assert "<i64 scalar: 0>" in shown
    assert "<f64 tile [4]: [1. 2. 3. 4.]>" in shown
    assert "<f64 scalar: 10.0>" in shown
    assert "11" in shown
    assert bdb.Breakpoint.bpbynumber is not None
    np.testing.assert_array_equal(arguments["out"], [10, 10])


def test_what_python_knows_beside_the_language_works_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = load_kernel(
        tmp_path, TOTAL.replace("total = tl.sum", "print(value)\n    total = tl.sum")
    )
    _run(kernel, 1, {"x": np.arange(4.0), "out": np.zeros(1)}, stepwise=True)
    assert "f64 tile [4]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("y = x * 2", KernelTypeError, "pointers only move"),
        ("y = tl.load(x + 100)", OutOfBoundsError, "x"),
        ("tl.device_assert(tl.load(x) > 3, 'small')", InterpreterError, "small"),
        ("y = 1 if tl.arange(0, 4) > 2 else 3", KernelTypeError, "one bool for the whole program"),
        ("y = undefined", NameError, "undefined"),
    ],
)
def test_errors_name_the_line(line: str, error: type[Exception], says: str, tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, f"@tl.kernel\ndef k(x):\n    z = 1\n    {line}\n")
    with pytest.raises(error, match=says) as caught:
        _run(kernel, 1, {"x": np.zeros(4)}, stepwise=True)
    if error is not NameError:
        assert f"{tmp_path / 'kernels.py'}:4" in str(caught.value)


@pytest.mark.parametrize(
    "vector",
    [v for name in ("operators", "reduce", "scan", "sort", "indexing") for v in load_vectors(name)],
    ids=str,
)
def test_vectors_step(vector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from helpers import vectors

    monkeypatch.setattr(driver, "interpret_kernel", driver.step_kernel)
    assert not differences(vector, vectors.run_vector(vector, on_device=False))


def test_a_function_that_reduces_is_no_step_but_computed(tmp_path: Path) -> None:
    text = """
        @tl.kernel
        def after(a, b, c, d):
            return a * c, b * c + d

        @tl.kernel
        def k(x, out):
            i = tl.arange(0, 8)
            a, b = tl.reduce((tl.load(x + i), i), 0, after)
            tl.store(out, a)
            tl.store(out + 1, b)
    """
    kernel = load_kernel(tmp_path, text)
    left = []
    for stepwise in (False, True):
        out = np.zeros(2, np.int32)
        _run(kernel, 1, {"x": np.arange(1, 9, dtype=np.int32), "out": out}, stepwise=stepwise)
        left.append(out)
    np.testing.assert_array_equal(left[0], left[1])
    assert left[0][0] == 40320


def test_values_have_no_hash() -> None:
    assert Stepped.__hash__ is None
