"""Reductions and scans by functions, in every way there is without a GPU, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.emitted import run_scheduled
from helpers.every_way import lower_text, run_every_way
from tilewright_compiler.ir.types import TileType
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]

SCAN = """
@tl.kernel
def k(x, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + places, tl.cumsum(tl.load(x + places), AXIS, reverse=REVERSE))
"""

# Maps x -> a x + b modulo 2^32, of which the left one is applied first: no order but one is right.
AFFINE = """
@tl.kernel
def after(a, b, c, d):
    return a * c, b * c + d
"""


def _integers(shape: tuple[int, ...], dtype: Any = np.int32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-99, 99, shape).astype(dtype)


def _scanned(array: Array, axis: int, is_reversed: bool) -> Array:
    order = np.flip(array, axis) if is_reversed else array
    result = np.cumsum(order, axis, dtype=array.dtype)
    return np.flip(result, axis) if is_reversed else result


@pytest.mark.parametrize("is_reversed", [False, True], ids=["forward", "reversed"])
@pytest.mark.parametrize(
    ("shape", "axis", "num_warps"),
    [
        ((1, 1), 1, 4),
        ((1, 1024), 1, 4),
        ((512, 1), 0, 8),
        ((4, 128), 1, 8),
        ((4, 128), 0, 4),
        ((128, 4), 0, 2),
        ((64, 2), 1, 1),
        ((32, 1), 1, 1),
    ],
    ids=str,
)
def test_running_sums_along_either_axis(
    shape: tuple[int, int], axis: int, num_warps: int, is_reversed: bool
) -> None:
    x = _integers(shape)
    arrays = {"x": x, "out": np.zeros_like(x)}
    (m, n), warps = shape, num_warps
    left = run_every_way(SCAN, arrays, num_warps=warps, M=m, N=n, AXIS=axis, REVERSE=is_reversed)
    np.testing.assert_array_equal(left["out"], _scanned(x, axis, is_reversed))


@pytest.mark.parametrize("dtype", ["int64", "uint32", "float32", "float64"])
def test_running_sums_of_other_dtypes(dtype: str) -> None:
    x = _integers((8, 64), np.int32).astype(dtype)
    arrays = {"x": x, "out": np.zeros_like(x)}
    left = run_every_way(SCAN, arrays, M=8, N=64, AXIS=1, REVERSE=False)
    np.testing.assert_array_equal(left["out"], _scanned(x, 1, False))


def test_running_products_of_a_half_are_rounded_once_each() -> None:
    text = """
@tl.kernel
def k(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.cumprod(tl.load(x + i), reverse=True))
"""
    x = np.exp2(_integers((128,)) % 3 - 1).astype(ml_dtypes.bfloat16)
    left = run_every_way(text, {"x": x, "out": np.zeros_like(x)}, N=128)
    exact = np.flip(np.cumprod(np.flip(x.astype(np.float64))))
    np.testing.assert_array_equal(left["out"], exact.astype(ml_dtypes.bfloat16))


def _composed(pairs: Array, is_reversed: bool) -> Array:
    order = (pairs[::-1] if is_reversed else pairs).tolist()
    results = [order[0]]
    for c, d in order[1:]:
        a, b = results[-1]
        results.append([a * c % 2**32, (b * c + d) % 2**32])
    composed = np.array(results)
    return composed[::-1] if is_reversed else composed


@pytest.mark.parametrize("num_warps", [1, 8])
@pytest.mark.parametrize("is_reversed", [False, True], ids=["forward", "reversed"])
def test_the_order_of_elements_is_kept(is_reversed: bool, num_warps: int) -> None:
    text = (
        AFFINE
        + """
@tl.kernel
def k(x, y, gate, state, total, N: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, N)
    pair = tl.load(x + i), tl.load(y + i)
    a, b = tl.associative_scan(pair, 0, after, reverse=REVERSE)
    tl.store(gate + i, a)
    tl.store(state + i, b)
    c, d = tl.reduce(pair, 0, after)
    tl.store(total, c)
    tl.store(total + 1, d)
"""
    )
    x, y = (_integers((256,), np.uint32, seed) for seed in (1, 2))
    arrays = {"x": x, "y": y, "gate": np.zeros_like(x), "state": np.zeros_like(x)}
    arrays["total"] = np.zeros(2, np.uint32)
    left = run_every_way(text, arrays, num_warps=num_warps, N=256, REVERSE=is_reversed)
    expected = _composed(np.stack([x, y], axis=1), is_reversed)
    np.testing.assert_array_equal(left["gate"], expected[:, 0])
    np.testing.assert_array_equal(left["state"], expected[:, 1])
    np.testing.assert_array_equal(left["total"], _composed(np.stack([x, y], axis=1), False)[-1])


def test_tiles_of_different_dtypes_are_combined_together() -> None:
    text = """
