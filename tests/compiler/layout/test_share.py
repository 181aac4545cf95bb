"""Plans to share what one thread knows, executed on simulated threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.layouts import layouts, shapes
from helpers.simulated_threads import flat_indices
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout
from tilewright_compiler.layout.share import plan_share


@st.composite
def _layouts(draw: st.DrawFn) -> LinearLayout:
    return draw(layouts(draw(shapes()), warp_bits=draw(st.integers(0, 2))))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_layouts())
def test_one_thread_writes_each_element_and_all_read_it(layout: LinearLayout) -> None:
    plan, free = plan_share(layout, size_bytes=4), layout.free
    if plan is None:
        assert free.lane == free.warp == 0
        return
    memory = np.full(plan.scratch_bytes // 4, -1)
    held = flat_indices(layout)
    for warp in range(layout.num_warps):
        for lane in range(NUM_LANES):
            base = gf2.apply(plan.write.lane, lane) ^ gf2.apply(plan.write.warp, warp)
            for group in plan.write.groups:
                if not lane & free.lane and not warp & free.warp:
                    assert memory[base ^ group.offset] == -1
                    memory[base ^ group.offset] = held[warp, lane, group.registers[0]]
    assert sorted(memory.tolist()) == list(range(layout.size))
    for warp in range(layout.num_warps):
        for lane in range(NUM_LANES):
            base = gf2.apply(plan.read.lane, lane) ^ gf2.apply(plan.read.warp, warp)
            for group in plan.read.groups:
                assert memory[base ^ group.offset] == held[warp, lane, group.registers[0]]


@pytest.mark.parametrize("size_bytes", [2, 8])
def test_a_scalar_has_one_place(size_bytes: int) -> None:
    plan = plan_share(None, size_bytes=size_bytes)
    assert plan is not None
    assert plan.scratch_bytes == size_bytes
    assert [group.offset for group in plan.read.groups] == [0]
