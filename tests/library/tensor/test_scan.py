"""Running sums and products against fp64 oracles: one tile, many, split axes, every strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.errors import ArgumentError
from tilewright.reference import scan as reference
from tilewright.tensor import scan as scan_module

# Host arrays give host arrays, device arrays device arrays: a union would not say which.
scan: Any = scan_module

CASES: list[tuple[tuple[int, ...], int]] = [
    ((3, 1), 1),
    ((5, 100), 1),
    ((5, 100), 0),
    ((20, 300), 1),
    ((300, 20), 0),
    ((300, 3), 0),
    ((2, 5000), 1),
    ((5000, 70), 0),
    ((17001,), 0),
    ((17001, 12), 0),
    ((3, 17000, 2), 1),
    ((4, 33, 40), 1),
]


def close(found: HostArray, exact: Any, magnitude: Any, *, dtype: str) -> None:
    error = np.abs(found.astype(np.float64) - exact)
    limit = 1.01 * ROUNDOFF[dtype] * np.abs(exact) + 40 * ROUNDOFF["f32"] * magnitude
    assert (error <= limit + 2.0**-25).all(), error.max()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
def test_cumsum(shape: tuple[int, ...], axis: int, dtype: str, side: str) -> None:
    x = random(shape, DTYPES[dtype])
    exact = x.astype(np.float64)
    found = run(side, scan.cumsum, x, axis=axis, out=poisoned(shape, x.dtype))
    close(found, exact.cumsum(axis), np.abs(exact).cumsum(axis), dtype=dtype)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
def test_cumprod(shape: tuple[int, ...], axis: int, dtype: str, side: str) -> None:
    signs = np.where(random(shape, DTYPES["f32"]) > 0, 1, -1)
    x = (signs * 2.0 ** (np.arange(shape[axis]) % 2 * 2 - 1).reshape(
        [-1 if place == axis else 1 for place in range(len(shape))]
    )).astype(DTYPES[dtype])  # fmt: skip
    found = run(side, scan.cumprod, x, axis=axis, out=poisoned(shape, x.dtype))
    assert np.array_equal(found.astype(np.float64), x.astype(np.float64).cumprod(axis))


@pytest.mark.parametrize("side", SIDES)
def test_any_strides(side: str) -> None:
    base = random((6, 10, 4, 37), DTYPES["f32"])
    views = {
        "transposed": base.transpose(2, 0, 1, 3),
        "sliced": base[::2, ::3, 1:, 3:30],
        "columns outermost": base.transpose(3, 1, 2, 0),
        "misaligned": base.reshape(-1)[1:7401].reshape(5, 10, 4, 37),
    }
    if side == "host":
        views["reversed"] = base[::-1, :, ::-1, ::-1]
    for name, view in views.items():
        for axis in range(4):
            found = run(side, scan.cumsum, view, axis=axis, out=poisoned(view.shape, view.dtype))
            expected = view.astype(np.float64).cumsum(axis)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("length", [50, 20001])
def test_integers_are_exact(length: int, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 2**7, (2, length)).astype(dtype)
    found = scan.cumsum(x)
    expected = reference.cumsum(x)
    assert np.array_equal(found, expected)
    assert np.asarray(found).dtype == expected.dtype == np.cumsum(x[:, :1]).dtype
    assert np.array_equal(scan.cumprod(x, 0), reference.cumprod(x, 0))


def test_f64_keeps_its_digits() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5000))
    np.testing.assert_allclose(scan.cumsum(x), x.cumsum(-1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", [9, 20001])
def test_nan_and_infinity_stay(length: int, side: str) -> None:
    x = np.ones((3, length), np.float32)
    x[0, 4], x[1, 4], x[2, 4], x[2, 6] = np.nan, np.inf, np.inf, -np.inf
    found = run(side, scan.cumsum, x, out=poisoned(x.shape, x.dtype))
    np.testing.assert_array_equal(found, reference.cumsum(x, 1))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), ()], ids=str)
def test_nothing_and_a_scalar(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 3, np.float32)
    assert np.array_equal(scan.cumsum(x, 0), x)
    assert np.array_equal(scan.cumprod(x, -1), x)


def test_in_place_and_across_itself() -> None:
    x = random((200, 200), DTYPES["f32"])
    expected = x.astype(np.float64).cumsum(0).cumsum(0)
    scan.cumsum(x, 0, out=x)
    scan.cumsum(x, 0, out=x.T)
    np.testing.assert_allclose(x.T, expected, rtol=1e-3, atol=1e-2)


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(ArgumentError, match="axis is 2, of an array with 2 axes"):
        scan.cumsum(np.zeros((2, 2)), 2)


@pytest.mark.parametrize("side", SIDES)
def test_zeros_stay_zeros(side: str) -> None:
    x = np.zeros((300, 1, 300), np.float32)
    found = run(side, scan.cumsum, x, axis=1, out=poisoned(x.shape, x.dtype))
    assert found.max() == 0


@pytest.mark.gpu
@requires_gpu()
def test_elements_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import from_numpy, zeros
    from tilewright.tensor import movement as movement_module

    movement: Any = movement_module

    x = zeros((29, 150_039_552 // 2), float16)
    movement.copy(from_numpy(np.ones((29, 1), np.float16)), out=x[:, -1:])
    scan.cumsum(x, out=x)
    assert (x[:, -2:].numpy() == [[0, 1]] * 29).all()
