"""Emitted functions against f64 truths, in units of the last place.

The interpreter rounds the hardware's approximate instructions correctly, so what is measured is
the emitted code's own error; ex2.approx and lg2.approx add up to two units on a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from helpers.emitted import apply_emitted, run_scheduled
from helpers.every_way import lower_text
from helpers.tile_operation import Array, apply
from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

_TRUTH: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "floor": np.floor,
    "ceil": np.ceil,
}
_EXACT = ("sqrt", "floor", "ceil")
_DIGITS = {float16: (11, -24), bfloat16: (8, -133), float32: (24, -149), float64: (53, -1074)}


def _inputs(name: str, dtype: DType) -> Array:
    random = np.random.default_rng(7)
    spread = random.standard_normal(220) * 10 ** random.uniform(-6, 2, 220)
    wide = random.uniform(-105, 90, 24)
    edges = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 88.7, -103.9, 1, -1, 3e38, -88.5]
    values = np.concatenate([spread, wide, edges])
    if name in ("log", "log2", "sqrt", "rsqrt"):
        values = np.where(np.arange(256) % 16 < 15, np.abs(values), values)
    if name in ("sin", "cos"):
        values = np.where(np.abs(values) < 1e5, values, 1.0)
    with np.errstate(all="ignore"):
        return values.astype(to_numpy(dtype))


def _errors_in_ulp(got: Array, truth: Array, dtype: DType) -> Array:
    precision, lowest = _DIGITS[dtype]
    exponent = np.floor(np.log2(np.maximum(np.abs(truth), 1e-320)))
    unit = 2.0 ** np.maximum(exponent - precision + 1, lowest)
    return np.asarray(np.abs(got.astype(np.float64) - truth) / unit)


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
@pytest.mark.parametrize("name", _TRUTH)
def test_error_is_within_bounds(name: str, dtype: DType) -> None:
    inputs = _inputs(name, dtype)
    got = apply_emitted(name, (inputs,))
    with np.errstate(all="ignore"):
        truth = _TRUTH[name](inputs.astype(np.float64))
        rounded = truth.astype(to_numpy(dtype)).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), np.isnan(truth))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(got[infinite].astype(np.float64), rounded[infinite])
    finite = np.isfinite(rounded)
    # f16 and bf16 round an f32 result once; 2 units of f32 and f64 leave 2 for the hardware.
    if name == "exp2":  # subnormal results may be flushed to 0
        finite &= (np.abs(truth) >= 2.0**-126) | (got != 0)
    limit = 0.5 if name in _EXACT else 0.501 if dtype.bits == 16 else 2.0
    assert _errors_in_ulp(got[finite], truth[finite], dtype).max() <= limit


@pytest.mark.parametrize(
    ("dtype", "a", "b", "c"),
    [
        (float32, 1 + 2**-23, 1 + 2**-23, -1.0),
        (float32, 1 + 2**-12, 1 - 2**-12, -1.0),
        (float16, 1 + 2**-10, 1 + 2**-10, -1.0),
        # The exact sum is just above a tie of bf16; through f32 the tail would be lost.
        (bfloat16, 1.0, 1 + 2**-7, 2**-8 * (1 + 2**-7)),
        (float64, 1 + 2**-52, 1 - 2**-52, -1.0),
    ],
    ids=str,
)
def test_fma_rounds_once(dtype: DType, a: float, b: float, c: float) -> None:
    operands = [np.full(32, value).astype(to_numpy(dtype)) for value in (a, b, c)]
    exact = Fraction(float(operands[0][0])) * Fraction(float(operands[1][0])) + Fraction(
        float(operands[2][0])
    )
    got = Fraction(float(apply_emitted("fma", operands)[0]))
    precision, _ = _DIGITS[dtype]
    # Nearest: no representable number is closer than half a unit in the last place.
    exponent = math.floor(math.log2(abs(exact)))
    assert abs(got - exact) <= Fraction(2) ** (exponent - precision)


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_fdiv_is_within_two_units(dtype: DType) -> None:
    random = np.random.default_rng(3)
    spread = 10 ** random.uniform(-1, 1, (2, 256))
    left, right = (random.standard_normal((2, 256)) * spread).astype(to_numpy(dtype))
    got = apply_emitted("fdiv", (left, right))
    truth = left.astype(np.float64) / right.astype(np.float64)
    limit = 0.501 if dtype.bits == 16 else 2.0
    assert _errors_in_ulp(got, truth, dtype).max() <= limit


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
@pytest.mark.parametrize("name", ["minnum", "maxnum"])
def test_a_nan_is_passed_over(name: str, dtype: DType) -> None:
    values = [np.nan, -0.0, 0.0, 1.0, -np.inf, np.inf, 2.5, -3.0]
    left = np.repeat(values, 8).astype(to_numpy(dtype))
    right = np.tile(values, 8).astype(to_numpy(dtype))
    got = apply_emitted(name, (left, right))
    expected = apply(name, (left, right))
    bits = f"u{left.dtype.itemsize}"
    is_nan = np.isnan(left.astype(np.float64)) & np.isnan(right.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), is_nan)
    np.testing.assert_array_equal(got[~is_nan].view(bits), expected[~is_nan].view(bits))
    # +0 is above -0, and of a number and a NaN the number is taken.
    assert np.signbit(expected[8 * 1 + 2].astype(np.float64)) == (name == "minnum")
    assert expected[3] == expected[24] == 1


def _composed(expression: str, x: Array, result: DType) -> Array:
    """Return what an expression of a tile `x` gives in executed PTX."""
    arrays = {"x": x.ravel(), "out": np.zeros(x.size, to_numpy(result))}
    text = (
        "@tl.kernel\ndef k(x, out):\n"
        f"    places = tl.reshape(tl.arange(0, {x.size}), {x.shape})\n"
        f"    x = tl.load(x + places)\n    tl.store(out + places, {expression})\n"
    )
    module = schedule_module(optimize(lower_text(text, arrays)))
    run_scheduled(module, list(arrays.values()))
    return np.asarray(arrays["out"]).reshape(x.shape)


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_sigmoid_is_within_its_bound(dtype: DType) -> None:
    x = np.clip(_inputs("sigmoid", dtype).astype(np.float64), -80, 80).astype(to_numpy(dtype))
    x = np.where(np.isnan(x), to_numpy(dtype).type(0), x).astype(to_numpy(dtype))
    got = _composed("tl.sigmoid(x)", x, dtype)
    wide = x.astype(np.float64)
    truth = np.where(wide < 0, np.exp(wide), 1) / (1 + np.exp(-np.abs(wide)))
    limit = 0.51 if dtype.bits == 16 else 4
    assert _errors_in_ulp(got, truth, dtype).max() <= limit


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_is_near_the_truth(axis: int, dtype: DType) -> None:
    x = (np.random.default_rng(4).standard_normal((8, 64)) * 4).astype(to_numpy(dtype))
    got = _composed(f"tl.softmax(x, {axis})", x, dtype)
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis, keepdims=True))
    truth = powers / powers.sum(axis, keepdims=True)
    # A distance of n from the maximum is rounded by up to n / 2 units of 1, and so is its power.
    limit = 0.51 if dtype.bits == 16 else 8 + wide.max(axis, keepdims=True) - wide
    assert (_errors_in_ulp(got, truth, dtype) <= limit).all()
