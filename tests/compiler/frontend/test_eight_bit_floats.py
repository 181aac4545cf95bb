"""8-bit floats in kernels: what takes them, and in which dtypes the results are."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from helpers.eight_bit_floats import nearest, value_of
from helpers.kernel_source import lower_text, run_text
from tilewright.abi.dtypes import DType, float8e4nv, float8e5
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.frontend.constants import convert
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir import evaluate
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.passes import optimize

EIGHT_BITS = (float8e4nv, float8e5)


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_constants_are_rounded_once_and_saturate(dtype: DType) -> None:
    largest = {float8e4nv: 448.0, float8e5: 57344.0}[dtype]
    for bits in range(127):
        value, above = value_of(bits, dtype), value_of(bits + 1, dtype)
        if not above <= largest:
            break
        middle = (value + above) / 2
        for number, rounded in (
            (value, value),
            (middle, value if bits % 2 == 0 else above),
            (np.nextafter(middle, 0), value),
            (np.nextafter(middle, above), above),
        ):
            assert convert(float(number), dtype) == rounded
            assert evaluate.convert(float(number), dtype) == rounded
            assert evaluate.convert(float(-number), dtype) == -rounded
    for number in (largest + 1, float("inf"), 10**30):
        assert convert(number, dtype) == largest
        assert evaluate.convert(number, dtype) == largest
        assert convert(-number, dtype) == -largest


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_kernel_loads_chooses_casts_and_stores(dtype: str, tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out, wide, n):
    i = tl.arange(0, 256)
    a = tl.load(x + i, mask=i < n, other=1.75)
    tl.static_assert(a.dtype == x.dtype)
    b = tl.where(i % 2 == 0, a, -3.0)
    tl.static_assert(b.dtype == x.dtype)
    tl.store(out + i, b)
    tl.store(wide + i, b.to(tl.float16))
"""
    numpy = to_numpy({"f8e4m3": float8e4nv, "f8e5m2": float8e5}[dtype])
    x = np.arange(256, dtype=np.uint8).view(numpy)
    out, wide = np.zeros(256, numpy), np.zeros(256, np.float16)
    run_text(tmp_path, text, {"x": x, "out": out, "wide": wide, "n": 200})
    expected = np.where(np.arange(256) < 200, x.astype(np.float32), 1.75)
    expected = np.where(np.arange(256) % 2 == 0, expected, -3.0)
    np.testing.assert_array_equal(wide.astype(np.float32), expected)
    np.testing.assert_array_equal(out.astype(np.float32), expected)


def test_store_casts_and_saturates(tmp_path: Path) -> None:
    text = (
        "@tl.kernel\ndef k(x, out):\n    i = tl.arange(0, 4)\n    tl.store(out + i, tl.load(x + i))"
    )
    x, out = np.array([1e9, -449, 0.3, np.nan], np.float32), np.zeros(4, ml_dtypes.float8_e4m3fn)
    run_text(tmp_path, text, {"x": x, "out": out})
    np.testing.assert_array_equal(out.astype(np.float32), [448, -448, 0.3125, np.nan])


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_the_way_through_f32_and_back_saturates_optimized_too(dtype: DType, tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out):
    i = tl.arange(0, 256)
    tl.store(out + i, tl.load(x + i).to(tl.float32).to(x.dtype))
"""
    module = lower_text(tmp_path, text, x=f"*{dtype}", out=f"*{dtype}")
    patterns = np.arange(256, dtype=np.uint8)
    truth = nearest(np.array([value_of(bits, dtype) for bits in range(256)]), dtype)
    for version in (module, optimize(module)):
        out = np.zeros(256, to_numpy(dtype))
        run(version, grid=(1, 1, 1), arguments={"x": patterns.view(out.dtype), "out": out})
        np.testing.assert_array_equal(out.view(np.uint8), truth)


def test_dot_takes_both_formats_together(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, y, out):
    i = tl.arange(0, 16)
    index = i[:, None] * 16 + i[None, :]
    acc = tl.dot(tl.load(x + index), tl.load(y + index))
    tl.static_assert(acc.dtype == tl.float32)
    tl.store(out + index, acc)
"""
    random = np.random.default_rng(3)
    x = random.standard_normal((16, 16)).astype(ml_dtypes.float8_e4m3fn)
    y = random.standard_normal((16, 16)).astype(ml_dtypes.float8_e5m2)
    out = np.zeros((16, 16), np.float32)
    run_text(tmp_path, text, {"x": x, "y": y, "out": out})
    expected = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_array_equal(out, expected.astype(np.float32))


def test_ir_names_them(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x):
    tl.store(x + tl.arange(0, 4), tl.full(4, 1.5, tl.float8e5))
"""
    module = lower_text(tmp_path, text, x="*f8e5m2")
    printed = print_module(module)
    assert "tile<4xf8e5m2>" in printed
    assert print_module(parse_module(printed)) == printed
