from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import ArgumentError
from tilewright.reference import elementwise

BF16 = np.dtype(ml_dtypes.bfloat16)
# Distance from 1 to the next number.
EPSILON = {
    np.dtype(np.float16): 2.0**-10,
    BF16: 2.0**-7,
    np.dtype(np.float32): 2.0**-23,
    np.dtype(np.float64): 2.0**-52,
}
FLOATS = list(EPSILON)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_add_and_mul_round_once(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((5, 7)).astype(dtype) for _ in range(2))
    exact_x, exact_y = x.astype(np.float64), y.astype(np.float64)
    assert np.array_equal(elementwise.add(x, y), (exact_x + exact_y).astype(dtype))
    assert np.array_equal(elementwise.mul(x, y), (exact_x * exact_y).astype(dtype))


def test_shapes_broadcast() -> None:
    x, y = np.arange(3.0)[:, None], np.arange(4.0)[None, :]
    assert elementwise.add(x, y).tolist() == [
        [0, 1, 2, 3],
        [1, 2, 3, 4],
        [2, 3, 4, 5],
    ]
    assert elementwise.mul(x, np.zeros((1, 0))).shape == (3, 0)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (np.dtype(np.float16), BF16, np.dtype(np.float32)),
        (np.dtype(np.int64), np.dtype(np.float16), np.dtype(np.float16)),
        (np.dtype(np.int32), np.dtype(np.uint32), np.dtype(np.uint32)),
        (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float64)),
    ],
    ids=str,
)
def test_dtypes_promote_as_kernels_promote(
    left: np.dtype[Any], right: np.dtype[Any], result: np.dtype[Any]
) -> None:
    assert elementwise.add(np.ones(2, left), np.ones(2, right)).dtype == result


def test_integers_wrap() -> None:
    assert elementwise.add(np.array(127, np.int8), np.array(1, np.int8)) == -128
    assert elementwise.mul(np.array([2**31 - 1], np.int32), np.array([2], np.int32)) == [-2]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_exp_and_gelu_match_the_mathematics(dtype: np.dtype[Any]) -> None:
    x = np.array([-30.0, -2.5, -0.0, 0.125, 1.0, 4.0]).astype(dtype)
    values = x.astype(np.float64).tolist()
    exponentials = [math.exp(v) for v in values]
    # 0.5 * (1 + erf) written as erfc, which keeps its digits for negative arguments.
    gelus = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in values]
    # 1 + erf cancels for negative x: an absolute error of one rounding of 1, times |x|.
    epsilon = EPSILON[dtype]
    step = 1e-15 if dtype == np.float64 else 1e-6
    assert elementwise.exp(x).dtype == elementwise.gelu(x).dtype == dtype
    np.testing.assert_allclose(
        elementwise.exp(x).astype(np.float64), exponentials, rtol=max(epsilon, 3 * step), atol=1e-7
    )
    np.testing.assert_allclose(
        elementwise.gelu(x).astype(np.float64), gelus, rtol=max(epsilon, step), atol=2 * step
    )


def test_exp_overflows_to_infinity_in_silence() -> None:
    assert elementwise.exp(np.array([1e5, -1e5, np.nan])).tolist()[:2] == [math.inf, 0.0]


def test_functions_refuse_integers() -> None:
    with pytest.raises(ArgumentError, match=r"gelu takes floating-point numbers, got .* int32"):
        elementwise.gelu(np.zeros(3, np.int32))
