"""Softmax, layer normalisation and reductions against exact values and the formulas in f64."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import ArgumentError
from tilewright.reference import norm, reduce, softmax

BF16 = np.dtype(ml_dtypes.bfloat16)
# Distance from 1 to the next number.
EPSILON = {
    np.dtype(np.float16): 2.0**-10,
    BF16: 2.0**-7,
    np.dtype(np.float32): 2.0**-23,
    np.dtype(np.float64): 2.0**-52,
}
FLOATS = list(EPSILON)


def values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax_is_the_formula(dtype: np.dtype[Any], axis: int) -> None:
    x = values((3, 5), dtype)
    exact = np.exp(x.astype(np.float64))
    expected = exact / exact.sum(axis=axis, keepdims=True)
    result = softmax.softmax(x, axis)
    assert result.dtype == dtype
    epsilon = EPSILON[dtype]
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=max(epsilon, 1e-6))


def test_softmax_does_not_overflow() -> None:
    assert softmax.softmax(np.array([1000.0, 1000.0])).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("row", [[-math.inf, -math.inf], [math.inf, 0.0], [math.nan, 0.0]])
def test_softmax_of_an_undefined_row_is_nan(row: list[float]) -> None:
    assert np.isnan(softmax.softmax(np.array(row))).all()


def test_softmax_gives_a_masked_element_weight_zero() -> None:
    assert softmax.softmax(np.array([0.0, -math.inf])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)], ids=str)
def test_empty_rows_give_empty_results(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    assert softmax.softmax(x).shape == norm.layer_norm(x).shape == shape


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layer_norm_is_the_formula(dtype: np.dtype[Any]) -> None:
    x, weight, bias = values((4, 9), dtype), values((9,), dtype), values((9,), np.dtype(np.float32))
    exact = x.astype(np.float64)
    mean, variance = exact.mean(-1, keepdims=True), exact.var(-1, keepdims=True)
    expected = (exact - mean) / np.sqrt(variance + 1e-3) * weight.astype(np.float64) + bias
    result = norm.layer_norm(x, weight, bias, eps=1e-3)
    assert result.dtype == dtype
    epsilon = EPSILON[dtype]
    tolerance = max(2 * epsilon, 1e-6)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_layer_norm_of_a_constant_row_is_the_bias() -> None:
    x = np.full((2, 4), 7.0, np.float32)
    bias = np.arange(4, dtype=np.float32)
    assert norm.layer_norm(x, None, bias).tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sum_rounds_narrow_floats_once(dtype: np.dtype[Any]) -> None:
    x = values((6, 100), dtype)
    exact = [float(sum(map(Fraction, row))) for row in x.astype(np.float64).tolist()]
    result = reduce.sum(x)
    assert result.dtype == dtype
    epsilon = EPSILON[dtype]
    np.testing.assert_allclose(result.astype(np.float64), exact, rtol=max(epsilon, 1e-6), atol=1e-5)


def test_sum_of_integers_is_wide_and_of_nothing_is_zero() -> None:
    assert reduce.sum(np.array([[100, 100]], np.int8)).tolist() == [200]
    assert reduce.sum(np.full((1, 2), 2**63, np.uint64)).tolist() == [0]
    assert reduce.sum(np.zeros((2, 0), BF16)).tolist() == [0, 0]
    assert reduce.sum(np.arange(4.0)) == 6


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_propagates_nan(dtype: np.dtype[Any]) -> None:
    x = np.array([[1.0, 3.0, 2.0], [1.0, math.nan, 2.0]]).astype(dtype)
    result = reduce.max(x)
    assert result.dtype == dtype
    assert result[0] == 3
    assert np.isnan(result[1])


def test_max_of_nothing_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"empty axis: x has shape \(2, 0\)"):
        reduce.max(np.zeros((2, 0)))
