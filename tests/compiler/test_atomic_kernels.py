"""Kernels whose programs meet in memory, run in every way there is without a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.every_way import lower_text, run_every_way
from helpers.mutations import find, without
from tilewright.errors import InterpreterError, ScheduleError
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]

SCATTER_ADD = """
@tl.kernel
def scatter_add(out, rows, values, last_row, last, B: tl.constexpr, W: tl.constexpr):
    place = tl.program_id(0) * B + tl.arange(0, B)  # [B]
    column = tl.arange(0, W)  # [W]
    is_row = place < tl.load(last_row)
    inside = is_row[:, None] & (column < tl.load(last))[None, :]
    row = tl.load(rows + place, mask=is_row)
    value = tl.load(values + place[:, None] * W + column[None, :], mask=inside)
    tl.atomic_add(out + row[:, None] * W + column[None, :], value, mask=inside, sem="relaxed")
"""


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("count", "width"), [(1, 1), (13, 7), (16, 8), (23, 5)])
def test_rows_are_added_to_the_rows_they_name(count: int, width: int, dtype: Any) -> None:
    random = np.random.default_rng(count)
    rows = random.integers(0, 4, 24).astype(np.int32)
    values = random.integers(-3, 4, (24, 8)).astype(dtype)
    arrays = {
        "out": np.zeros((4, 8), dtype),
        "rows": rows,
        "values": values,
        "last_row": np.array([count], np.int32),
        "last": np.array([width], np.int32),
    }
    found = run_every_way(SCATTER_ADD, arrays, programs=3, B=8, W=8)
    expected = np.zeros((4, 8), np.float64)
    np.add.at(expected, rows[:count], values[:count].astype(np.float64))
    expected[:, width:] = 0
    np.testing.assert_array_equal(found["out"].astype(np.float64), expected)


def test_every_count_of_rows_is_exact() -> None:
    random = np.random.default_rng(1)
    rows = random.integers(0, 4, 64).astype(np.int32)
    values = random.integers(-9, 10, (64, 8)).astype(np.float32)
    last_row, last = np.zeros(1, np.int32), np.full(1, 8, np.int32)
    arrays: dict[str, Array] = {
        "out": np.zeros((4, 8), np.float32),
        "rows": rows,
        "values": values,
        "last_row": last_row,
        "last": last,
    }
    module = lower_text(SCATTER_ADD, arrays, B=64, W=8)
    for count in range(65):
        out = np.zeros((4, 8), np.float32)
        last_row[0] = count
        tile.run(module, grid=(1, 1, 1), arguments={**arrays, "out": out})
        expected = np.zeros((4, 8), np.float32)
        np.add.at(expected, rows[:count], values[:count])
        np.testing.assert_array_equal(out, expected)


SPLIT_K = """
@tl.kernel
def split_k(a, b, out, partial, arrived, K: tl.constexpr, SPLITS: tl.constexpr):
    m = tl.arange(0, 16)
    n = tl.arange(0, 16)
    part = tl.program_id(0)
    k = part * K + tl.arange(0, K)  # [K]
    x = tl.load(a + m[:, None] * (K * SPLITS) + k[None, :])
    y = tl.load(b + k[:, None] * 16 + n[None, :])
    place = m[:, None] * 16 + n[None, :]  # [16, 16]
    tl.store(partial + part * 256 + place, tl.dot(x, y))
    if tl.atomic_add(arrived, 1) == SPLITS - 1:
        total = tl.zeros((16, 16), tl.float32)
        for other in range(SPLITS):
            total += tl.load(partial + other * 256 + place)
        tl.store(out + place, total)
        tl.atomic_xchg(arrived, 0, sem="relaxed")
"""


def test_the_last_part_of_a_sum_adds_all_parts_in_order() -> None:
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (16, 64)).astype(np.float16)
    b = random.integers(-4, 5, (64, 16)).astype(np.float16)
    arrays: dict[str, Array] = {
        "a": a,
        "b": b,
        "out": np.zeros((16, 16), np.float32),
        "partial": np.full((4, 16, 16), np.nan, np.float32),
        "arrived": np.zeros(1, np.int32),
    }
    found = run_every_way(SPLIT_K, arrays, programs=4, K=16, SPLITS=4)
    np.testing.assert_array_equal(found["out"], a.astype(np.float32) @ b.astype(np.float32))
    assert found["arrived"].tolist() == [0]


STREAMED = """
@tl.kernel
def streamed(a, b, out, last, STEPS: tl.constexpr, SPLITS: tl.constexpr):
    m, n, k = tl.arange(0, 32), tl.arange(0, 32), tl.arange(0, 16)
    part = tl.program_id(0)
    total = tl.zeros((32, 32), tl.float32)
    for step in range(tl.load(last)):
        at = (part * STEPS + step) * 16 + k
        x = tl.load(a + m[:, None] * (16 * STEPS * SPLITS) + at[None, :])
        y = tl.load(b + at[:, None] * 32 + n[None, :])
        total = tl.dot(x, y, total)
    place = m[:, None] * 32 + n[None, :]
    tl.atomic_add(out + place, total, sem="relaxed")
    rows = tl.atomic_max(out + 1024 + m, tl.max(total, axis=1))
    tl.atomic_max(out + 1056, tl.max(rows, axis=0), mask=part >= 0)
