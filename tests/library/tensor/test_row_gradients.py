"""Gradients of row operations against fp64 oracles: every way to compute them, special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, random, to_device
from tilewright.errors import ArgumentError
from tilewright.reference import norm as norm_reference
from tilewright.reference import softmax as softmax_reference
from tilewright.tensor import row_gradients

# One width inside each configuration, odd ones, the edges of a tile, and rows walked in chunks.
WIDTHS = [1, 7, 16, 48, 128, 129, 200, 256, 257, 500, 512]
WIDTHS += [1000, 1008, 1024, 2048, 4000, 8192, 8208, 20001]
EVERY = {**DTYPES, "f64": np.dtype(np.float64)}
# Of the working type: what sums of some thousand terms lose of their largest.
LOST = {"f32": 2e-6, "f16": 2e-6, "bf16": 2e-6, "f64": 1e-14}


def gradients(side: str, name: str, *inputs: HostArray, **options: Any) -> tuple[Any, ...]:
    """Call an operation on a side; return all its results as NumPy."""
    operation = getattr(row_gradients, name)
    if side == "gpu":
        inputs = tuple(to_device(array) for array in inputs)
        options = {k: to_device(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    results = operation(*inputs, **options)
    if not isinstance(results, tuple):
        results = (results,)
    return tuple(r if r is None or side == "host" else r.numpy() for r in results)


def close(found: HostArray, expected: HostArray, dtype: str) -> None:
    """Compare at one rounding of the type beside what the working type loses of the largest."""
    exact = expected.astype(np.float64)
    limit = 1.01 * ROUNDOFF.get(dtype, 0.0) * np.abs(exact)
    limit += LOST[dtype] * (np.abs(exact).max(initial=0) + 1) + (2.0**-25 if dtype == "f16" else 0)
    error = np.abs(found.astype(np.float64) - exact)
    assert (error <= limit).all(), f"{(error - limit).max()} too far at {np.argmax(error - limit)}"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("columns", WIDTHS)
def test_norms(columns: int, dtype: str, side: str) -> None:
    kind = EVERY[dtype]
    x, dy = random((7, columns), kind), random((7, columns), kind, seed=1)
    weight = random((columns,), kind, seed=2)
    exact = [array.astype(np.float64) for array in (x, dy, weight)]
    # Of one column the gradient is 0: what rounding leaves of it is divided by the root of eps.
    options = {"weight": weight, "eps": 1e-2}
    found = gradients(side, "layer_norm_backward", x, dy, has_bias=True, **options)
    expected = norm_reference.layer_norm_backward(*exact, eps=1e-2)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == kind
        close(mine, theirs, dtype)
    found = gradients(side, "rms_norm_backward", x, dy, **options)
    of_rms = norm_reference.rms_norm_backward(*exact, eps=1e-2)
    for mine, theirs in zip(found, of_rms, strict=True):
        close(mine, theirs, dtype)
    (found_dx,) = gradients(side, "l2_norm_backward", x, dy, eps=1e-2)
    close(found_dx, norm_reference.l2_norm_backward(*exact[:2], eps=1e-2), dtype)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("columns", WIDTHS)
def test_softmax(columns: int, dtype: str, side: str) -> None:
    kind = EVERY[dtype]
    y = softmax_reference.softmax(random((7, columns), np.dtype(np.float64), scale=3)).astype(kind)
    dy = random((7, columns), kind, seed=1)
    (found,) = gradients(side, "softmax_backward", y, dy)
    close(
        found,
        softmax_reference.softmax_backward(y.astype(np.float64), dy.astype(np.float64)),
        dtype,
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33, 700])
@pytest.mark.parametrize("columns", [32, 37], ids=["held", "walked"])
def test_any_number_of_rows(columns: int, rows: int, side: str) -> None:
    """Fewer rows than multiprocessors, than a tile has, and one more than those."""
    kind = np.dtype(np.float32)
    x, dy = random((rows, columns), kind), random((rows, columns), kind, seed=1)
    weight = random((columns,), kind, seed=2)
    exact = [array.astype(np.float64) for array in (x, dy, weight)]
    found = gradients(side, "layer_norm_backward", x, dy, weight=weight, has_bias=True)
    for mine, theirs in zip(found, norm_reference.layer_norm_backward(*exact), strict=True):
        close(mine, theirs, "f32")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [64, 61])
def test_what_is_not_asked_for_is_not_given(columns: int, side: str) -> None:
    kind = np.dtype(np.float32)
    x, dy = random((5, columns), kind), random((5, columns), kind, seed=1)
    exact = [array.astype(np.float64) for array in (x, dy)]
    dx, dweight, dbias = gradients(side, "layer_norm_backward", x, dy, has_bias=True)
    assert dweight is None
    close(dx, norm_reference.layer_norm_backward(*exact)[0], "f32")
    close(dbias, norm_reference.layer_norm_backward(*exact)[2], "f32")
    weight = random((columns,), kind, seed=2)
    _, dweight, dbias = gradients(side, "layer_norm_backward", x, dy, weight=weight)
    assert dbias is None
    exact.append(weight.astype(np.float64))
    close(dweight, norm_reference.layer_norm_backward(*exact)[1], "f32")
    assert gradients(side, "rms_norm_backward", x, dy)[1] is None


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["layer_norm_backward", "softmax_backward"])
def test_any_leading_axes_and_strides(name: str, side: str) -> None:
    base, other = (random((6, 10, 4, 48), np.dtype(np.float32), seed=seed) for seed in (0, 1))
    weights = {"weight": random((16,), np.dtype(np.float32), seed=2), "has_bias": True}
    views: dict[str, Callable[[HostArray], HostArray]] = {
        "transposed rows": lambda a: a.transpose(2, 0, 1, 3)[..., :16],
        "sliced": lambda a: a[::2, ::3, 1:, 3:19],
        "strided columns": lambda a: a[..., ::3],
        "columns outermost": lambda a: np.ascontiguousarray(a.transpose(3, 1, 2, 0))[:16].T,
        "one axis": lambda a: a[1, 2, 3, :16],
    }
    for label, view in views.items():
        x, dy = view(base), view(other)
        options: dict[str, Any] = weights if name == "layer_norm_backward" else {}
        expected = gradients(
            "host", name, np.ascontiguousarray(x), np.ascontiguousarray(dy), **options
        )
        for mine, theirs in zip(gradients(side, name, x, dy, **options), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5, err_msg=label)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 16), (0,), (2, 0, 7)], ids=str)
def test_empty_arrays(shape: tuple[int, ...], side: str) -> None:
    x = np.zeros(shape, np.float32)
    weight = np.ones(shape[-1], np.float32)
    dx, dweight, dbias = gradients(side, "layer_norm_backward", x, x, weight=weight, has_bias=True)
    assert dx.shape == shape
    np.testing.assert_array_equal(dweight, np.zeros(shape[-1]))
    np.testing.assert_array_equal(dbias, np.zeros(shape[-1]))
    assert gradients(side, "softmax_backward", x, x)[0].shape == shape


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [128, 129], ids=["held", "walked"])
def test_rows_of_zeros_have_finite_gradients(columns: int, side: str) -> None:
    x, dy = np.zeros((3, columns), np.float32), random((3, columns), np.dtype(np.float32))
    (dx,) = gradients(side, "l2_norm_backward", x, dy, eps=1e-6)
    np.testing.assert_allclose(dx, dy * 1e3, rtol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [128, 129], ids=["held", "walked"])
def test_a_row_that_is_not_a_number_stays_alone(columns: int, side: str) -> None:
    x, dy = random((5, columns), np.dtype(np.float32)), random((5, columns), np.dtype(np.float32))
    x[1, 3], x[3, 0] = np.nan, np.inf
    dx, _ = gradients(side, "rms_norm_backward", x, dy)
    assert np.isnan(dx[1]).all()
    assert np.isnan(dx[3, 0])
    np.testing.assert_allclose(
        dx[::2], norm_reference.rms_norm_backward(x, dy)[0][::2], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [512, 1500], ids=["held", "walked"])
def test_digits_under_a_large_mean(columns: int, side: str) -> None:
    """A mean 10,000 times what a row varies by: its rounding is taken off again."""
    x = random((4, columns), np.dtype(np.float32)) + np.float32(1e4)
    dy, weight = random(x.shape, x.dtype, seed=1), random((columns,), x.dtype, seed=2)
    exact = [array.astype(np.float64) for array in (x, dy, weight)]
    found = gradients(side, "layer_norm_backward", x, dy, weight=weight, has_bias=True)
    for mine, theirs in zip(found, norm_reference.layer_norm_backward(*exact), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("columns", [512, 8192])
def test_a_first_element_above_all_others(columns: int, dtype: str, side: str) -> None:
    """It is what 16-bit rows are taken about: at a hundred deviations that costs about a bit."""
    x, dy = random((3, columns), DTYPES[dtype]), random((3, columns), DTYPES[dtype], seed=1)
    x[:, 0] = 100
    found = gradients(side, "layer_norm_backward", x, dy, has_bias=True)[0].astype(np.float64)
    expected = norm_reference.layer_norm_backward(x.astype(np.float64), dy.astype(np.float64))[0]
    assert np.abs(found - expected).max() <= 2 * ROUNDOFF[dtype] * np.abs(expected).max()


@pytest.mark.parametrize("side", SIDES)
def test_sums_of_many_rows_keep_f32(side: str) -> None:
    """In bf16 a sum of 4,096 ones would stop at 256."""
    dy = np.ones((4096, 16), ml_dtypes.bfloat16)
    x = random(dy.shape, dy.dtype)
    _, _, dbias = gradients(side, "layer_norm_backward", x, dy, has_bias=True)
    np.testing.assert_array_equal(dbias.astype(np.float32), np.full(16, 4096))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [128, 100])
def test_equal_calls_give_equal_bits_and_leave_inputs_alone(columns: int, side: str) -> None:
    x, dy = (random((999, columns), np.dtype(np.float32), seed=seed) for seed in (0, 1))
    weight = random((columns,), x.dtype, seed=2)
    before = [array.copy() for array in (x, dy, weight)]
    first = gradients(side, "layer_norm_backward", x, dy, weight=weight, has_bias=True)
    again = gradients(side, "layer_norm_backward", x, dy, weight=weight, has_bias=True)
    for one, other in zip(first, again, strict=True):
        assert one.tobytes() == other.tobytes()
    for array, copy in zip((x, dy, weight), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_a_gradient_must_fit() -> None:
    x = np.zeros((2, 8), np.float32)
    with pytest.raises(ArgumentError, match=r"dy has shape \(8,\), x has \(2, 8\)"):
        row_gradients.layer_norm_backward(x, x[0])
    with pytest.raises(ArgumentError, match="one dtype, got y: f32, dy: f16"):
        row_gradients.softmax_backward(x, x.astype(np.float16))
    with pytest.raises(ArgumentError, match="takes f64, f32, f16 and bf16"):
        row_gradients.l2_norm_backward(x.astype(int), x.astype(int))
    with pytest.raises(ArgumentError, match="at least one"):
        row_gradients.rms_norm_backward(x[0, 0, ...], x[0, 0, ...])
    with pytest.raises(ArgumentError, match=r"weight must be contiguous of shape \(8,\)"):
        row_gradients.rms_norm_backward(x, x, weight=np.zeros(4, np.float32))


@pytest.mark.gpu
@requires_gpu()
def test_rows_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import DeviceArray, from_numpy, zeros
    from tilewright.tensor import movement

    columns = 8192
    x = zeros((2**31 // columns + 3, columns), float16)
    tail = random((3, columns), DTYPES["f16"])
    movement.copy(from_numpy(tail), out=x[-3:])
    dx, dweight = row_gradients.rms_norm_backward(x, x, weight=from_numpy(tail[0]), out=x)
    expected = norm_reference.rms_norm_backward(
        *(a.astype(np.float64) for a in (tail, tail, tail[0]))
    )
    assert isinstance(dx, DeviceArray)
    assert isinstance(dweight, DeviceArray)
    close(dx[-3:].numpy(), expected[0], "f16")
    close(dweight.numpy(), expected[1], "f16")
