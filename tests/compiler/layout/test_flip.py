"""Plans of flips, executed on simulated threads, reverse the tile in every layout."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.layouts import layouts, shapes
from helpers.simulated_threads import bank_ways, convert, distribute
from tilewright_compiler.layout.blocked import blocked
from tilewright_compiler.layout.convert import RegisterMove, ShuffleExchange
from tilewright_compiler.layout.flip import plan_flip
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.shared import SharedExchange


@st.composite
def _layouts(draw: st.DrawFn) -> LinearLayout:
    return draw(layouts(draw(shapes()), warp_bits=draw(st.integers(0, 2))))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_layouts(), st.sampled_from([1, 2, 4, 8]), st.data())
def test_the_plan_reverses_an_axis(
    layout: LinearLayout, size_bytes: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, layout.rank - 1))
    elements = np.arange(layout.size).reshape(layout.shape)
    plan = plan_flip(layout, axis, size_bytes=size_bytes)
    result = convert(distribute(elements.ravel().tolist(), layout), plan)
    assert (result == distribute(np.flip(elements, axis).ravel().tolist(), layout)).all()


def test_the_cheapest_form_is_taken() -> None:
    layout = blocked((16, 128), (1, 0), vector=4, num_warps=4)
    assert isinstance(plan_flip(layout, 1, size_bytes=4), ShuffleExchange)
    assert isinstance(plan_flip(layout, 0, size_bytes=4), SharedExchange)
    held = LinearLayout((4, 32), (32, 64), (1, 2, 4, 8, 16), ())
    assert plan_flip(held, 0, size_bytes=4) == RegisterMove((3, 2, 1, 0))


def test_an_exchange_through_shared_memory_has_no_conflicts() -> None:
    layout = blocked((1024,), (0,), vector=4, num_warps=4)
    plan = plan_flip(layout, 0, size_bytes=4)
    assert isinstance(plan, SharedExchange)
    assert plan.read.vector == plan.write.vector == 4
    for access in (plan.write, plan.read):
        for group in access.groups:
            assert bank_ways(access, group.offset, 1, 4) == 1
