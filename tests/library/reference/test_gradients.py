"""The gradients of reference functions are derivatives of them, by central differences in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.reference import attention, cross_entropy, elementwise, norm, softmax

Array = np.ndarray[Any, np.dtype[np.float64]]
STEP = 1e-5


def differences(value: Callable[[Array], Array], x: Array, dy: Array) -> Array:
    """Return the derivative of `sum(dy * value(x))` by each element of `x`."""
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        apart = np.zeros_like(x)
        apart[index] = STEP
        result[index] = (dy * (value(x + apart) - value(x - apart))).sum() / (2 * STEP)
    return result


def operands(shape: tuple[int, ...]) -> tuple[Array, Array, Array, Array]:
    random = np.random.default_rng(0)
    x, dy = random.standard_normal(shape), random.standard_normal(shape)
    return x, dy, random.standard_normal(shape[-1]), random.standard_normal(shape[-1])


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 1)], ids=str)
def test_layer_norm(shape: tuple[int, ...]) -> None:
    x, dy, weight, bias = operands(shape)
    dx, dweight, dbias = norm.layer_norm_backward(x, dy, weight, eps=1e-2)
    by_x = differences(lambda v: norm.layer_norm(v, weight, bias, eps=1e-2), x, dy)
    by_weight = differences(lambda v: norm.layer_norm(x, v, bias, eps=1e-2), weight, dy)
    by_bias = differences(lambda v: norm.layer_norm(x, weight, v, eps=1e-2), bias, dy)
    np.testing.assert_allclose(dx, by_x, atol=1e-7)
    np.testing.assert_allclose(dweight, by_weight, atol=1e-7)
    np.testing.assert_allclose(dbias, by_bias, atol=1e-7)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 1)], ids=str)
def test_rms_norm(shape: tuple[int, ...]) -> None:
    x, dy, weight, _ = operands(shape)
    dx, dweight = norm.rms_norm_backward(x, dy, weight, eps=1e-2)
    by_x = differences(lambda v: norm.rms_norm(v, weight, eps=1e-2), x, dy)
    by_weight = differences(lambda v: norm.rms_norm(x, v, eps=1e-2), weight, dy)
    np.testing.assert_allclose(dx, by_x, atol=1e-7)
    np.testing.assert_allclose(dweight, by_weight, atol=1e-7)


def test_l2_norm_also_of_zeros() -> None:
    x, dy, _, _ = operands((3, 5))
    x[1] = 0
    dx = norm.l2_norm_backward(x, dy, eps=1e-2)
    np.testing.assert_allclose(
        dx, differences(lambda v: norm.l2_norm(v, eps=1e-2), x, dy), atol=1e-6
    )
    np.testing.assert_allclose(dx[1], dy[1] / np.sqrt(1e-2))


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax(axis: int) -> None:
    x, dy, _, _ = operands((3, 5))
    dx = softmax.softmax_backward(softmax.softmax(x, axis), dy, axis)
    by_x = differences(lambda v: softmax.softmax(v, axis), x, dy)
    np.testing.assert_allclose(dx, by_x, atol=1e-8)


def test_gelu_and_its_ends() -> None:
    x, dy, _, _ = operands((4, 6))
    np.testing.assert_allclose(
        elementwise.gelu_backward(x, dy), differences(elementwise.gelu, x, dy), atol=1e-8
    )
    ends = np.array([np.inf, -np.inf, np.nan, 0.0])
    np.testing.assert_array_equal(
        elementwise.gelu_backward(ends, np.ones(4)), [1.0, 0.0, np.nan, 0.5]
    )


def test_no_rows_and_no_columns() -> None:
    dx, dweight, dbias = norm.layer_norm_backward(np.zeros((0, 3)), np.zeros((0, 3)))
    assert dx.shape == (0, 3)
    np.testing.assert_array_equal(dweight, np.zeros(3))
    np.testing.assert_array_equal(dbias, np.zeros(3))
    assert norm.rms_norm_backward(np.zeros((3, 0)), np.zeros((3, 0)))[1].shape == (0,)


@pytest.mark.parametrize(("queries", "keys", "causal"), [(4, 3, False), (3, 5, True), (5, 3, True)])
def test_attention_of_heads_that_share_keys(queries: int, keys: int, causal: bool) -> None:
    random = np.random.default_rng(0)
    q, dy = (random.standard_normal((2, 4, queries, 3)) for _ in range(2))
    k, v = (random.standard_normal((2, 2, keys, 3)) for _ in range(2))

    def value(q: Array, k: Array, v: Array) -> Array:
        result: Array = attention.attention(q, k, v, causal=causal, scale=0.7)[0]
        return result

    found = attention.attention_backward(q, k, v, dy, causal=causal, scale=0.7)
    expected = (
        differences(lambda x: value(x, k, v), q, dy),
        differences(lambda x: value(q, x, v), k, dy),
        differences(lambda x: value(q, k, x), v, dy),
    )
    for gradient, derivative in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient, derivative, atol=1e-7)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy(reduction: str) -> None:
    x, linear_weight, _, _ = operands((4, 5))
    target, weight = np.array([1, -100, 4, 0]), np.arange(1.0, 6.0)
    dloss = np.random.default_rng(1).standard_normal(4 if reduction == "none" else ())
    options: dict[str, Any] = {
        "weight": weight, "label_smoothing": 0.2, "z_loss": 0.1, "reduction": reduction,
    }  # fmt: skip

    def loss(logits: Array) -> Array:
        return cross_entropy.cross_entropy(logits, target, **options)

    dx, value = cross_entropy.cross_entropy_backward(x, target, dloss, **options)
    np.testing.assert_allclose(value, loss(x))
    np.testing.assert_allclose(dx, differences(loss, x, dloss), atol=1e-7)
    layer = np.concatenate([linear_weight, -linear_weight[:1]])
    dx, dweight, value = cross_entropy.linear_cross_entropy_backward(
        x, layer, target, dloss, **options
    )
    np.testing.assert_allclose(value, loss(x @ layer.T))
    np.testing.assert_allclose(dx, differences(lambda v: loss(v @ layer.T), x, dloss), atol=1e-6)
    of_weight = differences(lambda v: loss(x @ v.T), layer, dloss)
    np.testing.assert_allclose(dweight, of_weight, atol=1e-6)
