"""Elements by index against NumPy: read, added to in both orders, counted; indices out of range."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, SIDES, HostArray, random, run, to_device
from tilewright.errors import ArgumentError, ArgumentValueError, IndexRangeError
from tilewright.reference import index as reference
from tilewright.tensor import addition as addition_module
from tilewright.tensor import counting as counting_module
from tilewright.tensor import indexing as indexing_module

# Host arrays give host arrays, device arrays device arrays: a union would not say which.
addition: Any = addition_module
counting: Any = counting_module
indexing: Any = indexing_module

INDICES = [np.int32, np.int64]


def indices(shape: tuple[int, ...], extent: int, dtype: Any = np.int64) -> HostArray:
    return np.random.default_rng(2).integers(0, extent, shape).astype(dtype)


def given(side: str, operation: Any, *arrays: HostArray, **options: Any) -> HostArray:
    """Run an operation that makes its result."""
    if side == "host":
        return np.asarray(operation(*arrays, **options))
    return np.asarray(operation(*map(to_device, arrays), **options).numpy())


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("dtype", [*DTYPES.values(), np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((7,), 0, 20), ((5, 300), 1, 130), ((300, 5), 0, 40), ((3, 4, 5, 6), 2, 9), ((4, 6), 1, 1)],
    ids=str,
)
def test_gather(
    shape: tuple[int, ...], axis: int, count: int, dtype: Any, kind: Any, side: str
) -> None:
    if side == "gpu" and dtype == np.float64:
        pytest.skip("elements of 8 bytes are compiled just in time, not bundled")
    x = random(shape, dtype)
    places = indices((*shape[:axis], count, *shape[axis + 1 :]), shape[axis], kind)
    found = run(side, indexing.gather, x, places, axis=axis, out=np.zeros(places.shape, dtype))
    assert np.array_equal(found, np.take_along_axis(x, places.astype(np.int64), axis))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize(
    ("shape", "axis", "wanted"),
    [((50, 64), 0, (7, 3)), ((50, 300), 0, (9,)), ((4, 50, 33), 1, (5,)), ((3, 50), 1, (2, 4)),
     ((50,), 0, (60,)), ((20, 3), 0, ()), ((6, 5, 2, 8), 1, (3,))],
    ids=str,
)  # fmt: skip
def test_take(
    shape: tuple[int, ...], axis: int, wanted: tuple[int, ...], dtype: Any, kind: Any, side: str
) -> None:
    x, places = random(shape, dtype), indices(wanted, shape[axis], kind)
    expected = np.take(x, places, axis)
    found = run(side, indexing.take, x, places, axis=axis, out=np.zeros(expected.shape, dtype))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("side", SIDES)
def test_any_strides(side: str) -> None:
    base = random((6, 10, 4, 37), DTYPES["f32"])
    views = [base.transpose(2, 0, 1, 3), base[::2, ::3, 1:, 3:30], base[..., ::3],
             base.transpose(3, 1, 2, 0)]  # fmt: skip
    for x in views:
        for axis in range(4):
            places = indices((11,), x.shape[axis])
            expected = np.take(x, places, axis)
            out = np.zeros(expected.shape, x.dtype)
            assert np.array_equal(run(side, indexing.take, x, places, axis=axis, out=out), expected)
            shape = (*x.shape[:axis], 3, *x.shape[axis + 1 :])
            places = indices(shape, x.shape[axis])
            found = run(side, indexing.gather, x, places, axis=axis, out=np.zeros(shape, x.dtype))
            assert np.array_equal(found, np.take_along_axis(x, places, axis))


def test_results_go_where_out_lies() -> None:
    x, places = random((9, 6), DTYPES["f32"]), indices((4,), 9)
    whole = np.zeros((12, 9), np.float32)
    indexing.take(x, places, out=whole.T[1:9:2, ::2])
    assert np.array_equal(whole.T[1:9:2, ::2], x[places])
    indexing.gather(x, indices((4, 6), 9), axis=0, out=whole.T[1:9:2, ::2])
    assert np.array_equal(whole.T[1:9:2, ::2], np.take_along_axis(x, indices((4, 6), 9), 0))


@pytest.mark.parametrize("side", SIDES)
def test_infinities_and_nan_are_copied(side: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    found = given(side, indexing.take, x, np.array([2, 0, 1, 3, 2]))
    np.testing.assert_array_equal(found, x[[2, 0, 1, 3, 2]])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("wrong", [-1, 5, 2**40, -(2**62)])
def test_an_index_outside_is_an_error_and_reads_zero_unchecked(wrong: int, side: str) -> None:
    x = random((5, 8), DTYPES["f32"])
    places = np.array([3, wrong, 0])
    with pytest.raises(
        IndexRangeError, match=rf"index {wrong} at \(1,\) is outside of an axis of 5"
    ):
        given(side, indexing.take, x, places)
    found = given(side, indexing.take, x, places, check=False)
    assert np.array_equal(found, reference.take(x, places, check=False))
    assert not found[1].any()
    wide = np.repeat(places[:, None], 8, axis=1)
    with pytest.raises(IndexError, match=rf"index {wrong} at \(1, 0\)"):
        given(side, indexing.gather, x, wide, axis=0)
    found = given(side, indexing.gather, x, wide, axis=0, check=False)
    assert np.array_equal(found, reference.gather(x, wide, axis=0, check=False))


ORDERS = [True, False]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("deterministic", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((7,), 0, 2000), ((3, 40), 1, 500), ((40, 3), 0, 700), ((3, 4, 5), 1, 9), ((1000,), 0, 30),
     ((2,), 0, 5000)],
    ids=str,
)  # fmt: skip
def test_scatter_add(
    shape: tuple[int, ...], axis: int, count: int, dtype: str, deterministic: bool, side: str
) -> None:
    x = random(shape, DTYPES[dtype])
    places = indices((*shape[:axis], count, *shape[axis + 1 :]), shape[axis])
    src = random(places.shape, DTYPES[dtype], seed=1)
    options: dict[str, Any] = {"axis": axis, "deterministic": deterministic}
    found = given(side, addition.scatter_add, x, places, src, **options)
    exact = reference.scatter_add(x.astype(np.float64), places, src.astype(np.float64), axis=axis)
    tolerance = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=tolerance, atol=2e-4)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("deterministic", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((7, 64), 0, 300), ((50, 300), 0, 20), ((4, 50, 33), 1, 70), ((30,), 0, 90), ((3, 5), 1, 11)],
    ids=str,
)
def test_index_add(
    shape: tuple[int, ...], axis: int, count: int, dtype: str, deterministic: bool, side: str
) -> None:
    x, places = random(shape, DTYPES[dtype]), indices((count,), shape[axis], np.int32)
    src = random((*shape[:axis], count, *shape[axis + 1 :]), DTYPES[dtype], seed=1)
    options: dict[str, Any] = {"axis": axis, "deterministic": deterministic}
    found = given(side, addition.index_add, x, places, src, **options)
    exact = reference.index_add(x.astype(np.float64), places, src.astype(np.float64), axis=axis)
    tolerance = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=tolerance, atol=2e-4)


@pytest.mark.parametrize("side", SIDES)
def test_sums_in_order_have_the_same_bits_each_time(side: str) -> None:
    x, places = np.zeros(13, np.float32), indices((9001,), 13)
    src = random((9001,), DTYPES["f32"])
    found = {given(side, addition.scatter_add, x, places, src).tobytes() for _ in range(3)}
    assert len(found) == 1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("count", [*range(1, 65, 7), 64, 511, 512, 513, 1024, 1025])
def test_nothing_beyond_the_end_is_added(count: int, side: str) -> None:
    x, places = np.zeros(3, np.float32), np.zeros(count, np.int64)
    src = np.ones(count, np.float32)
    for deterministic in ORDERS:
        found = given(side, addition.scatter_add, x, places, src, deterministic=deterministic)
        assert found.tolist() == [count, 0, 0]


@pytest.mark.parametrize("side", SIDES)
def test_an_addition_outside_is_an_error_and_nothing_unchecked(side: str) -> None:
    x, src = np.zeros(2, np.float32), np.arange(1, 7, dtype=np.float32)
    places = np.array([0, 1, 0, 1, 2, -1])
    with pytest.raises(IndexRangeError, match=r"index 2 at \(4,\) is outside of an axis of 2"):
        given(side, addition.scatter_add, x, places, src)
    for deterministic in ORDERS:
        options: dict[str, Any] = {"check": False, "deterministic": deterministic}
        assert given(side, addition.scatter_add, x, places, src, **options).tolist() == [4, 6]
        found = given(side, addition.index_add, x[:, None], places, src[:, None], **options)
        assert found.tolist() == [[4], [6]]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_integers_are_added_exactly(dtype: Any) -> None:
    x, places = np.arange(5, dtype=dtype), indices((400,), 5)
    src = np.random.default_rng(0).integers(0, 2**31 - 1, 400).astype(dtype)
    expected = reference.scatter_add(x, places, src)
    assert np.array_equal(addition.scatter_add(x, places, src), expected)
    assert np.array_equal(addition.index_add(x, places, src), expected)


def test_f64_is_added_in_f64() -> None:
    x, places = np.zeros(3), indices((1000,), 3)
    src = np.random.default_rng(0).standard_normal(1000)
    expected = reference.scatter_add(x, places, src)
    np.testing.assert_allclose(addition.scatter_add(x, places, src), expected, rtol=1e-12)


def test_an_index_add_of_many_rows_is_exact() -> None:
    places = indices((256,), 64)
    src = np.random.default_rng(0).integers(-8, 8, (256, 2816)).astype(np.float32)
    expected = np.zeros((64, 2816), np.float32)
    np.add.at(expected, places, src)
    found = addition.index_add(np.zeros((64, 2816), np.float32), places, src)
    assert np.array_equal(found, expected)


def test_results_may_lie_in_their_inputs() -> None:
    x, places = random((64, 8), DTYPES["f32"]), indices((64,), 64)
    expected = x[places]
    indexing.take(x, places, out=x)
    assert np.array_equal(x, expected)
    src = random((64, 8), DTYPES["f32"], seed=1)
    expected = reference.index_add(x, places, src)
    kept = src.copy()
    addition.index_add(x, places, src, out=src)
    np.testing.assert_allclose(src, expected, rtol=1e-5, atol=1e-5)
    addition.index_add(x, places, kept, out=x)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)


def test_nothing_to_read_or_add() -> None:
    x = random((4, 5), DTYPES["f32"])
    none = np.zeros((0,), np.int64)
    assert np.asarray(indexing.take(x, none)).shape == (0, 5)
    assert np.asarray(indexing.take(np.zeros((4, 20)), none.reshape(4, 0), axis=0)).shape == (
        4,
        0,
        20,
    )
    assert np.array_equal(addition.index_add(x, none, x[:0]), x)
    assert np.array_equal(addition.scatter_add(x, np.zeros((4, 0), np.int64), x[:, :0]), x)


def test_arrays_that_do_not_fit_are_named() -> None:
    x, places = np.zeros((4, 5), np.float32), np.zeros((4, 2), np.int64)
    with pytest.raises(ArgumentError, match=r"of the same extents but for axis 0"):
        indexing.gather(x, places, axis=0)
    with pytest.raises(ArgumentError, match="index has dtype f32; indices are i32 or i64"):
        indexing.take(x, x)
    with pytest.raises(ArgumentError, match=r"src has shape \(4, 5\), and must have \(4, 2\)"):
        addition.scatter_add(x, places, x)
    with pytest.raises(ArgumentError, match="index_add takes x with axes and index with one"):
        addition.index_add(np.zeros((), np.float32), places[0], x[0])
    with pytest.raises(ArgumentError, match="x has dtype i8; floats and integers of 32 and 64"):
        addition.scatter_add(x.astype(np.int8), places, places.astype(np.int8))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("largest", [1, 10, 1000, 5000])
def test_bincount(largest: int, dtype: Any, side: str) -> None:
    x = indices((3, 4001), largest, dtype)
    found = given(side, counting.bincount, x)
    assert found.dtype == np.int64
    assert np.array_equal(found, np.bincount(x.reshape(-1)))


@pytest.mark.parametrize("side", SIDES)
def test_bincount_of_few_and_of_negative_integers(side: str) -> None:
    none = np.zeros(0, np.int64)
    assert given(side, counting.bincount, none, minlength=2).tolist() == [0, 0]
    assert given(side, counting.bincount, none).tolist() == []
    assert given(side, counting.bincount, np.array([1, 1]), minlength=4).tolist() == [0, 2, 0, 0]
    with pytest.raises(IndexRangeError, match=r"counts integers from 0 to .* and x has -7"):
        given(side, counting.bincount, np.array([1, -7, 3]))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bins", [1, 10, 1000, 3000])
@pytest.mark.parametrize("limits", [None, (-1.0, 2.5)], ids=["whole range", "part"])
def test_histogram(limits: Any, bins: int, dtype: str, side: str) -> None:
    x = random((7, 999), DTYPES[dtype])
    found = given(side, counting.histogram, x, bins=bins, range=limits)
    assert np.array_equal(found, reference.histogram(x, bins, range=limits))
    inside = x.size if limits is None else ((x >= limits[0]) & (x <= limits[1])).sum()
    assert found.sum() == inside


@pytest.mark.parametrize("side", SIDES)
def test_ends_nan_and_infinities_in_a_histogram(side: str) -> None:
    x = np.array([0, 1, 0.5, 0.25, np.nan, np.inf, -np.inf, -0.1, 1.1], np.float32)
    found = given(side, counting.histogram, x, bins=4, range=(0.0, 1.0))
    assert found.tolist() == [1, 1, 1, 1]
    assert given(side, counting.histogram, np.full(5, 3, np.float32), bins=2).tolist() == [0, 5]


def test_wrong_bins_and_ranges_are_named() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(ArgumentValueError, match="bins is 0; at least one"):
        counting.histogram(x, 0)
    with pytest.raises(ArgumentValueError, match=r"range is \(2.0, 1.0\)"):
        counting.histogram(x, range=(2, 1))
    with pytest.raises(ArgumentValueError, match=r"range is \(nan, nan\)"):
        counting.histogram(x * np.float32(np.nan))
    with pytest.raises(ArgumentError, match="bincount takes integers, got f32"):
        counting.bincount(x)
    with pytest.raises(ArgumentValueError, match="minlength is -1"):
        counting.bincount(np.zeros(3, np.int64), minlength=-1)
    assert counting.histogram(x.astype(ml_dtypes.bfloat16), 1).shape == (1,)


@pytest.mark.gpu
@requires_gpu()
def test_rows_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import from_numpy, zeros
    from tilewright.tensor import movement as movement_module

    movement: Any = movement_module

    table = zeros((1_079_840, 2048), float16)
    row = random((1, 2048), DTYPES["f16"])
    movement.copy(from_numpy(row), out=table[-1:])
    found = indexing.take(table, from_numpy(np.array([1_079_839, 0])))
    assert np.array_equal(found.numpy()[0], row[0])
