"""Operators: values by the interpreter against NumPy or Python, dtypes from the IR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright.abi.dtypes import bfloat16
from tilewright_compiler.ir.core import Module

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = {
    "p": "*f32", "a": "i32", "b": "i64", "u": "u32", "s": "i8", "c": "i1",
    "h": "f16", "g": "bf16", "f": "f32", "d": "f64",
}  # fmt: skip


def _type_of(directory: Path, expression: str) -> str:
    """Return the type of the variable `r` assigned from an expression over TYPES."""
    text = (
        f"@tl.kernel\ndef k({', '.join(TYPES)}):\n    t = tl.arange(0, 8)\n    r = {expression}\n"
    )
    module = lower_text(directory, text, **TYPES)  # type: ignore[arg-type]  # no option among them
    (value,) = (
        result
        for operation in module.kernel.body.walk()
        for result in operation.results
        if result.name == "r"
    )
    return str(value.type)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + b", "i64"),
        ("a + u", "u32"),
        ("a + 1", "i32"),
        ("a + 5000000000 * 0", "i32"),
        ("b * 1.5", "f32"),
        ("h + 1", "f16"),
        ("h + 1.5", "f16"),
        ("h + g", "f32"),
        ("h * a", "f16"),
        ("d + f", "f64"),
        ("a / b", "f32"),
        ("c / c", "f32"),
        ("h / 2", "f16"),
        ("c + c", "i32"),
        ("-c", "i32"),
        ("~c", "i1"),
        ("c & True", "i1"),
        ("c | (a > 3)", "i1"),
        ("s << 2", "i8"),
        ("s < 100", "i1"),
        ("h == 1", "i1"),
        ("s ** 3", "i8"),
        ("t + a", "tile<8xi32>"),
        ("t + b", "tile<8xi64>"),
        ("t * 0.5", "tile<8xf32>"),
        ("t[:, None] + t[None, :]", "tile<8x8xi32>"),
        ("t[:, None] + t", "tile<8x8xi32>"),
        ("t[None, :, None] + 1", "tile<1x8x1xi32>"),
        ("t[:, None] < b", "tile<8x1xi1>"),
        ("p + t", "tile<8xptr<f32>>"),
        ("t + p", "tile<8xptr<f32>>"),
        ("p + b", "ptr<f32>"),
        ("(p + t)[:, None] - t", "tile<8x8xptr<f32>>"),
        ("t.to(tl.float32)", "tile<8xf32>"),
        ("(1).to(tl.float16)", "f16"),
        ("t.to(p.dtype)", "tile<8xf32>"),
        ("int(h)", "i64"),
        ("float(a)", "f32"),
        ("float(d + 1)", "f64"),
        ("bool(a)", "i1"),
        ("max(a, b, 3)", "i64"),
        ("abs(h)", "f16"),
    ],
)
def test_dtype_of_result(expression: str, expected: str, tmp_path: Path) -> None:
    # Assigning gives a value its name; an operand that passes through would keep its own.
    assert _type_of(tmp_path, expression) == expected


INTEGERS = np.array([-7, -2, 0, 3, 8, 2**31 - 1, -(2**31), 5], np.int32)
DIVISORS = np.array([2, -3, 5, -1, 3, 7, 3, -5], np.int32)


def _on_tiles(directory: Path, expression: str, **arrays: Array) -> Array:
    """Evaluate an integer expression over tiles that are loaded from arrays of 8 elements."""
    loads = "".join(f"    {name} = tl.load({name} + i)\n" for name in arrays)
    text = (
        f"@tl.kernel\ndef k(out, {', '.join(arrays)}):\n    i = tl.arange(0, 8)\n{loads}"
        f"    tl.store(out + i, {expression})\n"
    )
    out = np.zeros(8, np.int64)
    run_text(directory, text, {"out": out, **arrays})
    return out


def _truncated(x: Array, y: Array) -> Array:
    quotient = np.abs(x.astype(np.int64)) // np.abs(y.astype(np.int64))
    return np.asarray(np.sign(x) * np.sign(y) * quotient, x.dtype)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x + 1", INTEGERS + np.int32(1)),
        ("1 - x", np.int32(1) - INTEGERS),
        ("x * x", INTEGERS * INTEGERS),
        ("x // y", _truncated(INTEGERS, DIVISORS)),
        ("x % y", INTEGERS - _truncated(INTEGERS, DIVISORS) * DIVISORS),
        ("x & 6", INTEGERS & 6),
        ("x | 6", INTEGERS | 6),
        ("x ^ y", INTEGERS ^ DIVISORS),
        ("x << 3", INTEGERS << np.int32(3)),
        ("x >> 3", INTEGERS >> 3),
        ("~x", ~INTEGERS),
        ("-x", -INTEGERS),
        ("+x", INTEGERS),
        ("x ** 3", INTEGERS * INTEGERS * INTEGERS),
        ("(x > 0) + (x > 4)", (INTEGERS > 0).astype(int) + (INTEGERS > 4)),
        ("~(x > 0)", INTEGERS <= 0),
        ("(x > 0) ^ True", INTEGERS <= 0),
        ("x == 8", INTEGERS == 8),
        ("x != y", INTEGERS != DIVISORS),
        ("abs(x)", np.abs(INTEGERS)),
        ("tl.maximum(x, y)", np.maximum(INTEGERS, DIVISORS)),
        ("tl.where(x > y, x, 0)", np.where(INTEGERS > DIVISORS, INTEGERS, 0)),
    ],
)
def test_integer_arithmetic_is_that_of_c(expression: str, expected: Array, tmp_path: Path) -> None:
    with np.errstate(over="ignore"):
        found = _on_tiles(tmp_path, expression, x=INTEGERS, y=DIVISORS)
    np.testing.assert_array_equal(found, expected)


def test_unsigned_negation_and_complement_wrap(tmp_path: Path) -> None:
    x = np.array([0, 1, 2, 250, 255, 3, 4, 5], np.uint8)
    np.testing.assert_array_equal(_on_tiles(tmp_path, "-x", x=x), -x)
    np.testing.assert_array_equal(_on_tiles(tmp_path, "~x", x=x), ~x)


def test_division_of_integers_is_a_float_division(tmp_path: Path) -> None:
    out = np.zeros(1, np.float32)
    run_text(
        tmp_path, "@tl.kernel\ndef k(out, n):\n    tl.store(out, n / 3)\n", {"out": out, "n": 1}
    )
    assert out[0] == np.float32(1) / np.float32(3)


def test_float_remainder_takes_the_sign_of_the_dividend(tmp_path: Path) -> None:
    out = np.zeros(1, np.float32)
    text = "@tl.kernel\ndef k(out, f):\n    tl.store(out, f % 2)\n"
    run_text(tmp_path, text, {"out": out, "f": -3.5})
    assert out[0] == -1.5


@pytest.mark.parametrize(
    "expression",
    [
        "-7 // 2 == -4",
        "-7 % 2 == 1",
        "7 / 2 == 3.5",
        "2 ** -1 == 0.5",
        "1 << 40 == 1099511627776",
        "B * 2 + 1 == 129",
        "0 < B < 100",
        "not 100 < B < 200",
        "B in (32, 64)",
        "B not in (1, 2)",
        'MODE == "sum" and MODE != "max"',
        "WEIGHT is None",
        "B is not None",
        "(3 if B > 32 else 4) == 3",
        "(None or 5) == 5",
        "(0 and undefined_is_not_reached) == 0",
        "min(B, 3, 7) == 3",
        "max((1, 9, 4)) == 9",
        "abs(-3) == 3",
        "int(3.9) == 3",
        "float(3) == 3.0",
        "len((1, 2, 3)) == 3",
        "bool(B)",
        "float('-inf') < -1e300",
        "tl.cdiv(B, 3) == 22",
        "tl.maximum(2, 3) == 3",
        "~True == False",
        "~5 == -6",
        "x.dtype == tl.float32",
        "x.dtype.is_float and x.dtype.bits == 32",
        "tl.zeros((4, B), tl.int8).shape == (4, 64)",
        "tl.zeros((4, B), tl.int8).shape[-1] == B",
        "tl.zeros((4, B), tl.int8).T.shape == (B, 4)",
        "DTYPE == tl.bfloat16",
        "tl.constexpr(3) == 3",
        "-True == -1",
    ],
)
def test_compile_time_arithmetic_is_python_s(expression: str, tmp_path: Path) -> None:
    text = (
        "undefined_is_not_reached = tl.constexpr(1)\n@tl.kernel\n"
        "def k(x, B: tl.constexpr, MODE: tl.constexpr, WEIGHT: tl.constexpr, DTYPE: "
        "tl.constexpr):\n"
        f"    tl.static_assert({expression})\n"
    )
    lower_text(tmp_path, text, x="*f32", B=64, MODE="sum", WEIGHT=None, DTYPE=bfloat16)


def _constants(module: Module) -> list[tuple[object, str]]:
    return [
        (operation.attributes["value"], str(operation.result.type))
        for operation in module.kernel.body.walk()
        if operation.name == "constant"
    ]


def test_number_is_rounded_once_to_the_dtype_it_meets(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(g):\n    r = g + 1.0039062500009095\n"  # 1 + 2**-8 + 2**-40
    assert _constants(lower_text(tmp_path, text, g="bf16")) == [(1.0078125, "bf16")]


def test_power_multiplies_by_squaring(tmp_path: Path) -> None:
    module = lower_text(tmp_path, "@tl.kernel\ndef k(f):\n    r = f ** 13\n", f="f32")
    names = [operation.name for operation in module.kernel.body.operations]
    assert names == ["mul"] * 5 + ["return"]
