"""The algebra of layouts: text form, inverse, replicas, and layouts of derived tiles."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.layouts import layouts, shapes
from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout.convert import part_registers
from tilewright_compiler.layout.linear import HardwareIndex, LinearLayout, flatten, unflatten

ROWS = LinearLayout((16, 64), (1, 2), (4, 8, 16, 32, 64), (128, 256, 512))


@st.composite
def any_layout(draw: st.DrawFn) -> LinearLayout:
    return draw(layouts(draw(shapes(max_bits=8)), warp_bits=draw(st.integers(0, 2))))


def test_text_form() -> None:
    assert str(ROWS) == "#layout<16x64; r=1,2; l=4,8,16,32,64; w=128,256,512>"
    scalar = LinearLayout((), (), (0,) * 5, (0,))
    assert str(scalar) == "#layout<; r=; l=0,0,0,0,0; w=0>"
    assert LinearLayout.parse(str(scalar)) == scalar


@settings(max_examples=50, deadline=None, derandomize=True)
@given(any_layout())
def test_parsing_the_text_gives_the_layout_back(layout: LinearLayout) -> None:
    assert LinearLayout.parse(str(layout)) == layout


def test_text_that_is_no_layout_is_refused() -> None:
    with pytest.raises(InternalCompilerError, match="not a layout"):
        LinearLayout.parse("#layout<4; r=1>")


@pytest.mark.parametrize(
    ("shape", "register", "lane", "complaint"),
    [
        ((3,), (), (1, 0, 0, 0, 0), "powers of two"),
        ((4,), (), (1, 2), "a warp has 5"),
        ((4,), (4,), (1, 2, 0, 0, 0), "must lie in"),
    ],
    ids=["extent", "lanes", "basis"],
)
def test_malformed_layouts_are_refused(
    shape: tuple[int, ...], register: tuple[int, ...], lane: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(InternalCompilerError, match=complaint):
        LinearLayout(shape, register, lane, ())


def test_indices_are_the_xor_of_their_bits() -> None:
    assert ROWS.flat_index(register=3, lane=5, warp=1) == 1 ^ 2 ^ 4 ^ 16 ^ 128
    assert ROWS.coordinates(register=3, lane=16, warp=1) == (3, 3)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(any_layout())
def test_each_element_has_one_owner_without_free_bits(layout: LinearLayout) -> None:
    free = layout.free
    owners = Counter(
        flat
        for place, flat in layout.places()
        if not (place.register & free.register or place.lane & free.lane or place.warp & free.warp)
    )
    assert owners == Counter(range(layout.size))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(any_layout())
def test_locate_inverts_the_map(layout: LinearLayout) -> None:
    for flat in range(layout.size):
        place = layout.locate(flat)
        held = layout.flat_index(register=place.register, lane=place.lane, warp=place.warp)
        assert held == flat


def test_locate_of_an_element_that_nobody_holds_is_refused() -> None:
    layout = LinearLayout((64,), (), (1, 2, 4, 8, 16), (0,))
    assert not layout.is_surjective
    with pytest.raises(InternalCompilerError, match="held nowhere"):
        layout.locate(32)


def test_replicas_make_a_layout_not_injective() -> None:
    assert ROWS.is_injective
    assert ROWS.is_surjective
    row = ROWS.slice(1)
    assert not row.is_injective
    assert row.free == HardwareIndex(register=0, lane=0b01111, warp=0)


def test_slices_keep_the_bits_across_the_axis() -> None:
    assert ROWS.slice(1) == LinearLayout((16,), (), (0, 0, 0, 0, 1), (2, 4, 8))
    assert ROWS.slice(0) == LinearLayout((64,), (1, 2), (4, 8, 16, 32, 0), (0, 0, 0))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_a_slice_holds_the_coordinates_without_the_axis(data: st.DataObject) -> None:
    layout = data.draw(any_layout())
    axis = data.draw(st.integers(0, layout.rank - 1))
    sliced = layout.slice(axis)
    for place, flat in sliced.places():
        if place.register:
            continue
        whole = layout.coordinates(lane=place.lane, warp=place.warp)
        assert unflatten(flat, sliced.shape) == whole[:axis] + whole[axis + 1 :]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_a_transposed_layout_permutes_the_coordinates(data: st.DataObject) -> None:
    layout = data.draw(any_layout())
    order = data.draw(st.permutations(range(layout.rank)))
    moved = layout.transpose(order)
    for place, flat in layout.places():
        coordinates = unflatten(flat, layout.shape)
        there = moved.coordinates(register=place.register, lane=place.lane, warp=place.warp)
        assert there == tuple(coordinates[axis] for axis in order)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_a_broadcast_layout_projects_back_to_the_operand(data: st.DataObject) -> None:
    shape = data.draw(shapes(max_bits=8))
    small = tuple(data.draw(st.sampled_from([1, extent])) for extent in shape)
    layout = data.draw(layouts(small, warp_bits=2, register_replicas=False))
    wide = layout.broadcast(shape)
    assert wide.is_surjective
    for place, flat in wide.places():
        if place.register:
            continue
        coordinates = unflatten(flat, shape)
        kept = [c if extent > 1 else 0 for c, extent in zip(coordinates, small, strict=True)]
        assert flatten(kept, small) == layout.flat_index(lane=place.lane, warp=place.warp)
    assert wide.project(small).lane == layout.lane
    assert set(wide.project(small).register) == set(layout.register)


def test_reshaping_keeps_flat_indices() -> None:
    assert ROWS.reshape((4, 4, 64)).bases == ROWS.bases
    assert ROWS.expand_dims(1).shape == (16, 1, 64)
    with pytest.raises(InternalCompilerError, match="sizes differ"):
        ROWS.reshape((16, 32))


def test_projection_to_a_shape_that_does_not_broadcast_is_refused() -> None:
    with pytest.raises(InternalCompilerError, match="does not broadcast"):
        ROWS.project((2, 64))


def test_separable_along_an_axis() -> None:
    assert ROWS.is_separable(1)
    assert not LinearLayout((32, 2), (), (3, 4, 8, 16, 32), (1,)).is_separable(1)


@pytest.mark.parametrize("start", [0, 8, 24])
def test_a_part_is_a_choice_of_registers(start: int) -> None:
    layout = LinearLayout((4, 32), (1, 8, 16), (2, 4, 32, 64, 0), (0,))
    part = layout.part(1, 8)
    assert part == LinearLayout((4, 8), (1,), (2, 4, 8, 16, 0), (0,))
    assert part is not None
    registers = part_registers(layout, part, axis=1, start=start)
    for place, flat in part.places():
        row, column = unflatten(flat, part.shape)
        whole = layout.coordinates(
            register=registers[place.register], lane=place.lane, warp=place.warp
        )
        assert whole == (row, start + column)


@pytest.mark.parametrize(("axis", "extent"), [(1, 4), (0, 2)])
def test_no_part_where_threads_hold_some_blocks_only(axis: int, extent: int) -> None:
    assert LinearLayout((4, 32), (1, 8, 16), (2, 4, 32, 64, 0), ()).part(axis, extent) is None
