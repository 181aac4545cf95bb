"""Look-ups and sorts, in every way there is without a GPU, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.every_way import lower_text, run_every_way
from tilewright_compiler.ir.types import TileType
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]

GATHER = """
@tl.kernel
def k(x, index, out, M: tl.constexpr, N: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
      AXIS: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    places = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + places, tl.gather(tile, tl.load(index + places), AXIS))
"""


def _integers(shape: tuple[int, ...], dtype: Any = np.int32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-99, 99, shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "wanted", "axis", "num_warps"),
    [
        ((8, 64), (8, 16), 1, 4),
        ((8, 64), (32, 64), 0, 4),
        ((1, 256), (1, 512), 1, 8),
        ((256, 1), (2, 1), 0, 1),
        ((4, 1), (4, 8), 1, 2),
        ((1, 1), (1, 1), 0, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
def test_gather_along_either_axis(
    shape: tuple[int, int], wanted: tuple[int, int], axis: int, num_warps: int, dtype: str
) -> None:
    x = _integers(shape, np.dtype(dtype))
    index = np.random.default_rng(1).integers(0, shape[axis], wanted).astype(np.int32)
    arrays = {"x": x, "index": index, "out": np.zeros(wanted, x.dtype)}
    (m, n), (r, c) = shape, wanted
    left = run_every_way(GATHER, arrays, num_warps=num_warps, M=m, N=n, R=r, C=c, AXIS=axis)
    np.testing.assert_array_equal(left["out"], np.take_along_axis(x, index, axis))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16, np.bool_], ids=str)
def test_gather_copies_elements_that_have_no_arithmetic(dtype: Any) -> None:
    x = _integers((1, 64)).astype(dtype)
    index = np.flip(np.arange(64, dtype=np.int64))[None].copy()
    arrays = {"x": x, "index": index, "out": np.zeros_like(x)}
    left = run_every_way(GATHER, arrays, M=1, N=64, R=1, C=64, AXIS=1)
    np.testing.assert_array_equal(left["out"].view(np.uint8), x[:, ::-1].copy().view(np.uint8))


def test_gather_from_what_was_gathered_and_reduced() -> None:
    text = """
