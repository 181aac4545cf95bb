"""Elementwise mathematics: dtypes, promotion, and the composed functions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text

Array = np.ndarray[Any, np.dtype[Any]]
UNARY = (
    "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor", "ceil",
)  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(
    ("argument", "expected"),
    [("a", "f32"), ("h", "f16"), ("d", "f64"), ("2", "f32"), ("tl.arange(0, 4)", "tile<4xf32>")],
)
def test_function_of_floats_takes_integers_as_f32(
    name: str, argument: str, expected: str, tmp_path: Path
) -> None:
    text = f"@tl.kernel\ndef k(a, h, d):\n    r = tl.{name}({argument})\n"
    module = lower_text(tmp_path, text, a="i64", h="f16", d="f64")
    *_, operation, _return = module.kernel.body.operations
    assert (operation.name, str(operation.result.type)) == (name, expected)


def _values(directory: Path, expression: str, x: Array) -> list[float]:
    out = np.zeros(len(x))
    text = (
        f"@tl.kernel\ndef k(x, out):\n    i = tl.arange(0, {len(x)})\n    v = tl.load(x + i)\n"
        f"    tl.store(out + i, {expression})\n"
    )
    run_text(directory, text, {"x": x, "out": out})
    return out.tolist()


def test_sigmoid_overflows_nowhere(tmp_path: Path) -> None:
    x = np.array([-1e30, -80, -1, 0, 1, 100, 1e30, np.inf], np.float32)
    found = _values(tmp_path, "tl.sigmoid(v)", x)
    expected = [0, math.exp(-80), 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1, 1, 1]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_sigmoid_of_16_bit_floats_rounds_once(tmp_path: Path) -> None:
    x = np.linspace(-8, 8, 64).astype(ml_dtypes.bfloat16)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert _values(tmp_path, "tl.sigmoid(v)", x) == exact.astype(ml_dtypes.bfloat16).tolist()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.maximum(v, 1)", [1, 1, math.nan, 5]),
        ("tl.minimum(1, v)", [-2, 0.5, math.nan, 1]),
        ("tl.clamp(v, -1, 1)", [-1, 0.5, math.nan, 1]),
        ("max(tl.sum(v), 0.0)", [math.nan] * 4),
        ("tl.abs(v)", [2, 0.5, math.nan, 5]),
        ("tl.fma(v, 2, 1)", [-3, 2, math.nan, 11]),
        ("tl.fdiv(v, 2)", [-1, 0.25, math.nan, 2.5]),
        ("tl.where(v == v, v, 0)", [-2, 0.5, 0, 5]),
        ("tl.where(i > 1, 1, 2)", [2, 2, 1, 1]),
        ("tl.where(True, v, 7)", [-2, 0.5, math.nan, 5]),
        ("tl.floor(v)", [-2, 0, math.nan, 5]),
        ("tl.cdiv(i, 2)", [0, 1, 1, 2]),
        ("tl.maximum(i > 0, i > 2)", [0, 1, 1, 1]),
        ("tl.minimum(i > 0, i > 2)", [0, 0, 0, 1]),
        ("tl.abs(i > 0)", [0, 1, 1, 1]),
    ],
)
def test_elementwise_values(expression: str, expected: list[float], tmp_path: Path) -> None:
    x = np.array([-2, 0.5, math.nan, 5], np.float32)
    np.testing.assert_array_equal(_values(tmp_path, expression, x), expected)


def test_where_promotes_its_values_and_broadcasts_all_three(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(h, a):
    i = tl.arange(0, 4)
    tl.static_assert(tl.where(i[:, None] > 1, h, i).shape == (4, 4))
    tl.static_assert(tl.where(i[:, None] > 1, h, i).dtype == tl.float16)
    tl.static_assert(tl.where(a > 0, 1, 2).dtype == tl.int32)
    tl.static_assert(tl.where(a > 0, 1, 2.0).dtype == tl.float32)
    tl.static_assert(tl.where(a > 0, h, 2.0).dtype == tl.float16)
"""
    lower_text(tmp_path, text, h="f16", a="i64")


@pytest.mark.parametrize(("text", "value"), [("nan", "0"), ("2", "nan")])
def test_extrema_of_numbers_give_nan_as_at_run_time(text: str, value: str, tmp_path: Path) -> None:
    numbers = [f"float('{number}')" if number == "nan" else number for number in (text, value)]
    source = (
        f"@tl.kernel\ndef k(x):\n    r = tl.maximum({', '.join(numbers)})\n"
        "    tl.static_assert(r != r)\n"
    )
    lower_text(tmp_path, source, x="*f32")
