"""Copies with axes in any order: every width, crossed tiles and rows, views of all kinds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import SIDES, run
from tilewright.errors import ArgumentError
from tilewright.reference import movement as reference
from tilewright.tensor import movement as movement_module

# Host arrays give host arrays, device arrays device arrays: a union would not say which.
movement: Any = movement_module

DTYPES = [np.uint8, np.bool_, np.float16, ml_dtypes.bfloat16, np.float32, np.int64, np.float64]


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def blank(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.full(shape, 1, dtype)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize(
    "shape", [(64, 128), (65, 33), (17, 300), (1, 40), (3, 100), (0, 5)], ids=str
)
def test_transposed_matrix(shape: tuple[int, int], dtype: Any, side: str) -> None:
    x = numbers(shape, dtype)
    found = run(side, movement.transpose, x, out=blank(shape[::-1], dtype))
    assert np.array_equal(found, reference.transpose(x))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3), (3, 2, 1, 0), (0, 3, 1, 2), (2, 3, 0, 1), (1, 0, 3, 2)], ids=str
)
def test_axes_in_any_order(order: tuple[int, ...], side: str) -> None:
    x = numbers((3, 20, 5, 18), np.float32)
    expected = reference.permute(x, order)
    found = run(side, movement.permute, x, axes=order, out=blank(expected.shape, np.float32))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("side", SIDES)
def test_views_of_all_kinds(side: str) -> None:
    base = numbers((6, 10, 4, 37), np.float32)
    views = {
        "sliced": base[::2, ::3, 1:, 3:30],
        "strided columns": base[..., ::3],
        "one axis": base[1, 2, 3],
        "scalar": base[1, 2, 3, 4],
        "repeated": np.broadcast_to(base[:, :1], base.shape),
        "crossed and cut": base.transpose(3, 1, 2, 0)[1:30, ::2],
        "misaligned": base.reshape(-1)[3:4000],
    }
    if side == "host":
        views["reversed"] = base[::-1, :, ::-1, ::-1]
    for name, view in views.items():
        found = run(side, movement.copy, np.asarray(view), out=blank(view.shape, np.float32))
        assert np.array_equal(found, view), name


@pytest.mark.parametrize("side", SIDES)
def test_more_axes_than_kernels_have(side: str) -> None:
    base = numbers((3, 4, 5, 3, 4, 34), np.float16)
    for order in ((5, 3, 1, 0, 2, 4), (0, 2, 4, 5, 3, 1)):
        expected = base.transpose(order)[..., ::1]
        found = run(side, movement.permute, base, axes=order, out=blank(expected.shape, base.dtype))
        assert np.array_equal(found, expected)


def test_out_may_have_strides_and_nothing_else_is_written() -> None:
    x = numbers((40, 30), np.float32)
    whole = np.full((60, 80), -1, np.float32)
    movement.copy(x, out=whole.T[5:45:1, 2:32])
    assert np.array_equal(whole.T[5:45, 2:32], x)
    assert (whole == -1).sum() == whole.size - x.size


def test_nan_and_infinities_are_copied_bit_by_bit() -> None:
    bits = np.arange(0x7C00, 0x7C00 + 1024, dtype=np.uint16).reshape(32, 32)
    found = movement.transpose(bits.view(np.float16))
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found.view(np.uint16), bits.T)


def test_contiguous_copies_only_what_is_not() -> None:
    x = numbers((4, 5), np.float32)
    assert movement.contiguous(x) is x
    copied = movement.contiguous(x.T)
    assert isinstance(copied, np.ndarray)
    assert copied.flags.c_contiguous
    assert np.array_equal(copied, x.T)


def test_what_is_no_order_of_the_axes_is_refused() -> None:
    x = numbers((4, 5), np.float32)
    with pytest.raises(ArgumentError, match=r"axes are \(0, 0\); an order of the 2 axes"):
        movement.permute(x, (0, 0))
    with pytest.raises(ArgumentError, match="axes is 2, of an array with 2 axes"):
        movement.permute(x, (0, 2))


@pytest.mark.gpu
@requires_gpu()
def test_offsets_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import uint8
    from tilewright.runtime.memory import empty, from_numpy

    rows = 2**31 // 4096 + 70
    x, out = empty((rows, 4096), uint8), empty((4096, rows), uint8)
    tail = numbers((70, 4096), np.uint8)
    movement.copy(from_numpy(tail), out=x[-70:])
    movement.transpose(x, out=out)
    assert np.array_equal(movement.copy(out[:, -70:]).numpy(), tail.T)


def test_an_array_is_transposed_in_its_own_memory() -> None:
    x = numbers((40, 40), np.float32)
    expected = x.T.copy()
    movement.copy(x.T, out=x)
    assert np.array_equal(x, expected)
