"""Sorting and topk against a stable sort of total order: tiles, merged runs, every element type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, SIDES, HostArray, to_device
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.reference import sort as reference
from tilewright.tensor import sorting as sorting_module

# Host arrays give host arrays, device arrays device arrays: a union would not say which.
sorting: Any = sorting_module

SHAPES = [(1,), (7, 5), (3, 128), (5, 129), (2, 512), (3, 513), (2, 1500), (1, 5000)]


def run(side: str, operation: Any, x: HostArray, **options: Any) -> tuple[HostArray, HostArray]:
    if side == "host":
        return operation(x, **options)  # type: ignore[no-any-return]  # a pair of arrays
    values, indices = operation(to_device(x), **options)
    return values.numpy(), indices.numpy()


def check(found: tuple[HostArray, HostArray], expected: tuple[HostArray, HostArray]) -> None:
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_with_many_equal_elements(
    shape: tuple[int, ...], descending: bool, dtype: str, side: str
) -> None:
    x = np.random.default_rng(0).integers(-40, 40, shape).astype(DTYPES[dtype])
    found = run(side, sorting.sort, x, descending=descending)
    check(found, reference.sort(x, descending=descending))


INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, np.bool_]


@pytest.mark.parametrize("dtype", [*INTEGERS, np.float64], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("descending", [False, True])
def test_every_element_type(descending: bool, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 2**63, (2, 700)).astype(dtype)
    x = x[::-1] if dtype == np.bool_ else x
    if dtype != np.bool_ and dtype != np.float64:
        x[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    values, order = sorting.sort(x, descending=descending)
    expected, expected_order = reference.sort(x, descending=descending)
    assert np.array_equal(values, expected)
    assert np.array_equal(order, expected_order)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [12, 1000])
def test_special_values_have_their_places(length: int, dtype: str, side: str) -> None:
    x = np.linspace(-3, 3, length).astype(DTYPES[dtype])
    x[[1, 4, 7]] = [np.nan, np.inf, -np.inf]
    x[[2, 3, 5]] = [0.0, -0.0, -np.nan]
    for descending in (False, True):
        values, order = run(side, sorting.sort, x, descending=descending)
        expected, expected_order = reference.sort(x, descending=descending)
        assert np.array_equal(order, expected_order)
        rising = values[::-1] if descending else values
        assert rising[0] == -np.inf
        assert np.isnan(rising[-2:]).all()
        assert rising[-3] == np.inf
        zeros = rising[rising == 0]
        assert np.signbit(zeros[:1]).all()
        np.testing.assert_array_equal(values.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_any_axis_and_strides(axis: int, side: str) -> None:
    base = np.random.default_rng(0).standard_normal((9, 20, 30)).astype(np.float32)
    views = {"contiguous": base, "transposed": base.transpose(2, 0, 1), "cut": base[::2, 1:, 3:]}
    if side == "host":
        views["reversed"] = base[::-1, :, ::-1]
    for view in views.values():
        check(run(side, sorting.sort, view, axis=axis), reference.sort(view, axis))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("shape", "k"),
    [((5, 64), 8), ((3, 100), 100), ((2, 3000), 5), ((2, 700), 256), ((2, 700), 300),
     ((1, 20000), 64), ((4, 7), 0), ((3, 513), 1)],
    ids=str,
)  # fmt: skip
def test_topk(shape: tuple[int, int], k: int, largest: bool, dtype: str, side: str) -> None:
    x = np.random.default_rng(1).integers(-500, 500, shape).astype(DTYPES[dtype])
    found = run(side, sorting.topk, x, k=k, largest=largest)
    check(found, reference.topk(x, k, largest=largest))


def test_topk_where_all_are_the_largest_key() -> None:
    x = np.full((2, 1030), np.iinfo(np.int32).max, np.int32)
    values, order = sorting.topk(x, 4, largest=False)
    assert np.asarray(order).tolist() == [[0, 1, 2, 3]] * 2
    assert np.array_equal(values, x[:, :4])


def test_topk_along_another_axis() -> None:
    x = np.random.default_rng(1).standard_normal((40, 6, 3))
    values, order = sorting.topk(x, 3, axis=0)
    expected = reference.topk(x, 3, axis=0)
    assert np.array_equal(values, expected[0])
    assert np.array_equal(order, expected[1])


@pytest.mark.parametrize("shape", [(0,), (0, 5), (1,), (2, 0), ()], ids=str)
def test_nothing_to_sort(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 3.0, np.float32)
    values, order = sorting.sort(x)
    assert np.array_equal(values, x)
    assert np.array_equal(order, np.zeros(shape))
    assert np.array_equal(sorting.argsort(x), np.zeros(shape))


def test_wrong_arguments_are_named() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ArgumentValueError, match="k is 4, of an axis of 3 elements"):
        sorting.topk(x, 4)
    with pytest.raises(ArgumentError, match="k is of float; an int is needed"):
        sorting.topk(x, 1.5)
    with pytest.raises(ArgumentError, match="axis is 2, of an array with 2 axes"):
        sorting.sort(x, 2)
    with pytest.raises(ArgumentError, match="8-bit floats"):
        sorting.sort(x.astype(ml_dtypes.float8_e5m2))


@pytest.mark.gpu
@requires_gpu()
def test_a_million_elements() -> None:
    x = np.random.default_rng(0).standard_normal(1_000_003).astype(np.float32)
    check(run("gpu", sorting.sort, x), reference.sort(x))
    check(run("gpu", sorting.topk, x, k=100), reference.topk(x, 100))
