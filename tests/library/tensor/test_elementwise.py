"""Elementwise kernels against fp64 oracles: dtypes, broadcasting, strides, sizes 0 and 1."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.errors import ArgumentError
from tilewright.reference import elementwise as reference
from tilewright.tensor import elementwise

BINARY = {"add": (elementwise.add, reference.add), "mul": (elementwise.mul, reference.mul)}
UNARY = {"exp": (elementwise.exp, reference.exp), "gelu": (elementwise.gelu, reference.gelu)}


# What evaluation in f32 costs beyond one rounding; gelu's is stated in its kernel.
EVALUATION = {"gelu": 100 * ROUNDOFF["f32"]}


def check(found: HostArray, expected: Any, dtype: str, *, name: str = "") -> None:
    """Compare at one rounding of the type plus the evaluation, 8 units of f32 if not stated."""
    exact = np.asarray(expected, np.float64)
    assert np.array_equal(np.isnan(found.astype(np.float64)), np.isnan(exact))
    tolerance = 1.01 * ROUNDOFF[dtype] + EVALUATION.get(name, 8 * ROUNDOFF["f32"])
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(), (1,), (0,), (7, 0), (129,), (3, 4097), (5, 1, 33), (70, 31)], ids=str
)
@pytest.mark.parametrize("name", BINARY)
def test_binary_on_any_shape(name: str, shape: tuple[int, ...], dtype: str, side: str) -> None:
    ours, oracle = BINARY[name]
    x, y = random(shape, DTYPES[dtype], seed=1), random(shape, DTYPES[dtype], seed=2)
    found = run(side, ours, x, y, out=poisoned(shape, DTYPES[dtype]))
    check(found, oracle(x.astype(np.float64), y.astype(np.float64)), dtype)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (1000,), (3, 2049), (65, 31)], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary_on_any_shape(name: str, shape: tuple[int, ...], dtype: str, side: str) -> None:
    ours, oracle = UNARY[name]
    x = random(shape, DTYPES[dtype], scale=3.0)
    found = run(side, ours, x, out=poisoned(shape, DTYPES[dtype]))
    check(found, oracle(x.astype(np.float64)), dtype, name=name)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4, 33), (33,)),
        ((4, 33), (4, 1)),
        ((4, 33), ()),
        ((3, 1, 5), (1, 4, 1)),
        ((2, 3, 4, 5, 6), (3, 1, 5, 1)),
        ((1, 300), (300, 1)),
    ],
    ids=str,
)
def test_broadcasting(left: tuple[int, ...], right: tuple[int, ...], side: str) -> None:
    x, y = random(left, DTYPES["f32"], seed=1), random(right, DTYPES["f32"], seed=2)
    shape = np.broadcast_shapes(left, right)
    found = run(side, elementwise.add, x, y, out=poisoned(shape, DTYPES["f32"]))
    check(found, x.astype(np.float64) + y.astype(np.float64), "f32")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_any_strides(dtype: str, side: str) -> None:
    base = random((12, 40, 26), DTYPES[dtype])
    views = {
        "transposed": base.transpose(2, 0, 1),
        "every second": base[::2, 1::3, ::2],
        "reversed": base[:, ::-1, ::-1],
        "inner slice": base[1:, :, 1:24],
        "diagonal order": base.transpose(1, 2, 0)[::-1],
    }
    for view in views.values():
        if side == "gpu" and any(stride < 0 for stride in view.strides):
            continue  # device arrays take no negative strides
        found = run(side, elementwise.mul, view, view, out=poisoned(view.shape, DTYPES[dtype]))
        check(found, view.astype(np.float64) ** 2, dtype)


@pytest.mark.parametrize("side", SIDES)
def test_writes_through_a_strided_output_and_nowhere_else(side: str) -> None:
    x = random((6, 5), DTYPES["f32"])
    memory = np.full((12, 10), 7.0, np.float32)
    out = memory[::2, 1::2]
    found = run(side, elementwise.exp, x, out=out)
    check(found, np.exp(x.astype(np.float64)), "f32")
    if side == "host":
        untouched = memory.copy()
        untouched[::2, 1::2] = 7.0
        assert (untouched == 7.0).all()


@pytest.mark.parametrize("side", SIDES)
def test_in_place(side: str) -> None:
    x = random((1000,), DTYPES["f32"])
    expected = np.exp(x.astype(np.float64))
    if side == "host":
        elementwise.exp(x, out=x)
        found = x
    else:
        from tilewright.runtime.memory import from_numpy

        array = from_numpy(x)
        elementwise.exp(array, out=array)
        found = array.numpy()
    check(found, expected, "f32")


@pytest.mark.parametrize("side", SIDES)
def test_special_values(side: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 89.0, -104.0, 1e-40], np.float32)
    found = run(side, elementwise.exp, x, out=poisoned(x.shape, x.dtype))
    with np.errstate(over="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1.5e-45)


def test_operands_of_two_dtypes_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"one dtype, got x: f32, y: f16"):
        elementwise.add(np.zeros(3, np.float32), np.zeros(3, np.float16))


def test_sums_of_eight_bit_floats_are_refused() -> None:
    x = np.zeros(3, ml_dtypes.float8_e5m2)
    with pytest.raises(ArgumentError, match=r"x has dtype f8e5m2; .* convert them to f16"):
        elementwise.add(x, x)


def test_an_output_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"out has shape \(2,\), the result has \(3,\)"):
        elementwise.exp(np.zeros(3, np.float32), out=np.zeros(2, np.float32))


@pytest.mark.gpu
@requires_gpu()
def test_offsets_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import empty, from_numpy

    x = empty((2**31 + 4099,), float16)
    tail = random((4099,), DTYPES["f16"], scale=0.3)
    elementwise.exp(from_numpy(tail), out=x[2**31 :])
    once = x[2**31 :].numpy()
    check(once, np.exp(tail.astype(np.float64)), "f16")
    elementwise.add(x, x, out=x)  # the whole array: an offset beyond 31 bits in one launch
    np.testing.assert_array_equal(x[2**31 :].numpy(), once + once)
