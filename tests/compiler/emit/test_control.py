"""Structured control flow, executed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.emitted import run_scheduled
from helpers.every_way import run_every_way
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.schedule.plan import schedule_module

_HEAD = """signature (out:*i32, n:{type}) general num_warps=2 num_stages=3

kernel @k(%out: ptr<i32>, %n: {type}) {{
  %zero = constant {{value = 0}} : {type}
  %one = constant {{value = 1}} : {type}
  %range = arange {{start = 0, end = 128}} : tile<128xi32>
  %outs = splat %out : tile<128xptr<i32>>
  %p = addptr %outs, %range : tile<128xptr<i32>>
"""
_TAIL = """  store %p, %result {cache = "", eviction = ""}
  return
}
"""


def _run(body: str, n: int, *, type_: str = "i64") -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    module = schedule_module(parse_module(_HEAD.format(type=type_) + body + _TAIL))
    out = np.zeros(128, np.int32)
    run_scheduled(module, [out, n])
    return out


_FOR = """  %result = for %zero, %n, %one, %range : tile<128xi32> (%i: i64, %acc: tile<128xi32>) {
    %k = cast %i : i32
    %ks = splat %k : tile<128xi32>
    %next = add %acc, %ks : tile<128xi32>
    yield %next
  }
"""


@pytest.mark.parametrize("n", [0, 1, 5, -3])
def test_for_carries_a_tile(n: int) -> None:
    expected = np.arange(128) + sum(range(n))
    np.testing.assert_array_equal(_run(_FOR, n), expected)


def test_unsigned_for_goes_past_the_signed_limit() -> None:
    body = """  %low = constant {value = 2147483646} : u32
  %result = for %low, %n, %one, %range : tile<128xi32> (%i: u32, %acc: tile<128xi32>) {
    %k = constant {value = 1} : i32
    %ks = splat %k : tile<128xi32>
    %next = add %acc, %ks : tile<128xi32>
    yield %next
  }
"""
    np.testing.assert_array_equal(_run(body, 2**31 + 1, type_="u32"), np.arange(128) + 3)


def test_while_runs_until_its_condition_fails() -> None:
    body = """  %left, %result = while %n, %range : i64, tile<128xi32> \
(%k: i64, %t: tile<128xi32>) {
    %more = cmp %k, %zero {predicate = "gt"} : i1
    condition %more, %k, %t
  } do (%k2: i64, %t2: tile<128xi32>) {
    %less = sub %k2, %one : i64
    %double = add %t2, %t2 : tile<128xi32>
    yield %less, %double
  }
"""
    np.testing.assert_array_equal(_run(body, 3), np.arange(128) * 8)
    np.testing.assert_array_equal(_run(body, 0), np.arange(128))


@pytest.mark.parametrize("n", [-1, 1])
def test_if_gives_the_taken_branch(n: int) -> None:
    body = """  %c = cmp %n, %zero {predicate = "gt"} : i1
  %result = if %c : tile<128xi32> {
    yield %range
  } else {
    %minus = neg %range : tile<128xi32>
    yield %minus
  }
"""
    np.testing.assert_array_equal(_run(body, n), np.arange(128) * n)


NARROW = """
@tl.kernel
def count(out, lower, upper, step):
    low, high, by = tl.load(lower), tl.load(upper), tl.load(step)
    n = 0
    for i in range(low, high, by):
        tl.store(out + 1 + n, i)
        n += 1
    tl.store(out, n)
"""


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
@pytest.mark.parametrize("step", [1, 60, "half"])
def test_a_range_may_end_less_than_a_step_below_the_limit(dtype: Any, step: int | str) -> None:
    most = int(np.iinfo(dtype).max)
    by = most // 2 + 1 if isinstance(step, str) else step
    lower = max(most - 3 * by // 2, int(np.iinfo(dtype).min))
    bounds = {"lower": lower, "upper": most, "step": by}
    arrays = {name: np.array([value], dtype) for name, value in bounds.items()}
    out: np.ndarray[Any, np.dtype[Any]] = np.zeros(8, np.int64)
    found = run_every_way(NARROW, {"out": out, **arrays}, num_warps=1)["out"]
    steps = range(lower, most, by)
    np.testing.assert_array_equal(found[: len(steps) + 1], [len(steps), *steps])
    assert not found[len(steps) + 1 :].any()
