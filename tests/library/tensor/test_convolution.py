"""Convolutions against the definition in fp64: sizes, steps, padding, groups, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.errors import ArgumentError
from tilewright.reference.convolution import convolution as reference
from tilewright.tensor.convolution import convolution

# (shape of x, shape of w, stride, padding, dilation, groups)
CASES = [
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0, 1, 1),
    ((2, 16, 9, 11), (32, 16, 3, 3), 1, 1, 1, 1),
    ((2, 32, 8, 8), (16, 32, 1, 1), 1, 0, 1, 1),
    ((1, 16, 12, 15), (16, 16, 3, 2), (2, 1), (0, 2), (1, 2), 1),
    ((2, 3, 20, 17), (5, 3, 5, 5), 2, 2, 1, 1),
    ((1, 6, 7, 7), (4, 3, 1, 2), 1, 0, 1, 2),
    ((1, 64, 10, 10), (64, 16, 3, 3), 1, (3, 0), 1, 4),
    ((3, 8, 5, 5), (8, 1, 3, 3), 1, 1, 1, 8),
    ((1, 2, 30, 3), (70, 2, 3, 3), 3, 4, 5, 1),
]


def pairs(*values: Any) -> list[tuple[int, int]]:
    return [value if isinstance(value, tuple) else (value, value) for value in values]


def channels_last(x: HostArray) -> HostArray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def check(
    found: HostArray, x: HostArray, w: HostArray, bias: HostArray, *, dtype: str, **o: Any
) -> None:
    """Compare at one rounding of the result and the bound of its sums."""
    exact = [array.astype(np.float64) for array in (x, w, bias)]
    expected = reference(*exact, **o)
    magnitude = reference(*map(np.abs, exact), **o)
    terms = w[0].size + 8
    limit = 1.01 * ROUNDOFF[dtype] * np.abs(expected) + 2 * terms * ROUNDOFF["f32"] * magnitude
    limit += 2.0**-25
    assert found.shape == expected.shape
    assert (np.abs(found.astype(np.float64) - expected) <= limit).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("layout", ["channels first", "channels last"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_sizes(case: tuple[Any, ...], dtype: str, layout: str, side: str) -> None:
    x_shape, w_shape, *steps, groups = case
    x, w = random(x_shape, DTYPES[dtype], seed=1), random(w_shape, DTYPES[dtype], seed=2)
    bias = random(w_shape[:1], DTYPES[dtype], seed=3)
    stride, padding, dilation = pairs(*steps)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if layout == "channels last":
        x, w = channels_last(x), channels_last(w)

    def operation(x: Any, w: Any, bias: Any, *, out: Any) -> Any:
        if layout == "channels last":
            images, rows, columns, filters = out.shape
            strides = (rows * columns * filters, 1, columns * filters, filters)
            shape = (images, filters, rows, columns)
            out = out.view(shape, strides) if side == "gpu" else out.transpose(0, 3, 1, 2)
        return convolution(x, w, bias=bias, out=out, **options)

    expected = reference(x.astype(np.float64), w.astype(np.float64), **options)
    shape = expected.shape
    if layout == "channels last":
        shape = (shape[0], shape[2], shape[3], shape[1])
    found = run(side, operation, x, w, bias, out=poisoned(shape, DTYPES[dtype]))
    if layout == "channels last":
        found = found.transpose(0, 3, 1, 2)
    check(found, x, w, bias, dtype=dtype, **options)


@pytest.mark.parametrize("side", SIDES)
def test_slices_of_larger_arrays(side: str) -> None:
    x = random((3, 5, 12, 14), DTYPES["f32"], seed=1)[1:, 1:4, ::2, 1:]
    w = random((4, 3, 5, 3), DTYPES["f32"], seed=2)[:, :, ::2]
    bias = np.zeros(4, np.float32)
    found = run(side, convolution, x, w, out=poisoned((2, 4, 4, 11), DTYPES["f32"]))
    check(found, x, w, bias, dtype="f32")


@pytest.mark.parametrize("side", SIDES)
def test_tf32_rounds_operands(side: str) -> None:
    x, w = (
        channels_last(random(shape, DTYPES["f32"], seed=len(shape)))
        for shape in ((1, 16, 8, 8), (16, 16, 3, 3))
    )

    def operation(x: Any, w: Any, *, out: Any) -> Any:
        return convolution(x, w, input_precision="tf32", out=out)

    found = run(side, operation, x, w, out=poisoned((1, 16, 6, 6), DTYPES["f32"]))
    expected = reference(x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert not np.allclose(found, expected, rtol=0, atol=1e-6)


def test_the_result_is_laid_out_as_the_image() -> None:
    x, w = random((2, 16, 5, 6), DTYPES["f16"]), random((32, 16, 3, 3), DTYPES["f16"], seed=1)
    first = convolution(x, w)
    assert isinstance(first, np.ndarray)
    assert first.flags.c_contiguous
    last = convolution(channels_last(x), w)
    assert isinstance(last, np.ndarray)
    assert last.transpose(0, 2, 3, 1).flags.c_contiguous
    np.testing.assert_allclose(first.astype(np.float64), last.astype(np.float64), rtol=2e-3)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(0, 3, 5, 5), (2, 3, 2, 5)], ids=str)
def test_no_results(shape: tuple[int, ...], side: str) -> None:
    x, w = np.zeros(shape, np.float32), np.zeros((4, 3, 3, 3), np.float32)
    expected = reference(x, w)
    found = run(side, convolution, x, w, out=poisoned(expected.shape, x.dtype))
    assert found.shape == expected.shape
    assert not found.size


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layer_of_a_network(dtype: str) -> None:
    x = channels_last(random((4, 128, 28, 28), DTYPES[dtype], seed=1))
    w = channels_last(random((256, 128, 3, 3), DTYPES[dtype], seed=2))
    bias = np.zeros(256, DTYPES[dtype])
    out = poisoned((4, 256, 28, 28), DTYPES[dtype])
    found = run("gpu", convolution, x, w, out=out, padding=1)
    check(found, x, w, bias, dtype=dtype, padding=(1, 1))


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "options", "message"),
    [
        ((1, 3, 5), (4, 3, 3, 3), {}, "four axes each"),
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "does not fit the 3 channels of x in 1 groups"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, "filters a multiple of groups"),
        ((1, 3, 5, 5), (4, 3, 9, 9), {}, "reach over images"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": 0}, "stride is an int or two, at least 1"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": (1, 2, 3)}, "padding is an int or two"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": 1.5}, "padding is an int or two"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"groups": "a"}, "groups is 'a'; it is an int"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"input_precision": "half"}, "input_precision is 'half'"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"bias": np.zeros(3, np.float32)}, r"of shape \(4,\)"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": 2**31}, "at most 536870911"),
    ],
)
def test_what_does_not_fit_is_refused(
    x_shape: Any, w_shape: Any, options: Any, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        convolution(np.zeros(x_shape, np.float32), np.zeros(w_shape, np.float32), **options)
