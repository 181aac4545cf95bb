"""tl.dot: the dtypes that meet, the accumulator, the precision; `.T` of its operands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright_compiler.ir.types import element_dtype

TEXT = """
@tl.kernel
def k(x, y, out, PRECISION: tl.constexpr = None):
    m = tl.arange(0, 8)[:, None]
    k = tl.arange(0, 4)
    n = tl.arange(0, 16)[None, :]
    a = tl.load(x + m * 4 + k[None, :])
    b = tl.load(y + k[:, None] * 16 + n)
    tl.store(out + m * 16 + n, {expression})
"""
ACC = "tl.full((8, 16), 3, {})"
X = np.array([[(7 * i + 3 * j) % 11 - 4 for j in range(4)] for i in range(8)])
Y = np.array([[(5 * i + 2 * j) % 7 - 3 for j in range(16)] for i in range(4)])


def _run(expression: str, tmp_path: Path, x: Any, y: Any, out: Any, **constexprs: Any) -> Any:
    result = np.zeros((8, 16), out)
    text = TEXT.format(expression=expression)
    run_text(tmp_path, text, {"x": x, "y": y, "out": result}, **constexprs)
    return result


@pytest.mark.parametrize(
    ("left", "right", "accumulator"),
    [
        ("float16", "float16", "float32"),
        ("bfloat16", "bfloat16", "float32"),
        ("float32", "float32", "float32"),
        ("float64", "float64", "float64"),
        ("int8", "int8", "int32"),
        ("uint8", "uint8", "int32"),
        ("int8", "uint8", "int32"),
    ],
)
def test_product_and_accumulator(left: str, right: str, accumulator: str, tmp_path: Path) -> None:
    types = {"bfloat16": ml_dtypes.bfloat16}
    x = (X % 5).astype(types.get(left, left))
    y = (Y % 5).astype(types.get(right, right))
    expected = x.astype(np.float64) @ y.astype(np.float64)
    found = _run("tl.dot(a, b)", tmp_path, x, y, accumulator)
    np.testing.assert_array_equal(found, expected)
    acc = ACC.format(f"tl.{accumulator}")
    found = _run(f"tl.dot(a, b, {acc})", tmp_path, x, y, accumulator)
    np.testing.assert_array_equal(found, expected + 3)


def test_transposed_operands(tmp_path: Path) -> None:
    x, y = X.astype(np.float32), Y.astype(np.float32)
    found = _run("tl.dot(b.T, a.T).T", tmp_path, x, y, np.float32)
    np.testing.assert_array_equal(found, x @ y)
    found = _run("tl.trans(tl.dot(tl.trans(b), tl.trans(a)))", tmp_path, x, y, np.float32)
    np.testing.assert_array_equal(found, x @ y)


def test_operands_that_are_held_once_are_summed_in_full(tmp_path: Path) -> None:
    ones = "tl.full((8, 4), 1, tl.float32), tl.full((4, 16), 2, tl.float32)"
    found = _run(f"tl.dot({ones})", tmp_path, X.astype("f4"), Y.astype("f4"), np.float32)
    np.testing.assert_array_equal(found, np.full((8, 16), 8))


def test_integers_wrap(tmp_path: Path) -> None:
    x, y = np.full((8, 4), -128, np.int8), np.full((4, 16), -128, np.int8)
    acc = "tl.full((8, 16), 2147483647, tl.int32)"
    found = _run(f"tl.dot(a, b, {acc})", tmp_path, x, y, np.int32)
    assert np.all(found == -(2**31) + 4 * 2**14 - 1)


def test_result_is_rounded_once_to_the_dtype_asked_for(tmp_path: Path) -> None:
    x, y = np.zeros((8, 4), np.float16), np.zeros((4, 16), np.float16)
    # 2**11 + 1 is halfway between two f16 numbers; f16 sums would lose the last addend.
    x[0], y[:, 0] = (2048, 1, 0.5, 0), (1, 1, 1, 1)
    found = _run("tl.dot(a, b, out_dtype=tl.float16)", tmp_path, x, y, np.float16)
    assert found[0, 0] == 2050
    module = lower_text(
        tmp_path,
        TEXT.format(expression="tl.dot(a, b, out_dtype=tl.float16)"),
        x="*f16",
        y="*f16",
        out="*f16",
    )
    names = [operation.name for operation in module.kernel.body.operations]
    assert names[names.index("dot") + 1] == "cast"


def test_infinities_and_nan_go_through(tmp_path: Path) -> None:
    x, y = np.ones((8, 4), np.float32), np.ones((4, 16), np.float32)
    x[0, 0], x[1, 0], x[2, :2], x[3, :] = np.inf, np.nan, (np.inf, -np.inf), 3e38
    found = _run("tl.dot(a, b)", tmp_path, x, y, np.float32)[:, 0]
    np.testing.assert_array_equal(found[:5], [np.inf, np.nan, np.nan, np.inf, 4])


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("ieee", (1 + 2.0**-11 + 2.0**-22, 1 + 2.0**-12)),
        ("tf32", (1 + 2.0**-10, 1.0)),
        ("tf32x3", (1 + 2.0**-11 + 2.0**-22, 1 + 2.0**-12)),
    ],
)
def test_precision_of_float32(
    precision: str, expected: tuple[float, float], tmp_path: Path
) -> None:
    x, y = np.zeros((8, 4), np.float32), np.zeros((4, 16), np.float32)
    y[0, 0] = 1
    # Halfway between two tf32 numbers: ties go away from zero. The other lies below the middle.
    x[:4, 0] = 1 + 2.0**-11 + 2.0**-22, 1 + 2.0**-12, -1 - 2.0**-11, 1 + 2.0**-11
    found = _run("tl.dot(a, b, None, PRECISION)", tmp_path, x, y, np.float32, PRECISION=precision)
    assert tuple(found[:2, 0]) == expected
    if precision == "tf32":
        assert tuple(found[2:4, 0]) == (-1 - 2.0**-10, 1 + 2.0**-10)


def test_three_products_are_about_as_exact_as_float32(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    x = random.standard_normal((8, 4)).astype(np.float32)
    y = random.standard_normal((4, 16)).astype(np.float32)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    scale = np.abs(x).astype(np.float64) @ np.abs(y)
    errors = {}
    for precision in ("tf32", "tf32x3"):
        found = _run(
            "tl.dot(a, b, input_precision=PRECISION)",
            tmp_path,
            x,
            y,
            np.float32,
            PRECISION=precision,
        )
        errors[precision] = np.max(np.abs(found - exact) / scale)
    # Half a unit in the last place of tf32 on each side, against that of f32 on the sum.
    assert 2.0**-14 < errors["tf32"] < 2.0**-10
    assert errors["tf32x3"] < 2.0**-21


def test_precision_is_for_float32_only(tmp_path: Path) -> None:
    for dtype, expected in (("*f16", "ieee"), ("*f64", "ieee"), ("*i8", "ieee"), ("*f32", "tf32")):
        text = TEXT.format(expression="tl.dot(a, b, input_precision='tf32')")
        module = lower_text(tmp_path, text, x=dtype, y=dtype, out="*f32")
        (dot,) = (o for o in module.kernel.body.operations if o.name == "dot")
        assert dot.attributes["precision"] == expected


def test_type_of_a_loop_accumulator(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n):
    a = tl.load(x + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16))
    acc = tl.zeros((16, 16), tl.float32)
    for _ in range(n):
        acc = tl.dot(a, a.T, acc)
    tl.static_assert(acc.dtype == tl.float32)
"""
    module = lower_text(tmp_path, text, x="*bf16", n="i64")
    (loop,) = (o for o in module.kernel.body.operations if o.name == "for")
    assert str(element_dtype(loop.results[0].type)) == "f32"
