"""Reductions over any axes against fp64 oracles: both tiles, split or not, every element type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.errors import ArgumentError
from tilewright.reference import reduction as reference
from tilewright.tensor import reduction as reduction_module

# Host arrays give host arrays, device arrays device arrays: a union would not say which.
reduction: Any = reduction_module

# Whole and odd, narrow and wide, with few results and many; `None` is all axes.
CASES: list[tuple[tuple[int, ...], Any]] = [
    ((3, 100), -1),
    ((3, 100), 0),
    ((37, 1000), 1),
    ((37, 1000), 0),
    ((5, 9001), 1),
    ((9001, 5), 0),
    ((2000, 130), 0),
    ((300, 48), 1),
    ((20000,), None),
    ((3, 7, 11), None),
    ((4, 33, 40), 1),
    ((12, 33, 130), (0, 1)),
    ((12, 33, 130), (0, 2)),
    ((3, 5, 4, 6), (0, 2)),
    ((3, 5, 4, 6), (1, 3)),
    ((6, 1, 64), 1),
    ((1,), 0),
]
IDS = [f"{shape}-{axis}" for shape, axis in CASES]


def ident(value: Any) -> str:
    return str(value)


def close(found: HostArray, exact: Any, magnitude: Any, *, dtype: str, roundings: float) -> None:
    error = np.abs(found.astype(np.float64) - exact)
    limit = 1.01 * ROUNDOFF[dtype] * np.abs(exact) + roundings * ROUNDOFF["f32"] * magnitude
    assert (error <= limit + 2.0**-25).all(), error.max()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=IDS)
def test_sum_and_mean(shape: tuple[int, ...], axis: Any, dtype: str, side: str) -> None:
    x = random(shape, DTYPES[dtype])
    exact = x.astype(np.float64)
    for operation, oracle in ((reduction.sum, np.sum), (reduction.mean, np.mean)):
        expected = np.asarray(oracle(exact, axis=axis))
        magnitude = np.asarray(oracle(np.abs(exact), axis=axis))
        found = run(side, operation, x, axis=axis, out=poisoned(expected.shape, x.dtype))
        close(found, expected, magnitude, dtype=dtype, roundings=30)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=IDS)
def test_max_and_min(shape: tuple[int, ...], axis: Any, dtype: str, side: str) -> None:
    x = random(shape, DTYPES[dtype])
    for operation, oracle in ((reduction.max, np.max), (reduction.min, np.min)):
        expected = np.asarray(oracle(x.astype(np.float64), axis=axis))
        found = run(side, operation, x, axis=axis, out=poisoned(expected.shape, x.dtype))
        assert np.array_equal(found.astype(np.float64), expected)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=IDS)
def test_argmax_and_argmin(shape: tuple[int, ...], axis: Any, dtype: str, side: str) -> None:
    if isinstance(axis, tuple):
        pytest.skip("the place of an extremum is along one axis or of all")
    x = random(shape, DTYPES[dtype]).round(0)  # many equal elements
    for operation, oracle in ((reduction.argmax, np.argmax), (reduction.argmin, np.argmin)):
        expected = np.asarray(oracle(x.astype(np.float64), axis=axis))
        found = run(side, operation, x, axis=axis, out=np.full(expected.shape, -1, np.int64))
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=IDS)
def test_var_and_std(shape: tuple[int, ...], axis: Any, dtype: str, side: str) -> None:
    x = random(shape, DTYPES[dtype])
    exact = x.astype(np.float64)
    for operation, oracle in ((reduction.var, np.var), (reduction.std, np.std)):
        expected = np.asarray(oracle(exact, axis=axis))
        found = run(
            side, operation, x, axis=axis, correction=0, out=poisoned(expected.shape, x.dtype)
        )
        close(found, expected, 1.0, dtype=dtype, roundings=64)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(2, 100), (2, 60001), (60001, 2)], ids=str)
def test_var_keeps_its_digits_under_a_large_mean(shape: tuple[int, int], side: str) -> None:
    axis = int(np.argmax(shape))
    x = random(shape, DTYPES["f32"]) + np.float32(10000)
    expected = np.var(x.astype(np.float64), axis=axis, ddof=1)
    found = run(side, reduction.var, x, axis=axis, out=poisoned((2,), x.dtype))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [768, 50000])
def test_the_mean_in_var_does_not_overflow(columns: int, side: str) -> None:
    x = np.full((3, columns), 3e38, np.float32)
    found = run(side, reduction.var, x, axis=1, out=poisoned((3,), x.dtype))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("width", [7, 30000])
def test_places_of_special_values(width: int, side: str) -> None:
    nan, inf = np.nan, np.inf
    x = np.zeros((6, width), np.float32)
    x[0, 3] = x[0, 5] = nan  # the first NaN
    x[1] = -inf  # nothing is larger than -inf: the first
    x[2, 4], x[2, 5] = -0.0, 0.0  # equal
    x[3, 2], x[3, 6] = inf, nan
    x[4, -1] = inf
    x[5, 6] = -inf
    for axis, array in ((1, x), (0, np.ascontiguousarray(x.T))):
        found = run(side, reduction.argmax, array, axis=axis, out=np.full(6, -1, np.int64))
        assert found.tolist() == [3, 0, 0, 6, width - 1, 0]
        found = run(side, reduction.argmin, array, axis=axis, out=np.full(6, -1, np.int64))
        assert found.tolist() == [3, 0, 0, 6, 0, 6]
        found = run(side, reduction.max, array, axis=axis, out=poisoned((6,), x.dtype))
        np.testing.assert_array_equal(found, [nan, -inf, 0, nan, inf, 0])
        found = run(side, reduction.min, array, axis=axis, out=poisoned((6,), x.dtype))
        np.testing.assert_array_equal(found, [nan, -inf, 0, nan, 0, -inf])


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("shape", [(2, 11), (1, 9000)], ids=str)
def test_integers_are_exact(shape: tuple[int, int], dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(info.min, info.max, shape, dtype, endpoint=True)
    x[0, 1], x[0, 2] = info.min, info.max
    for axis in (0, 1):
        for name in ("max", "min", "argmax", "argmin"):
            found = getattr(reduction, name)(x, axis)
            expected = getattr(np, name)(x, axis=axis)
            assert np.array_equal(found, expected)
            assert found.dtype == expected.dtype
        total = reduction.sum(x, axis)
        assert np.array_equal(total, reference.sum(x, axis))
        assert total.dtype == np.sum(x).dtype
        mean = reduction.mean(x, axis)
        assert mean.dtype == np.float32
        np.testing.assert_allclose(mean, reference.mean(x, axis), rtol=1e-6)


def test_the_lowest_integer_has_no_negative() -> None:
    lowest = np.iinfo(np.int32).min
    assert reduction.argmax(np.array([0, lowest], np.int32)) == 0
    assert reduction.argmin(np.array([0, lowest], np.int32)) == 1
    assert reduction.argmax(np.array([lowest, 0], np.int32)) == 1
    assert reduction.argmin(np.array([lowest, 0], np.int32)) == 0
    assert reduction.min(np.array([lowest, 0], np.int32)) == lowest


def test_bools_are_counted() -> None:
    x = np.array([[True, False, True], [False, False, False]])
    total = reduction.sum(x, 1)
    assert isinstance(total, np.ndarray)
    assert total.dtype == np.int64
    assert total.tolist() == [2, 0]
    assert np.asarray(reduction.max(x, 1)).tolist() == [True, False]
    assert np.asarray(reduction.min(x[:1, ::2], 1)).tolist() == [True]
    assert np.asarray(reduction.argmax(x, 1)).tolist() == [0, 0]


@pytest.mark.parametrize("extent", [1, 2, 5000])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16])
def test_dtypes_do_not_depend_on_the_extent(dtype: Any, extent: int) -> None:
    x = np.ones((3, extent), dtype)
    assert reduction.sum(x, 1).dtype == np.sum(x, 1).dtype
    assert reduction.sum(x, 1).tolist() == [extent] * 3
    assert reduction.mean(x, 1).dtype == np.float32


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("width", [1, 5, 9000])
def test_infinities_alone_are_extrema(width: int, side: str) -> None:
    x = np.full((2, width), np.inf, np.float32)
    found = run(side, reduction.min, x, axis=1, out=poisoned((2,), x.dtype))
    assert (found == np.inf).all()
    found = run(side, reduction.max, -x, axis=1, out=poisoned((2,), x.dtype))
    assert (found == -np.inf).all()


def test_f64_keeps_its_digits() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5000)) + 1e8
    np.testing.assert_allclose(reduction.sum(x, 1), x.sum(1), rtol=1e-15)
    np.testing.assert_allclose(reduction.mean(x, 1), x.mean(1), rtol=1e-15)
    np.testing.assert_allclose(reduction.var(x, 1), x.var(1, ddof=1), rtol=1e-7)
    assert np.array_equal(reduction.argmax(x, 1), x.argmax(1))


@pytest.mark.parametrize("side", SIDES)
def test_narrow_floats_are_counted_past_their_integers(side: str) -> None:
    x = np.ones(2050, np.float16)
    assert run(side, reduction.sum, x, out=poisoned((), x.dtype)) == 2050
    x = np.full(4, 60000, np.float16)
    assert run(side, reduction.mean, x, out=poisoned((), x.dtype)) == 60000


@pytest.mark.parametrize("side", SIDES)
def test_places_count_in_the_order_of_the_view(side: str) -> None:
    base = np.sin(np.arange(35, dtype=np.float32)).reshape(5, 7)
    found = run(side, reduction.argmax, base.T, out=np.full((), -1, np.int64))
    assert found == np.argmax(base.T)
    x = random((6, 10, 37), DTYPES["f32"])
    found = run(side, reduction.argmin, x.transpose(2, 0, 1)[::2], out=np.full((), -1, np.int64))
    assert found == np.argmin(x.transpose(2, 0, 1)[::2])


@pytest.mark.parametrize("side", SIDES)
def test_any_strides(side: str) -> None:
    base = random((6, 10, 4, 37), DTYPES["f32"])
    views = {
        "transposed": base.transpose(2, 0, 1, 3),
        "sliced": base[::2, ::3, 1:, 3:30],
        "strided columns": base[..., ::3],
        "columns outermost": base.transpose(3, 1, 2, 0),
        "misaligned": base.reshape(-1)[1:7401].reshape(5, 10, 4, 37),
        "repeated": np.broadcast_to(base[:, :1], base.shape),
    }
    if side == "host":
        views["reversed"] = base[::-1, :, ::-1, ::-1]
    for name, view in views.items():
        for axis in (0, 3, (1, 2), (0, 3), (0, 1, 3), None):
            expected = np.asarray(view.astype(np.float64).sum(axis))
            out = poisoned(expected.shape, view.dtype)
            found = run(side, reduction.sum, view, axis=axis, out=out)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3, err_msg=name)
            out = poisoned(expected.shape, view.dtype)
            found = run(side, reduction.max, view, axis=axis, out=out)
            assert np.array_equal(found, np.max(view, axis)), name


@pytest.mark.parametrize("axis", [0, 1, (0, 2), None], ids=str)
def test_reduced_axes_may_stay(axis: Any) -> None:
    x = random((3, 4, 5), DTYPES["f32"])
    for name in ("sum", "max", "mean", "min"):
        found = getattr(reduction, name)(x, axis, keepdim=True)
        expected = getattr(np, name)(x, axis=axis, keepdims=True)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rows", [1, 3])
def test_few_long_rows_that_begin_anywhere(rows: int, side: str) -> None:
    base = random((rows, 20_010), DTYPES["f32"])
    x = base[:, 3:20_004]
    exact = x.astype(np.float64)
    for name in ("sum", "max", "argmin", "var"):
        out = np.zeros((rows,), np.int64 if name == "argmin" else np.float32)
        found = run(side, getattr(reduction, name), x, axis=1, out=out)
        options = {"ddof": 1} if name == "var" else {}
        expected = getattr(np, name)(exact, axis=1, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-3, err_msg=name)


def test_results_go_where_out_lies() -> None:
    x = random((5, 4, 3), DTYPES["f32"])
    whole = np.full((9, 8), 7, np.float32)
    reduction.sum(x, 2, out=whole.T[:5, ::2][:, :4])
    np.testing.assert_allclose(whole.T[:5, :8:2], x.sum(2), rtol=1e-5)
    assert (whole == 7).sum() == whole.size - 20


def test_a_result_may_lie_in_its_input() -> None:
    x = random((300, 300), DTYPES["f32"])
    expected = x.astype(np.float64).sum(0)
    reduction.sum(x, 0, out=x[0])
    np.testing.assert_allclose(x[0], expected, rtol=1e-4, atol=1e-4)


def test_a_scalar_has_an_axis() -> None:
    x = np.asarray(np.float32(3))
    for axis in (None, 0, -1):
        assert reduction.mean(x, axis) == 3
        assert reduction.argmax(x, axis) == 0
    with pytest.raises(ArgumentError, match="axis is 1, of an array with 0 axes"):
        reduction.sum(x, 1)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 7)], ids=str)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_sums_of_nothing_are_zero(shape: tuple[int, ...], axis: Any) -> None:
    x = np.zeros(shape, np.float32)
    expected = np.sum(x, axis=axis)
    assert np.array_equal(reduction.sum(x, axis), expected)
    if not expected.size:
        return
    for operation in (reduction.mean, reduction.var):
        result = np.asarray(operation(x, axis))
        is_empty = np.size(x) == 0 and result.size > 0
        assert np.isnan(result).all() == is_empty


def test_extrema_of_nothing_are_refused() -> None:
    x = np.zeros((3, 0), np.float32)
    for name, what in (("max", "maximum"), ("min", "minimum"), ("argmax", "argmax")):
        with pytest.raises(
            ArgumentError, match=rf"{what} over an empty axis: x has shape \(3, 0\)"
        ):
            getattr(reduction, name)(x, 1)
    assert np.asarray(reduction.max(x.T, 1)).shape == (0,)


def test_variance_of_one_element_is_nan_unless_asked_for_all() -> None:
    x = np.ones((2, 1), np.float32)
    assert np.isnan(reduction.var(x, 1)).all()
    assert np.asarray(reduction.var(x, 1, correction=0)).tolist() == [0, 0]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(1, 100000), (50, 4099), (4099, 50)], ids=str)
def test_equal_inputs_give_equal_bits(shape: tuple[int, int], side: str) -> None:
    x = random(shape, DTYPES["f32"])
    axis = int(np.argmax(shape))
    bits = {
        run(side, reduction.sum, x, axis=axis, out=poisoned((min(shape),), x.dtype)).tobytes()
        for _ in range(3)
    }
    assert len(bits) == 1


def test_wrong_arguments_name_what_is_wrong() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ArgumentError, match=r"axis \(0, -2\) names an axis twice"):
        reduction.sum(x, (0, -2))
    with pytest.raises(ArgumentError, match="axis is of float; an int is needed"):
        reduction.sum(x, 0.5)
    with pytest.raises(ArgumentError, match="var takes floating-point numbers, got i32"):
        reduction.var(x.astype(np.int32))
    with pytest.raises(ArgumentError, match="8-bit floats"):
        reduction.sum(x.astype(ml_dtypes.float8_e5m2))


@pytest.mark.gpu
@requires_gpu()
def test_ones_are_counted_past_the_integers_of_f32() -> None:
    from tilewright.runtime.memory import from_numpy

    x = from_numpy(np.ones(20_000_000, np.float32))
    assert reduction.mean(x, 0).numpy() == 1.0


@pytest.mark.gpu
@requires_gpu()
def test_elements_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import from_numpy, zeros
    from tilewright.tensor import movement as movement_module

    movement: Any = movement_module

    columns = 16384
    x = zeros((2**31 // columns + 3, columns), float16)
    tail = np.zeros((1, columns), np.float16)
    tail[0, -5] = 3.0
    movement.copy(from_numpy(tail), out=x[-1:])
    assert reduction.sum(x).numpy() == 3.0
    assert reduction.max(x).numpy() == 3.0
    assert reduction.argmax(x).numpy() == x.size - 5
    assert reduction.argmax(x, 0).numpy()[-5] == x.shape[0] - 1
    assert reduction.sum(x, 1).numpy()[-1] == 3.0
