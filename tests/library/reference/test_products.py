"""Matrix products, attention and convolution against their sums written out in f64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.abi.dtypes import float8e4nv, float16, float32
from tilewright.errors import ArgumentError
from tilewright.reference.attention import attention
from tilewright.reference.convolution import convolution
from tilewright.reference.elementwise import gelu
from tilewright.reference.matmul import Activation, matmul

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn


def values(*shape: int, dtype: Any = np.float64, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float16, 2.0**-10), (BF16, 2.0**-7)])
def test_narrow_products_are_summed_in_f32_and_rounded_once(dtype: Any, epsilon: float) -> None:
    a, b = values(5, 70, dtype=dtype), values(70, 3, dtype=dtype, seed=2)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    found = matmul(a, b)
    assert found.dtype == dtype
    # Half a unit of rounding, and what 70 additions in f32 lose.
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=epsilon / 2, atol=1e-4)
    np.testing.assert_allclose(matmul(a, b, out_dtype=float32), exact, atol=1e-4)


def test_batches_broadcast() -> None:
    a, b = values(2, 1, 4, 3), values(5, 3, 6)
    expected = np.einsum("bxij,yjk->byik", a, b)
    np.testing.assert_allclose(matmul(a, b), expected, rtol=1e-12)


def test_no_products_give_zero_and_the_epilogue() -> None:
    a, b = np.zeros((2, 0)), np.zeros((0, 3))
    np.testing.assert_array_equal(matmul(a, b, bias=np.arange(3.0)), [[0, 1, 2]] * 2)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        (None, lambda x: x),
        ("relu", lambda x: x * (x > 0)),
        ("gelu", gelu),
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ],
)
def test_epilogue(activation: Activation | None, function: Any) -> None:
    a, b, bias = values(4, 5), values(5, 6, seed=2), values(6, seed=3)
    gate, residual = values(4, 6, seed=4), values(6, seed=5)
    found = matmul(a, b, bias=bias, gate=gate, residual=residual, activation=activation, alpha=0.5)
    np.testing.assert_allclose(found, function(0.5 * (a @ b) + bias) * gate + residual, rtol=1e-12)


def test_integers_wrap_and_have_no_epilogue() -> None:
    a = np.full((1, 1 << 17), -128, np.int8)
    found = matmul(a, a.T)
    assert found.dtype == np.int32
    assert found.item() == -(2**31)
    mixed = matmul(np.array([[200]], np.uint8), np.array([[-2]], np.int8))
    assert mixed.item() == -400
    with pytest.raises(ArgumentError, match="i8 has no epilogue"):
        matmul(a, a.T, bias=np.zeros(1, np.float32))


def test_tf32_rounds_the_operands_away_from_zero() -> None:
    a, one = np.array([[1 + 2.0**-11, -1 - 2.0**-11]], np.float32), np.eye(2, dtype=np.float32)
    assert matmul(a, one, input_precision="tf32").tolist() == [[1 + 2.0**-10, -1 - 2.0**-10]]
    for exact in ("ieee", "tf32x3"):
        np.testing.assert_array_equal(matmul(a, one, input_precision=exact), a)
    with pytest.raises(ArgumentError, match="'ieee', 'tf32' or 'tf32x3', got 'high'"):
        matmul(a, one, input_precision="high")


def test_eight_bit_floats_give_bf16_and_saturate_when_asked_for() -> None:
    a = np.array([[448, 0.5]], E4M3)
    b = np.array([[448], [1]], ml_dtypes.float8_e5m2)
    assert matmul(a, b, out_dtype=float32).item() == 448 * 448 + 0.5
    assert matmul(a, b).dtype == BF16
    assert float(matmul(a, b)[0, 0]) == 448 * 448
    assert matmul(a, a.T, out_dtype=float8e4nv).astype(np.float32).item() == 448
    assert matmul(a, -a.T, out_dtype=float16).item() == -math.inf


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3)), r"shapes \(2, 3\) and \(2, 3\)"),
        (np.zeros(3), np.zeros((3, 3)), r"shapes \(3,\) and \(3, 3\)"),
        (np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float16), "got f32 and f16"),
        (np.zeros((2, 2), np.int32), np.zeros((2, 2), np.int32), "got i32 and i32"),
    ],
)
def test_matmul_refuses_what_does_not_fit(a: Any, b: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        matmul(a, b)


def _attention(q: Any, k: Any, v: Any, bias: Any, scale: float) -> tuple[Any, Any]:
    """Return attention row by row."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    sums = np.zeros(q.shape[:-1])
    for batch, head, row in itertools.product(*map(range, q.shape[:3])):
        shared = head // (q.shape[1] // k.shape[1])
        exponentials = np.exp(k[batch, shared] @ q[batch, head, row] * scale + bias[row])
        sums[batch, head, row] = exponentials.sum()
        out[batch, head, row] = exponentials / exponentials.sum() @ v[batch, shared]
    return out, np.log(sums)


