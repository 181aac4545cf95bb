"""Ordered reductions and scans, executed on simulated threads with a function that shows the order:
concatenation of words.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.layouts import layouts, shapes
from helpers.simulated_threads import distribute, in_order
from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout.blocked import blocked
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.ordered import (
    Combine,
    Exchange,
    Shuffle,
    is_ordered,
    plan_ordered_reduction,
    plan_scan,
)

Words = tuple[int, ...]


def _concatenated(left: object, right: object) -> object:
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    return left + right


@st.composite
def _ordered(draw: st.DrawFn) -> tuple[LinearLayout, int]:
    shape = draw(shapes(max_bits=8))
    layout = draw(layouts(shape, warp_bits=draw(st.integers(0, 2)), mixed=False))
    axis = draw(st.integers(0, len(shape) - 1))
    assume(is_ordered(layout, axis))
    return layout, axis


def _words(shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    words = np.empty(int(np.prod(shape)), dtype=object)
    words[:] = [(index,) for index in range(words.size)]
    return words.reshape(shape)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(_ordered())
def test_a_reduction_keeps_the_order(case: tuple[LinearLayout, int]) -> None:
    layout, axis = case
    plan = plan_ordered_reduction(layout, axis, sizes=(4,))
    result = in_order(distribute(list(_words(layout.shape).ravel()), layout), plan, _concatenated)
    rows = np.moveaxis(_words(layout.shape), axis, -1).reshape(-1, layout.shape[axis])
    expected = [tuple(word for (word,) in row) for row in rows]
    assert (result == distribute(expected, plan.layout)).all()


@settings(max_examples=120, deadline=None, derandomize=True)
@given(_ordered(), st.booleans())
def test_a_scan_keeps_the_order(case: tuple[LinearLayout, int], is_reversed: bool) -> None:
    layout, axis = case
    plan = plan_scan(layout, axis, sizes=(4,), is_reversed=is_reversed)
    words = _words(layout.shape)
    result = in_order(distribute(list(words.ravel()), layout), plan, _concatenated)
    expected = words.copy()
    lines = np.moveaxis(words, axis, -1).reshape(-1, layout.shape[axis])
    targets = np.moveaxis(expected, axis, -1)
    for row, place in zip(lines, np.ndindex(targets.shape[:-1]), strict=True):
        order = range(row.size)[::-1] if is_reversed else range(row.size)
        seen: Words = ()
        for index in order:
            seen += row[index]
            targets[place][index] = seen
    assert (result == distribute(list(expected.ravel()), layout)).all()


def test_registers_that_repeat_others_cost_nothing() -> None:
    once = LinearLayout((64,), (1,), (2, 4, 8, 16, 32), ())
    twice = LinearLayout((64,), (1, 1), (2, 4, 8, 16, 32), ())
    assert is_ordered(twice, 0)
    plans = [plan_scan(layout, 0, sizes=(4,), is_reversed=False) for layout in (once, twice)]
    assert len(plans[0].steps) == len(plans[1].steps)


def test_what_follows_in_registers_needs_no_shuffle() -> None:
    layout = blocked((128,), (0,), vector=4, num_warps=1)
    plan = plan_scan(layout, 0, sizes=(4,), is_reversed=False)
    assert sum(isinstance(step, Shuffle) for step in plan.steps) == 5
    # A tree of four (3 totals, 4 prefixes of which 2 are totals), then 2 a lane bit but the first,
    # and the carry before each of four prefixes.
    assert sum(isinstance(step, Combine) for step in plan.steps) <= 3 + 4 + 2 * 5 + 4
    assert plan.scratch_bytes == 0


def test_warps_meet_once_and_each_operand_has_its_place() -> None:
    layout = blocked((1024,), (0,), vector=1, num_warps=4)
    plan = plan_scan(layout, 0, sizes=(1, 8), is_reversed=False)
    (exchange,) = (step for step in plan.steps if isinstance(step, Exchange))
    assert plan.exchange is exchange
    # Each of the 8 registers is in a run of its own that all 4 warps take part in.
    assert [p.scratch_bytes for p in exchange.plans] == [32, 256]
    assert plan.places == (0, 32, 288)


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(LinearLayout((64,), (3, 1), (2, 4, 8, 16, 32), ()), id="mixed"),
        pytest.param(LinearLayout((32,), (1,), (1, 2, 4, 8, 16), ()), id="held twice"),
        pytest.param(LinearLayout((128,), (2,), (4, 8, 16, 32, 0), (1, 64)), id="warps apart"),
    ],
)
def test_other_layouts_are_not_ordered(layout: LinearLayout) -> None:
    assert not is_ordered(layout, 0)
    with pytest.raises(InternalCompilerError, match="not ordered along axis 0"):
        plan_scan(layout, 0, sizes=(4,), is_reversed=False)