@tl.kernel
def first_minimum(value, place, is_odd, other, other_place, other_is_odd):
    if other < value:
        value = other
        place = other_place
        is_odd = other_is_odd
    return value, place, is_odd

@tl.kernel
def k(x, low, at, odd, N: tl.constexpr):
    rows = tl.arange(0, 4)
    x = tl.load(x + rows[:, None] * N + tl.arange(0, N)[None, :])
    place = tl.broadcast_to(tl.arange(0, N)[None, :].to(tl.int16), (4, N))
    value, index, is_odd = tl.reduce((x, place, place % 2 == 1), 1, first_minimum)
    tl.store(low + rows, value)
    tl.store(at + rows, index)
    tl.store(odd + rows, is_odd)
"""
    x = _integers((4, 256), np.float64)
    arrays = {"x": x, "low": np.zeros(4), "at": np.zeros(4, np.int16), "odd": np.zeros(4, np.bool_)}
    left = run_every_way(text, arrays, N=256)
    np.testing.assert_array_equal(left["low"], x.min(1))
    np.testing.assert_array_equal(left["at"], x.argmin(1))
    np.testing.assert_array_equal(left["odd"], x.argmin(1) % 2 == 1)


def test_a_function_may_loop_and_call() -> None:
    text = """
@tl.kernel
def remainder(a, b):
    return a % b

@tl.kernel
def greatest_common_divisor(a, b):
    while b != 0:
        rest = remainder(a, b)
        a = b
        b = rest
    return a

@tl.kernel
def k(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out, tl.reduce(tl.load(x + i), 0, greatest_common_divisor))
    tl.store(out + 1 + i, tl.associative_scan(tl.load(x + i), 0, greatest_common_divisor))
"""
    x = (np.arange(1, 65) * 12).astype(np.int32)
    left = run_every_way(text, {"x": x, "out": np.zeros(65, np.int32)}, num_warps=2, N=64)
    expected = np.gcd.accumulate(x)
    np.testing.assert_array_equal(left["out"], [expected[-1], *expected])


def test_a_scan_in_a_loop_and_a_branch_shares_memory_with_others() -> None:
    text = """
@tl.kernel
def k(x, out, ROUNDS: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    carry = tl.zeros((N,), tl.int32)
    for turn in range(ROUNDS):
        x_tile = tl.load(x + turn * N + i)
        sums = tl.cumsum(x_tile, 0)
        if turn % 2 == 0:
            carry += tl.cumsum(sums, 0, reverse=True)
        carry += tl.flip(sums, 0) + tl.sum(x_tile, 0) + tl.max(sums, 0)
    tl.store(out + i, carry)
"""
    x = _integers((3, 512))
    left = run_every_way(text, {"x": x, "out": np.zeros(512, np.int32)}, ROUNDS=3, N=512)
    expected = np.zeros(512, np.int64)
    for turn, row in enumerate(x):
        sums = np.cumsum(row)
        if turn % 2 == 0:
            expected += _scanned(sums, 0, True)
        expected += sums[::-1] + row.sum() + sums.max()
    np.testing.assert_array_equal(left["out"], expected)


def test_products_are_scanned_where_the_dot_leaves_them() -> None:
    text = """
@tl.kernel
def k(a, b, out, M: tl.constexpr):
    i = tl.arange(0, M)
    places = i[:, None] * M + i[None, :]
    product = tl.dot(tl.load(a + places), tl.load(b + places))
    tl.store(out + places, tl.cumsum(product, 1) + tl.cumsum(product, 0))
"""
    a, b = (_integers((32, 32), np.float16, seed) % 4 for seed in (3, 4))
    arrays = {"a": a, "b": b, "out": np.zeros((32, 32), np.float32)}
    left = run_every_way(text, arrays, num_warps=4, M=32)
    product = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(left["out"], np.cumsum(product, 1) + np.cumsum(product, 0))


@pytest.mark.parametrize("extent", [8, 64, 1024])
def test_a_reduction_by_a_function_has_the_bits_of_one_tree(extent: int) -> None:
    text = """
@tl.kernel
def plus(a, b):
    return a + b

@tl.kernel
def k(x, out, N: tl.constexpr):
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, N)), 0, plus))
"""
    x = np.random.default_rng(5).standard_normal(extent).astype(np.float32)
    expected = x
    while expected.size > 1:
        expected = expected[0::2] + expected[1::2]
    for num_warps in (1, 4):
        arrays = {"x": x, "out": np.zeros(1, np.float32)}
        left = run_every_way(text, arrays, num_warps=num_warps, N=extent)
        assert left["out"][0] == expected[0]


def test_a_sum_does_not_contract_with_the_product_before_it() -> None:
    text = """