"""


def test_parts_of_a_product_are_added_in_place() -> None:
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (32, 128)).astype(np.float16)
    b = random.integers(-4, 5, (128, 32)).astype(np.float16)
    arrays: dict[str, Array] = {
        "a": a,
        "b": b,
        "out": np.zeros(1057, np.float32),
        "last": np.array([4], np.int32),
    }
    found = run_every_way(STREAMED, arrays, STEPS=4, SPLITS=2)
    half = a[:, :64].astype(np.float32) @ b[:64].astype(np.float32)
    np.testing.assert_array_equal(found["out"][:1024].reshape(32, 32), half)
    np.testing.assert_array_equal(found["out"][1024:1056], np.maximum(half.max(1), 0))
    arrays["out"] = arrays["out"][:1024]
    text = STREAMED[: STREAMED.index("    rows =")]
    found = run_every_way(text, arrays, programs=2, STEPS=4, SPLITS=2)
    product = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(found["out"].reshape(32, 32), product)


LOCKED = """
@tl.kernel
def locked(lock, total, B: tl.constexpr):
    lanes = tl.arange(0, B)
    while tl.atomic_cas(lock, 0, 1, sem="acquire") != 0:
        pass
    tl.store(total + lanes, tl.load(total + lanes) + lanes)
    tl.atomic_xchg(lock, 0, sem="release")
"""


def test_a_lock_keeps_programs_apart() -> None:
    arrays = {"lock": np.zeros(1, np.int32), "total": np.zeros(256, np.int32)}
    found = run_every_way(LOCKED, arrays, programs=5, B=256)
    assert found["total"].tolist() == [5 * lane for lane in range(256)]
    assert found["lock"].tolist() == [0]


WAITING = """
@tl.kernel
def waiting(flag, data, out, B: tl.constexpr):
    lanes = tl.arange(0, B)
    if tl.program_id(0) == 1:
        tl.store(data + lanes, lanes + 1)
        tl.atomic_xchg(flag, 1, sem="release")
    else:
        while tl.load(flag, volatile=True) == 0:
            pass
        tl.atomic_or(flag, 2, sem="acquire")
        tl.store(out + lanes, tl.load(data + lanes))
"""


def test_a_program_waits_for_what_another_one_writes() -> None:
    arrays = {
        "flag": np.zeros(1, np.int32),
        "data": np.zeros(64, np.int32),
        "out": np.zeros(64, np.int32),
    }
    found = run_every_way(WAITING, arrays, programs=2, B=64)
    assert found["out"].tolist() == list(range(1, 65))
    assert found["flag"].tolist() == [3]


def test_a_lock_that_nobody_opens_is_told() -> None:
    arrays = {"lock": np.ones(1, np.int32), "total": np.zeros(64, np.int32)}
    module = lower_text(LOCKED, arrays, B=64)
    with pytest.raises(InterpreterError, match="never ends: all that still runs repeats a loop"):
        tile.run(module, grid=(2, 1, 1), arguments=arrays)


ORDERED = """
@tl.kernel
def ordered(x, places, out, B: tl.constexpr):
    lanes = tl.arange(0, B)
    place = tl.load(places + lanes)
    tl.store(x + lanes, lanes)
    tl.atomic_add(x + place, 1, sem="relaxed")
    tl.atomic_add(x + lanes, 1, sem="relaxed")
    tl.atomic_max(x + lanes, 20, sem="relaxed")
    old = tl.atomic_add(x + place, 1, sem="relaxed")
    tl.store(out + lanes, tl.load(x + lanes), mask=old > 0)
"""


def _ordered() -> dict[str, Array]:
    places = np.arange(64, dtype=np.int32)[::-1].copy()
    return {"x": np.zeros(64, np.int32), "places": places, "out": np.zeros(64, np.int32)}


def test_the_order_of_the_text_holds_whoever_does_it() -> None:
    found = run_every_way(ORDERED, _ordered(), num_warps=2, B=64)
    assert found["out"].tolist() == [max(lane + 2, 20) + 1 for lane in range(64)]


def test_each_barrier_between_atomic_operations_is_needed() -> None:
    module = schedule_module(optimize(lower_text(ORDERED, _ordered(), num_warps=2, B=64)))
    barriers = find(module, "barrier")
    assert len(barriers) == 4
    for barrier in barriers:
        with pytest.raises(ScheduleError, match="no barrier between them"):
            scheduled.run(without(module, barrier), grid=(1, 1, 1), arguments=_ordered())
