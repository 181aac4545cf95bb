"""Kernels run as Python functions: the same bits as the interpreter, and a debugger in them."""

from __future__ import annotations

import bdb
import io
import os
import pdb
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, FunctionType, SimpleNamespace
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


FLOW = """
@tl.kernel
def k(out, n):
    a = 0.0
    h = 3
    for i in range(n):
        if i == 1:
            h = 5
        else:
            h = -7
        if i == 2:
            continue
        a = a + 0.1
        if h == 100:
            break
    while n > 2:
        n = n - 1
        if n == 3:
            h = 2
    for i in range(3):
        if i == 1:
            break
        h = 4
    c = 3 if n > 1 and not h == 3 else 4
    tl.store(out, a + h + c)
"""


def test_lines_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, FLOW)

    def lines_of(run: Callable[[], object]) -> list[int]:
        lines: list[int] = []

        def follow(frame: FrameType, event: str, _: object) -> Any:
            if frame.f_code.co_name != "k":
                return None
            if event == "line":
                lines.append(frame.f_lineno)
            return follow

        previous = sys.gettrace()
        sys.settrace(follow)
        try:
            run()
        finally:
            sys.settrace(previous)
        return lines

    out = np.zeros(1, np.float32)
    stepped = lines_of(lambda: _run(kernel, 1, {"out": out, "n": 4}, stepwise=True))
    language = SimpleNamespace(store=lambda *_: None)
    python = FunctionType(kernel.fn.__code__, {"tl": language, "range": range})
    assert stepped == lines_of(lambda: python(0, 4))


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


NUMBERS = """
@tl.kernel
def three(n):
    return 3

@tl.kernel
def either(n):
    if n > 3:
        return 1, -7
    return 2.5, 4

@tl.kernel
def k(out, n, m, B: tl.constexpr):
{body}
"""


