"""Collapsing keeps the order of elements; broadcasting follows NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ArgumentError
from tilewright.tensor.strides import (
    IndexSpace,
    broadcast_shape,
    broadcast_strides,
    collapse,
    pad,
)


def offsets(space: IndexSpace) -> list[tuple[int, ...]]:
    """Every index in row-major order as the element offset of each operand."""
    return [
        tuple(sum(i * s for i, s in zip(index, strides, strict=True)) for strides in space.strides)
        for index in np.ndindex(*space.sizes)
    ]


spaces = st.integers(0, 5).flatmap(
    lambda rank: st.builds(
        IndexSpace,
        st.tuples(*[st.integers(1, 3)] * rank),
        st.lists(st.tuples(*[st.integers(-4, 12)] * rank), min_size=1, max_size=3).map(tuple),
    )
)


@given(spaces)
def test_collapse_and_pad_keep_the_order_of_elements(space: IndexSpace) -> None:
    collapsed = collapse(space)
    assert offsets(collapsed) == offsets(space)
    assert offsets(pad(collapsed, 6)) == offsets(space)


@given(spaces.filter(lambda space: bool(space.sizes)))
def test_keep_last_leaves_the_last_axis_alone(space: IndexSpace) -> None:
    collapsed = collapse(space, keep_last=True)
    assert collapsed.sizes[-1] == space.sizes[-1]
    assert offsets(collapsed) == offsets(space)


def test_contiguous_arrays_become_one_axis() -> None:
    space = IndexSpace((4, 3, 5), ((15, 5, 1), (15, 5, 1)))
    assert collapse(space) == IndexSpace((60,), ((1,), (1,)))


def test_a_row_added_to_a_matrix_stays_two_axes() -> None:
    space = IndexSpace((4, 3, 5), ((15, 5, 1), (0, 0, 1)))
    assert collapse(space) == IndexSpace((12, 5), ((5, 1), (0, 1)))


def test_an_axis_of_extent_one_has_no_stride() -> None:
    assert collapse(IndexSpace((1,), ((7,),)), keep_last=True) == IndexSpace((1,), ((0,),))


@pytest.mark.parametrize(
    "shapes",
    [((3, 1), (1, 4)), ((), (2, 3)), ((5,), (2, 1, 5)), ((0, 3), (1, 3)), ((1,), (0,))],
    ids=str,
)
def test_broadcast_agrees_with_numpy(shapes: tuple[tuple[int, ...], ...]) -> None:
    target = np.broadcast_shapes(*shapes)
    assert broadcast_shape(*shapes) == target
    for shape in shapes:
        array = np.arange(max(1, int(np.prod(shape))), dtype=np.int8)[: int(np.prod(shape))]
        array = array.reshape(shape)
        expected = np.broadcast_to(array, target).strides
        found = broadcast_strides(shape, array.strides, target)
        walked = [axis for axis, extent in enumerate(target) if extent > 1]
        assert [found[axis] for axis in walked] == [expected[axis] for axis in walked]


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"\(2, 3\), \(4,\) do not broadcast"):
        broadcast_shape((2, 3), (4,))
