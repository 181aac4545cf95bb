"""Vectors in registers: aligned, contiguous along the axis, each element once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.layouts import layouts, shapes
from tilewright_compiler.layout.access import sectors, vector_width
from tilewright_compiler.layout.blocked import blocked
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_a_vector_is_an_aligned_run_of_elements_of_one_thread(data: st.DataObject) -> None:
    shape = data.draw(shapes(max_bits=8))
    layout = data.draw(layouts(shape, warp_bits=1))
    axis = data.draw(st.integers(0, len(shape) - 1))
    vector = vector_width(layout, axis, limit=8)
    for warp in range(layout.num_warps):
        for lane in range(NUM_LANES):
            held = {
                layout.coordinates(register=register, lane=lane, warp=warp)
                for register in range(layout.num_registers)
            }
            for place in held:
                start = place[axis] // vector * vector
                run = {(*place[:axis], start + i, *place[axis + 1 :]) for i in range(vector)}
                assert run <= held


def test_a_lane_within_the_vector_forbids_it() -> None:
    layout = LinearLayout((128,), (1, 2), (4, 8, 16, 32, 64), ())
    assert vector_width(layout, 0, limit=4) == 4
    assert vector_width(layout, 0, limit=2) == 2
    odd = LinearLayout((128,), (1, 2), (5, 8, 16, 32, 64), ())
    assert vector_width(odd, 0, limit=4) == 1


def test_sectors_of_a_row_and_of_a_column_access() -> None:
    rows = blocked((64, 128), (1, 0), vector=4, num_warps=4)
    assert sectors(rows, 1, vector=4, contiguity=128, size_bytes=4) == 16  # 512 contiguous bytes
    assert sectors(rows, 1, vector=1, contiguity=1, size_bytes=4) == 32  # one for each lane
    assert sectors(rows, 0, vector=1, contiguity=64, size_bytes=4) == 32
