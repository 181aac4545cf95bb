"""Gradients of attention against the closed formula in fp64: lengths, heads, masks, strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.attention_gradients import exact_gradients, operands_of
from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, to_device
from tilewright.errors import ArgumentError
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward

# (batch, heads, heads of k and v, queries, keys, dim)
SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (2, 4, 4, 64, 64, 64),
    (2, 4, 2, 37, 70, 32),
    (1, 6, 1, 130, 65, 24),
    (1, 2, 2, 5, 200, 128),
    (1, 1, 1, 70, 3, 80),
    (3, 2, 2, 1, 129, 16),
]
_NAMES = ("dq", "dk", "dv")


def gradients(
    side: str, arrays: list[HostArray], *, outs: list[HostArray] | None = None, **options: Any
) -> list[HostArray]:
    """Return what is written to new results, or to `outs`, poisoned."""
    outs = outs or [poisoned(x.shape, x.dtype) for x in arrays[:3]]
    if side == "host":
        options |= dict(zip(_NAMES, outs, strict=True))
        attention_backward(*arrays, **options)
        return outs
    results = [to_device(out) for out in outs]
    options |= dict(zip(_NAMES, results, strict=True))
    attention_backward(*map(to_device, arrays), **options)
    return [np.asarray(result.numpy()) for result in results]


def close(found: list[HostArray], expected: tuple[HostArray, ...], dtype: str) -> None:
    """Compare at the rounding of weights, their gradients and the result, each to the dtype."""
    for name, gradient, exact in zip(_NAMES, found, expected, strict=True):
        largest = max(1.0, np.abs(exact).max(initial=0))
        np.testing.assert_allclose(
            gradient.astype(np.float64),
            exact,
            rtol=2 * ROUNDOFF[dtype],
            atol=6 * ROUNDOFF[dtype] * largest,
            err_msg=name,
        )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape(shape: Any, dtype: str, causal: bool, side: str) -> None:
    arrays = operands_of(shape, dtype, causal=causal)
    found = gradients(side, arrays, causal=causal)
    close(found, exact_gradients(*arrays, causal=causal), dtype)


@pytest.mark.parametrize("side", SIDES)
def test_after_attention(side: str) -> None:
    """What attention writes is what its gradients take, at a scale of its own."""
    q, k, v, _, _, dy = operands_of((2, 4, 2, 50, 60, 64), "f16")
    lse = poisoned(q.shape[:-1], DTYPES["f32"])
    if side == "gpu":
        q, k, v, dy, lse = map(to_device, (q, k, v, dy, lse))
    y = attention(q, k, v, causal=True, scale=-0.3, lse=lse)
    found: Any = attention_backward(q, k, v, y, lse, dy, causal=True, scale=-0.3)
    results = [x.numpy() if side == "gpu" else x for x in found]
    exact = operands_of((2, 4, 2, 50, 60, 64), "f16", causal=True, scale=-0.3)
    close(results, exact_gradients(*exact, causal=True, scale=-0.3), "f16")


@pytest.mark.parametrize("side", SIDES)
def test_queries_that_see_no_key_have_no_gradient(side: str) -> None:
    arrays = operands_of((1, 2, 2, 70, 40, 32), "f16", causal=True)
    assert np.isneginf(arrays[4][0, :, :30]).all()
    found = gradients(side, arrays, causal=True)
    assert not found[0][0, :, :30].any()
    assert all(np.isfinite(gradient).all() for gradient in found)
    close(found, exact_gradients(*arrays, causal=True), "f16")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("sizes", [(5, 0, 16), (0, 5, 16), (0, 0, 16), (3, 4, 0)], ids=str)
def test_without_queries_keys_or_elements(sizes: tuple[int, int, int], side: str) -> None:
    queries, keys, dim = sizes
    shapes = [(2, 2, rows, dim) for rows in (queries, keys, keys, queries)]
    q, k, v, dy = (np.ones(shape, np.float16) for shape in shapes)
    lse = np.zeros((2, 2, queries), np.float32)
    for gradient, like in zip(gradients(side, [q, k, v, q, lse, dy]), (q, k, v), strict=True):
        np.testing.assert_array_equal(gradient, np.zeros_like(like))


@pytest.mark.parametrize("side", SIDES)
def test_any_strides_of_operands_and_results(side: str) -> None:
    arrays = operands_of((2, 4, 2, 33, 20, 16), "f16")
    exact = exact_gradients(*arrays)
    # Heads inside rows, which the kernels take; every third element, and rows of odd length.
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in arrays]
    close(gradients(side, turned), exact, "f16")
    spread = [random((*x.shape[:-1], 3 * x.shape[-1]), x.dtype)[..., ::3] for x in arrays]
    for wide, x in zip(spread, arrays, strict=True):
        wide[...] = x
    outs = [poisoned((*x.shape[:-1], 17), x.dtype)[..., 1:] for x in arrays[:3]]
    close(gradients(side, spread, outs=outs), exact, "f16")
    for array in outs:
        assert array.base is not None
    if side == "host":
        assert all(np.isnan(out.base[..., 0]).all() for out in outs if out.base is not None)


@pytest.mark.parametrize("side", SIDES)
def test_leading_axes(side: str) -> None:
    arrays = operands_of((6, 2, 2, 20, 24, 16), "f16")
    exact = exact_gradients(*arrays)
    cut = [x.reshape(2, 3, *x.shape[1:]) for x in arrays]
    found = gradients(side, cut)
    close([x.reshape(6, *x.shape[2:]) for x in found], exact, "f16")
    # Axes that are not as one are copied.
    swapped = [np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1) for x in cut]
    found = gradients(side, swapped)
    close([x.reshape(6, *x.shape[2:]) for x in found], exact, "f16")
    found = gradients(side, [x[3] for x in arrays])
    close(found, tuple(x[3] for x in exact), "f16")
    found = gradients(side, [x[3, 1] for x in arrays])
    close(found, tuple(x[3, 1] for x in exact), "f16")


def test_results_may_lie_where_operands_do() -> None:
    arrays = operands_of((1, 2, 2, 40, 40, 32), "f16")
    exact = exact_gradients(*arrays)
    q, k, v, y, lse, dy = (np.array(x) for x in arrays)
    attention_backward(q, k, v, y, lse, dy, dq=dy, dk=q, dv=k)
    close([dy, q, k], exact, "f16")


def test_results_are_new_arrays_unless_given() -> None:
    arrays = operands_of((1, 2, 1, 10, 12, 20), "bf16")
    found = attention_backward(*arrays)
    assert [x.shape for x in found] == [x.shape for x in arrays[:3]]
    close([np.asarray(x) for x in found], exact_gradients(*arrays), "bf16")


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [32, 64, 100, 128])
def test_long_sequences_and_equal_bits(dim: int, causal: bool) -> None:
    arrays = operands_of((1, 4, 2, 1000, 1500, dim), "bf16", causal=causal)
    found = gradients("gpu", arrays, causal=causal)
    close(found, exact_gradients(*arrays, causal=causal), "bf16")
    for x, again in zip(found, gradients("gpu", arrays, causal=causal), strict=True):
        np.testing.assert_array_equal(x.view(np.uint16), again.view(np.uint16))


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("dim", [64, 128])
def test_attention_and_its_gradients_on_a_gpu(dim: int) -> None:
    arrays = operands_of((2, 8, 8, 513, 513, dim), "bf16", causal=True)
    q, k, v, dy = (to_device(arrays[place]) for place in (0, 1, 2, 5))
    lse = to_device(poisoned(arrays[4].shape, DTYPES["f32"]))
    y = attention(q, k, v, causal=True, lse=lse)
    found: Any = attention_backward(q, k, v, y, lse, dy, causal=True)
    close([x.numpy() for x in found], exact_gradients(*arrays, causal=True), "bf16")


_HEADS = (2, 5, 16)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": np.zeros((3, 5, 16), np.float16)}, "with H a multiple of G"),
        ({"k": np.zeros((2, 5, 8), np.float16)}, r"k \(2, 5, 8\)"),
        ({"y": np.zeros((2, 4, 16), np.float16)}, r"y has shape \(2, 4, 16\)"),
        ({"dy": np.zeros((5, 16), np.float16)}, r"dy has shape \(5, 16\)"),
        ({"dy": np.zeros(_HEADS, np.float32)}, "one dtype"),
        ({"lse": np.zeros((2, 5), np.float16)}, "lse has dtype f16; attention writes it as f32"),
        ({"lse": np.zeros((2, 5, 1), np.float32)}, r"lse has shape \(2, 5, 1\)"),
        ({"dq": np.zeros((2, 5, 8), np.float16)}, "dq has shape"),
        ({"dv": np.zeros(_HEADS, np.float32)}, "one dtype"),
        ({"scale": "a"}, "scale is of str; a number is needed"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        name: np.zeros(_HEADS, np.float16) for name in ("q", "k", "v", "y", "dy")
    }
    arguments |= {"lse": np.zeros((2, 5), np.float32)} | changed
    with pytest.raises(ArgumentError, match=message):
        attention_backward(**arguments)


@pytest.mark.parametrize(
    ("dtype", "dim", "message"),
    [
        (np.float32, 16, "q has dtype f32; attention_backward takes f16 and bf16"),
        (np.int8, 16, "q has dtype i8"),
        (np.float16, 257, "heads have 257 elements; attention_backward takes up to 256"),
    ],
)
def test_what_has_no_kernel_is_refused(dtype: Any, dim: int, message: str) -> None:
    x = np.zeros((2, 5, dim), dtype)
    with pytest.raises(ArgumentError, match=message):
        attention_backward(x, x, x, x, np.zeros((2, 5), np.float32), x)