@tl.kernel
def k(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    row = tl.load(x + i[:, None] * N + i[None, :]).sum(1)
    for turn in range(3):
        row = tl.gather(row, i * 5 + turn, 0) + tl.gather(i + row, i ^ 1, 0)
    tl.store(out + i, row)
"""
    x = _integers((64, 64))
    left = run_every_way(text, {"x": x, "out": np.zeros(64, np.int32)}, N=64)
    row, i = x.sum(1, dtype=np.int32), np.arange(64, dtype=np.int32)
    for turn in range(3):
        row = row[(i * 5 + turn) % 64] + (i + row)[i ^ 1]
    np.testing.assert_array_equal(left["out"], row)


HISTOGRAM = """
@tl.kernel
def k(x, out, M: tl.constexpr, N: tl.constexpr, BINS: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    counts = tl.histogram(tile, BINS, mask=tl.arange(0, N)[None, :] < N - 3)
    tl.store(out + tl.arange(0, BINS), counts + tl.histogram(tile, BINS))
"""


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
@pytest.mark.parametrize(
    ("shape", "bins", "num_warps"),
    [((8, 64), 16, 4), ((1, 4), 512, 4), ((64, 8), 1, 2), ((2, 16), 64, 8)],
    ids=str,
)
def test_histogram(shape: tuple[int, int], bins: int, num_warps: int, dtype: str) -> None:
    x = _integers(shape, np.dtype(dtype))
    arrays = {"x": x, "out": np.zeros(bins, np.int32)}
    left = run_every_way(HISTOGRAM, arrays, num_warps=num_warps, M=shape[0], N=shape[1], BINS=bins)
    expected = np.zeros(bins, np.int64)
    for part in (x, x[:, :-3]):
        within = part[(part >= 0) & (part < bins)].astype(np.int64)
        expected += np.bincount(within, minlength=bins)
    np.testing.assert_array_equal(left["out"], expected)


SORT = """
@tl.kernel
def k(x, out, M: tl.constexpr, N: tl.constexpr, DIM: tl.constexpr, DESCENDING: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + places, tl.sort(tl.load(x + places), DIM, DESCENDING))
"""


@pytest.mark.parametrize("is_descending", [False, True], ids=["rising", "falling"])
@pytest.mark.parametrize(
    ("shape", "axis", "num_warps"),
    [((1, 256), 1, 4), ((16, 16), 1, 2), ((16, 8), 0, 4), ((2, 2), 0, 1)],
    ids=str,
)
def test_sort(shape: tuple[int, int], axis: int, num_warps: int, is_descending: bool) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    x.ravel()[:2] = np.nan, -np.inf
    arrays = {"x": x, "out": np.zeros_like(x)}
    (m, n), warps = shape, num_warps
    left = run_every_way(
        SORT, arrays, num_warps=warps, M=m, N=n, DIM=axis, DESCENDING=is_descending
    )
    expected = np.sort(x, axis)
    expected = np.flip(expected, axis) if is_descending else expected
    np.testing.assert_array_equal(left["out"], expected)


@pytest.mark.parametrize("count", [1, 8, 128])
def test_topk(count: int) -> None:
    text = """
@tl.kernel
def k(x, out, low, N: tl.constexpr, K: tl.constexpr):
    tile = tl.load(x + tl.arange(0, N))
    tl.store(out + tl.arange(0, K), tl.topk(tile, K))
    tl.store(low + tl.arange(0, K), tl.topk(tile, K, largest=False))
"""
    x = _integers((128,), np.int16)
    arrays = {"x": x, "out": np.zeros(count, np.int16), "low": np.zeros(count, np.int16)}
    left = run_every_way(text, arrays, N=128, K=count)
    order = np.sort(x)
    np.testing.assert_array_equal(left["out"], order[::-1][:count])
    np.testing.assert_array_equal(left["low"], order[:count])


@pytest.mark.parametrize("dtype", ["int8", "float64"])
def test_indices_are_those_of_a_stable_sort(dtype: str) -> None:
    text = """
@tl.kernel
def k(x, out, at, top, place, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.arange(0, N), tl.arange(0, K)
    tile = tl.load(x + i)
    values, indices = tl.sort(tile, return_indices=True)
    tl.store(out + i, values)
    tl.store(at + i, indices)
    values, indices = tl.topk(tile, K, return_indices=True)
    tl.store(top + j, values)
    tl.store(place + j, indices)
"""
    x = (_integers((128,)) % 9).astype(dtype)
    arrays = {"x": x, "out": np.zeros_like(x), "at": np.zeros(128, np.int32)}
    arrays |= {"top": np.zeros(16, x.dtype), "place": np.zeros(16, np.int32)}
    left = run_every_way(text, arrays, N=128, K=16)
    order, falling = np.argsort(x, stable=True), np.argsort(-x, stable=True)[:16]
    np.testing.assert_array_equal(left["at"], order)
    np.testing.assert_array_equal(left["out"], x[order])
    np.testing.assert_array_equal(left["place"], falling)
    np.testing.assert_array_equal(left["top"], x[falling])


def test_all_steps_of_a_sort_have_one_layout() -> None:
    x = np.zeros((1, 512), np.float32)
    module = lower_text(SORT, {"x": x, "out": x}, M=1, N=512, DIM=1, DESCENDING=False)
    module = schedule_module(optimize(module))
    operations = list(module.kernel.body.walk())
    flips = [operation for operation in operations if operation.name == "flip"]
    assert len(flips) == 9 * 10 // 2
    types = {flip.result.type for flip in flips}
    assert len(types) == 1
    # Bits that are flipped often are those of registers; loads and stores have other layouts.
    (type_,) = types
    assert isinstance(type_, TileType)
    assert type_.layout is not None
    assert type_.layout.register == (1, 2)
    assert sum(operation.name == "convert_layout" for operation in operations) == 2
    # Bits 7 and 8 are those of the warp: the only ones that go through memory.
    assert sum("shared_offset" in flip.attributes for flip in flips) == 2 + 1
