"""Atomic operations in the interpreter: turns, errors, and what counts as a change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.every_way import lower_text
from tilewright.errors import InterpreterError, OutOfBoundsError
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.interpret.turns import accumulated, each_turn, in_turn

Array = np.ndarray[Any, np.dtype[Any]]


def _launch(text: str, programs: int = 1, **arrays: Array) -> None:
    run(lower_text(text, arrays, B=8), grid=(programs, 1, 1), arguments=arrays)


@pytest.mark.parametrize("seed", range(5))
def test_turns_are_those_of_a_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    places, values = random.integers(0, 6, 40), random.integers(-9, 9, 40)
    memory = random.integers(-9, 9, 8)
    expected, before = memory.copy(), np.zeros(40, int)
    for lane, place in enumerate(places):
        before[lane] = expected[place]
        expected[place] = 2 * expected[place] - values[lane]
    step = each_turn(lambda found, given: 2 * found - given[0])
    history = in_turn(memory, places, (values,), step)
    assert history.before.tolist() == before.tolist()
    assert memory.tolist() == expected.tolist()


def test_an_accumulated_sum_goes_in_order() -> None:
    memory = np.array([1e8], np.float32)
    values = np.array([3, -1e8, 0.5], np.float32)
    history = in_turn(memory, np.zeros(3, int), (values,), accumulated(np.add))
    assert history.before.tolist() == [1e8, 100000000.0, 0.0]
    assert memory.tolist() == [0.5]


def test_what_stays_the_same_is_no_change() -> None:
    memory = np.array([np.nan, -0.0], np.float32)
    same = in_turn(memory, np.array([0, 1]), (memory.copy(),), each_turn(lambda _, new: new[0]))
    assert not same.is_changed
    zero = in_turn(memory, np.array([1]), (np.zeros(1, np.float32),), each_turn(lambda _, n: n[0]))
    assert zero.is_changed


def test_lanes_and_programs_take_turns_in_order() -> None:
    text = """
@tl.kernel
def k(x, out, B: tl.constexpr):
    lane = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + lane, tl.atomic_xchg(x + lane % 2, lane))
"""
    x, out = np.array([-1, -2]), np.zeros(24, np.int64)
    _launch(text, 3, x=x, out=out)
    assert out.tolist() == [-1, -2, *range(22)]
    assert x.tolist() == [22, 23]


OUTSIDE = "@tl.kernel\ndef k(x, B: tl.constexpr):\n    tl.atomic_add(x + tl.arange(0, B), 1{})\n"


def test_outside_is_an_error_unless_masked() -> None:
    with pytest.raises(OutOfBoundsError, match=r"atomic_add of i32 outside of argument 'x'"):
        _launch(OUTSIDE.format(""), x=np.zeros(7, np.int32))
    x = np.zeros(7, np.int32)
    _launch(OUTSIDE.format(", mask=tl.arange(0, B) < 7"), x=x)
    assert x.tolist() == [1] * 7


def test_a_read_only_array_is_refused() -> None:
    x = np.zeros(8, np.int32)
    x.setflags(write=False)
    with pytest.raises(InterpreterError, match="does atomic_add to argument 'x', which is read-on"):
        _launch(OUTSIDE.format(""), x=x)


def test_many_lanes_may_meet_in_one_element() -> None:
    text = """
@tl.kernel
def k(x, B: tl.constexpr):
    tl.atomic_add(x + tl.zeros((8192,), tl.int32), 1.0)
"""
    x = np.zeros(1, np.float32)
    _launch(text, 16, x=x)
    assert x[0] == 16 * 8192