@tl.kernel
def k(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.cumsum(tl.load(x + i) * tl.load(y + i), 0))
"""
    x, y = (np.random.default_rng(seed).standard_normal(2).astype(np.float32) for seed in (6, 7))
    left = run_every_way(text, {"x": x, "y": y, "out": np.zeros(2, np.float32)}, num_warps=1, N=2)
    products = x * y
    np.testing.assert_array_equal(left["out"], [products[0], products[0] + products[1]])


def _barriers(text: str, arrays: dict[str, Array], **options: Any) -> int:
    schedule = schedule_module(optimize(lower_text(text, arrays, **options)))
    run = run_scheduled(schedule, [array.copy() for array in arrays.values()])
    return sum(count for name, count in run.executed.items() if name.startswith("bar"))


@pytest.mark.parametrize(
    ("num_warps", "expected"),
    [pytest.param(1, 0, id="one warp"), pytest.param(4, 1, id="four warps")],
)
def test_a_scan_has_one_barrier_and_none_within_a_warp(num_warps: int, expected: int) -> None:
    x = _integers((1, 32 * num_warps))
    arrays = {"x": x, "out": np.zeros_like(x)}
    count = _barriers(SCAN, arrays, num_warps=num_warps, M=1, N=x.size, AXIS=1, REVERSE=False)
    assert count == expected * 32 * num_warps


Function = Callable[..., Array]


@pytest.mark.parametrize(
    ("name", "function"),
    [("argmax", np.argmax), ("argmin", np.argmin)],
    ids=["argmax", "argmin"],
)
def test_the_first_index_of_many_equal_elements(name: str, function: Function) -> None:
    text = f"""
@tl.kernel
def k(x, out, N: tl.constexpr):
    rows = tl.arange(0, 16)
    tile = tl.load(x + rows[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + rows, tl.{name}(tile, 1))
    tl.store(out + 16 + tl.arange(0, N), tl.{name}(tile, 0))
    tl.store(out + 16 + N, tl.{name}(tile))
"""
    x = (_integers((16, 64)) % 5).astype(np.float32)
    left = run_every_way(text, {"x": x, "out": np.zeros(16 + 64 + 1, np.int32)}, N=64)
    expected = [*function(x, 1), *function(x, 0), function(x)]
    np.testing.assert_array_equal(left["out"], expected)


def test_a_thread_scans_what_it_holds_of_a_long_tile() -> None:
    x = _integers((1, 1024))
    arrays = {"x": x, "out": np.zeros_like(x)}
    module = lower_text(SCAN, arrays, M=1, N=1024, AXIS=1, REVERSE=False)
    schedule = schedule_module(optimize(module))
    (scan,) = (operation for operation in schedule.kernel.body.walk() if operation.name == "scan")
    type_ = scan.results[0].type
    assert isinstance(type_, TileType)
    assert type_.layout is not None
    assert type_.layout.register == (1, 2, 4)
    run = run_scheduled(schedule, [array.copy() for array in arrays.values()])
    shuffles = sum(count for name, count in run.executed.items() if name.startswith("shfl"))
    assert shuffles == 5 * 128


def test_indices_alone_are_combined_looked_up_and_sorted() -> None:
    text = """
@tl.kernel
def after(a, b, c, d):
    return a * c, b * c + d

@tl.kernel
def k(out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.reduce((i, i + 1), 0, after)
    c, d = tl.associative_scan((i, i ^ 1), 0, after, reverse=True)
    total = a + b + c + d + tl.cumsum(i, 0) + tl.gather(i, i * 3, 0) + tl.histogram(i // 3, N)
    total += tl.sort(i ^ 5) + tl.argmax(i & 6, 0) + tl.reduce(i[None, :], 0, tl.maximum)
    tl.store(out + i, total + tl.reduce(i[:, None], 1, tl.minimum))
"""
    left = run_every_way(text, {"out": np.zeros(32, np.int32)}, num_warps=2, N=32)
    i = np.arange(32)
    pairs = np.stack([i, i + 1], axis=1), np.stack([i, i ^ 1], axis=1)
    a, b = _composed(pairs[0], False)[-1]
    c, d = _composed(pairs[1], True).T
    total = a + b + c + d + np.cumsum(i) + i * 3 % 32 + np.bincount(i // 3, minlength=32)
    total += np.sort(i ^ 5) + np.argmax(i & 6) + i + i
    np.testing.assert_array_equal(left["out"], total.astype(np.int32))