@pytest.mark.parametrize(
    "body",
    {
        "loop_then_cast": "hits = 0; for i in range(n):; +hits = hits + 1; "
        "tl.store(out, hits.to(tl.float32) / 3)",
        "number_cast": "a = 3; tl.store(out, a.to(tl.float16))",
        "constexpr_cast": "tl.store(out, B.to(tl.float32) + B.value)",
        "choice_cast": "c = 3 if n > 0 else 4; tl.store(out, c.to(tl.float32)); "
        "tl.store(out + 1, c.dtype.bits)",
        "choice_of_kinds": "c = 3 if n > 3 else 2.5; tl.store(out, c.dtype.bits * c); "
        "tl.store(out + 1, c.dtype.is_float)",
        "choice_of_one_number_stays": "z = tl.zeros((3 + 1 if n else 4,), tl.int32); "
        "tl.store(out, z.sum())",
        "choice_of_tuples": "a, b = (1, 2) if n > 3 else (1, -3); tl.store(out, b // 2 + 9 * a)",
        "called_kernel": "tl.store(out, three(n).to(tl.float32))",
        "called_kernel_returns_early": "a, b = either(n); tl.store(out, a); "
        "tl.store(out + 1, b // 2); tl.store(out + 2, a.dtype.bits)",
        "not_cast": "tl.store(out, (not n).to(tl.float32) + 1)",
        "dtype_words": "tl.store(out, out.dtype.element_ty.primitive_bitwidth); "
        "tl.store(out + 1, n.dtype.itemsize)",
        "format": 'tl.device_assert(n < 9, f"{n:04d} {n} {B:04d} {n:>9}"); tl.store(out, n)',
        "downwards_unsigned": "for i in range(m.to(tl.uint8), n.to(tl.uint8), -50):; "
        "+tl.store(out + i // 50, i); tl.store(out + 7, 1)",
        "downwards_to_nothing": "for i in range(n.to(tl.uint32), m.to(tl.uint32), -3):; "
        "+tl.store(out, i + 5); tl.store(out + 7, 1)",
        "downwards": "for i in range(7, 0, -2):; +tl.store(out + i, i - n)",
        "floor_division": "half = -7 if n > 3 else 5; tl.store(out, half // 2); "
        "tl.store(out + 1, half % 3)",
        "if_else": "if n > 3:; +half = -7; else:; +half = 5; tl.store(out, half // 2)",
        "if_without_else": "half = -7; if n > 3:; +half = -9; tl.store(out, half // 2)",
        "elif": "if n > 4:; +h = -7; elif n > 2:; +h = -3; else:; +h = 1.5; "
        "tl.store(out, h); tl.store(out + 1, h.dtype.bits)",
        "nested_if": "h = -1; if n > 1:; +if n > 3:; ++h = -7; +q = h // 2; else:; +q = 3; "
        "tl.store(out, q)",
        "if_that_may_return": "h = 4; q = 9; if n > 1:; +if n == 5:; ++tl.store(out, 1); ++return; "
        "+h = -7; +q = 5; else:; +q = 5; tl.store(out, h // 2); tl.store(out + 1, h.dtype.bits); "
        "tl.store(out + 2, -q // 2)",
        "if_of_a_constant": "if B > 3:; +h = -7; else:; +h = 5; tl.store(out, h // 2)",
        "if_that_meets_a_tile": "x = 0; if n > 3:; +x = tl.load(out) + 1.5; tl.store(out, x + 1); "
        "tl.store(out + 1, x.dtype.bits)",
        "loop_rounds": "a = 0.0; for i in range(1000):; +a = a + 0.1; tl.store(out, a)",
        "loop_takes_the_bodys_dtype": "a = 0; for i in range(n):; +a += tl.load(out + i) + 0.1; "
        "tl.store(out, a.to(tl.int32)); tl.store(out + 1, a.dtype.bits)",
        "loop_assigns_a_number": "h = 5; for i in range(n):; +g = h // 2; +h = -7; "
        "+tl.store(out + i, g); tl.store(out + 7, h // 2)",
        "loop_that_does_not_run": "h = -7; for i in range(n - n):; +h = 5; tl.store(out, h // 2)",
        "loop_with_continue": "h = 5; for i in range(n):; +if i % 2 == 0:; ++h = -7; ++continue; "
        "+tl.store(out + i, h // 2); tl.store(out + 7, h // 2)",
        "loop_with_break": "h = 5; for i in range(n):; +h = -7; +if i == 2:; ++h = -9; ++break; "
        "tl.store(out, h // 2); tl.store(out + 1, h.dtype.bits)",
        "nested_loops": "a = 0.0; for i in range(n):; +b = 0.0; +for j in range(100):; "
        "++b = b + 0.1; +a = a + b; tl.store(out, a)",
        "loop_of_a_tuple": "t = (0, -7); for i in range(n):; +t = (t[0] + 1, -9); "
        "tl.store(out, t[0].to(tl.float32)); tl.store(out + 1, t[1] // 2)",
        "while": "w = 20; k = -7; while w > n:; +k = -9; +w = w - 3; "
        "tl.store(out, k // 2 + w.to(tl.int8))",
        "unrolled": "k = -7; for i in tl.static_range(3):; +k = k - 2; tl.store(out, k // 2)",
        "unrolled_with_break": "k = -7; for i in tl.static_range(3):; +if i == n:; ++break; "
        "+k = k - 2; tl.store(out, k // 2)",
        "unrolled_by_keywords": "k = 0; for i in tl.static_range(1, 7, step=2):; +k += i; "
        "tl.store(out, k)",
        "invert_not": "c = not n; tl.store(out, ~c + 1); tl.store(out + 1, ~(B > 3) + 1)",
        "and": "tl.store(out, (n and 5) + 1); tl.store(out + 1, 5 and n); "
        "tl.store(out + 2, (n and m and 7) * 4)",
        "or": "tl.store(out, (n or 5) + 1); tl.store(out + 1, 0 or n); "
        "tl.store(out + 2, (n - n or 0) + 1)",
        "and_runs_only_what_it_needs": "if n > 5 and tl.load(out + 100 * n) > 0:; +n = 1; "
        "tl.store(out, n)",
        "chained": "tl.store(out, ~(1 < 0 < n) + 1); tl.store(out + 1, (0 < n <= m) + 1)",
        "nan": "tl.store(out, min(1.0, float('nan'))); tl.store(out + 1, max(float('nan'), B))",
        "beside_the_language": "hits = 0; for i in range(n):; +print(hits); +hits = hits + 1; "
        "tl.store(out, hits.to(tl.float32))",
    }.items(),
    ids=lambda item: item[0],
)
@pytest.mark.parametrize("n", [1, 3, 5])
def test_numbers_become_what_the_compiler_makes_of_them(
    body: tuple[str, str], n: int, tmp_path: Path
) -> None:
    text = "\n".join(f"    {_indented(line)}" for line in body[1].split("; "))
    outs = np.full((2, 8), -1.0, np.float32)
    for stepwise, out in enumerate(outs):
        # What only Python knows is not for the compiler.
        shown = text if stepwise else text.replace("print(hits)", "pass")
        kernel = load_kernel(tmp_path, NUMBERS.format(body=shown))
        _run(kernel, 1, {"out": out, "n": n, "m": 201, "B": 8}, stepwise=bool(stepwise))
    assert (outs[0] != -1).any()
    np.testing.assert_array_equal(outs[1], outs[0])


def _indented(line: str) -> str:
    """Return a line with four spaces for each `+` that it begins with."""
    bare = line.lstrip("+")
    return "    " * (len(line) - len(bare)) + bare


def test_values_have_no_hash() -> None:
    assert Stepped.__hash__ is None


def test_a_kernel_of_the_script_that_is_run_prints(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "import tilewright.language as tl\n"
        "@tl.kernel\n"
        "def k(x, n):\n"
        "    value = tl.load(x) * n\n"
        "    print('value', value)\n"
        "    tl.store(x, value)\n"
        "x = np.full(1, 2, np.int64)\n"
        "k[1](x, 3)\n"
        "print(x)\n"
    )
    environment = {
        **os.environ,
        "TILEWRIGHT_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("value")
    assert "6" in first
    assert second == "[6]"