def test_attention_is_the_formula_with_shared_heads() -> None:
    q, k, v = values(2, 4, 3, 8), values(2, 2, 5, 8, seed=2), values(2, 2, 5, 6, seed=3)
    bias = values(3, 5, seed=4)
    out, lse = attention(q, k, v, bias=bias)
    expected, logarithms = _attention(q, k, v, bias, 1 / math.sqrt(8))
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    np.testing.assert_allclose(lse, logarithms, rtol=1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (2, 5), (5, 2)])
def test_causal_attention_ends_at_the_last_key(queries: int, keys: int) -> None:
    q, k, v = values(1, 1, queries, 4), values(1, 1, keys, 4, seed=2), values(1, 1, keys, 4, seed=3)
    out, lse = attention(q, k, v, causal=True, scale=2.0)
    for row in range(queries):
        seen = max(row + keys - queries + 1, 0)
        alone = attention(q[:, :, row : row + 1], k[:, :, :seen], v[:, :, :seen], scale=2.0)
        np.testing.assert_allclose(out[:, :, row], alone[0][:, :, 0], rtol=1e-12)
        np.testing.assert_allclose(lse[:, :, row], alone[1][:, :, 0], rtol=1e-12)


def test_a_query_that_sees_no_key_gives_zero() -> None:
    x = values(1, 1, 2, 4, dtype=np.float32)
    bias = np.array([[-np.inf, -np.inf], [0, -np.inf]], np.float32)
    out, lse = attention(x, x, x, bias=bias)
    assert out[0, 0, 0].tolist() == [0, 0, 0, 0]
    assert lse[0, 0, 0] == -math.inf
    np.testing.assert_allclose(out[0, 0, 1], x[0, 0, 0])


def test_heads_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ArgumentError, match="3 heads of q cannot share 2"):
        attention(values(1, 3, 2, 4), values(1, 2, 2, 4), values(1, 2, 2, 4))


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [
        ((1, 1), (0, 0), (1, 1), 1),
        ((2, 3), (1, 2), (1, 1), 1),
        ((1, 2), (3, 0), (2, 1), 2),
        ((1, 1), (1, 1), (1, 1), 4),
    ],
)
def test_convolution_is_the_sum(
    stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], groups: int
) -> None:
    x, w, bias = values(2, 4, 7, 9), values(4, 4 // groups, 3, 2, seed=2), values(4, seed=3)
    found = convolution(
        x, w, bias, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    expected = np.zeros(found.shape)
    for n, f, out_y, out_x in np.ndindex(*found.shape):
        expected[n, f, out_y, out_x] = bias[f]
        for c, r, s in np.ndindex(*w.shape[1:]):
            y = out_y * stride[0] + r * dilation[0] - padding[0]
            column = out_x * stride[1] + s * dilation[1] - padding[1]
            if 0 <= y < 7 and 0 <= column < 9:
                channel = f // (4 // groups) * (4 // groups) + c
                expected[n, f, out_y, out_x] += w[f, c, r, s] * x[n, channel, y, column]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    # The last row and column of the result are the last whose taps lie on the padded image.
    for axis, extent in ((0, 7), (1, 9)):
        last = (found.shape[2 + axis] - 1) * stride[axis] + dilation[axis] * (w.shape[2 + axis] - 1)
        assert last < extent + 2 * padding[axis] <= last + stride[axis]


def test_convolution_refuses_what_does_not_fit() -> None:
    with pytest.raises(ArgumentError, match="do not fit 2 groups"):
        convolution(values(1, 4, 3, 3), values(4, 4, 1, 1), groups=2)
    with pytest.raises(ArgumentError, match="exceed the padded image"):
        convolution(values(1, 1, 3, 3), values(1, 1, 5, 1))
