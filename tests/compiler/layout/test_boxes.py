"""Boxes of tensor maps, against what the hardware's swizzle does to their bytes."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.ptx_hopper import swizzled
from tilewright_compiler.layout.boxes import Boxes, boxes_of
from tilewright_compiler.layout.panels import panelled
from tilewright_compiler.layout.swizzle import SharedLayout


def rows(shape: tuple[int, ...]) -> SharedLayout:
    """Return the layout that keeps the order of the elements."""
    return SharedLayout(
        shape, tuple(1 << bit for bit in range(int(np.prod(shape)).bit_length() - 1))
    )


@pytest.mark.parametrize("size_bytes", [1, 2, 4])
@pytest.mark.parametrize("shape", [(64, 128), (8, 32), (2, 16, 64), (256,), (4, 256)])
def test_boxes_hold_the_elements_where_the_layout_says(
    shape: tuple[int, ...], size_bytes: int
) -> None:
    layout = panelled(shape, len(shape) - 1, size_bytes=size_bytes)
    assert layout is not None
    boxes = boxes_of(layout, size_bytes=size_bytes)
    assert boxes is not None
    assert boxes.shape[-1] * boxes.count == shape[-1]
    assert boxes.alignment_bytes == 1024
    elements = np.arange(np.prod(shape)).reshape(shape)
    width = boxes.shape[-1]
    for number in range(boxes.count):
        box = elements[..., number * width : (number + 1) * width].reshape(-1)
        start = number * boxes.box_bytes
        places = swizzled(start + size_bytes * np.arange(box.size), boxes.swizzle_bytes)
        expected = [layout.offset(int(element)) * size_bytes for element in box]
        np.testing.assert_array_equal(places, expected)


def test_a_narrow_tile_is_one_box_without_a_swizzle() -> None:
    boxes = boxes_of(rows((64, 8)), size_bytes=2)
    assert boxes == Boxes((64, 8), 1, 0, 2)
    assert boxes is not None
    assert (boxes.box_bytes, boxes.alignment_bytes) == (1024, 128)


@pytest.mark.parametrize(
    ("layout", "size_bytes"),
    [
        (panelled((64, 64), 0, size_bytes=2), 2),  # contiguous along the wrong axis
        (panelled((512, 64), 1, size_bytes=2), 2),  # too many rows
        (rows((512, 8)), 2),
        (rows((8, 4)), 2),  # rows of 8 bytes
        (SharedLayout((8, 4), (2, 1, 4, 8, 16)), 4),  # neither a swizzle nor in order
        (rows((2, 2, 2, 2, 2, 64)), 2),  # six axes
    ],
)
def test_what_bulk_copies_cannot_write_has_no_boxes(
    layout: SharedLayout | None, size_bytes: int
) -> None:
    assert layout is not None
    assert boxes_of(layout, size_bytes=size_bytes) is None


def test_groups_have_parts_of_the_rows_of_each_panel() -> None:
    layout = panelled((128, 128), 1, size_bytes=2)
    assert layout is not None
    boxes = boxes_of(layout, size_bytes=2, groups=4)
    assert boxes == Boxes((32, 64), 2, 128, 2, groups=4)
    assert boxes is not None
    assert (boxes.box_bytes, boxes.panel_bytes) == (32 * 128, 128 * 128)


@pytest.mark.parametrize(("shape", "groups"), [((16, 64), 4), ((256,), 2), ((64, 16), 4)])
def test_no_parts_that_start_within_a_swizzle_or_without_rows(
    shape: tuple[int, ...], groups: int
) -> None:
    layout = panelled(shape, len(shape) - 1, size_bytes=2)
    assert layout is not None
    assert boxes_of(layout, size_bytes=2, groups=groups) is None


def test_groups_divide_the_first_axis_that_has_rows() -> None:
    layout = panelled((1, 1, 128, 64), 3, size_bytes=2)
    assert layout is not None
    boxes = boxes_of(layout, size_bytes=2, groups=2)
    assert boxes == Boxes((1, 1, 64, 64), 1, 128, 2, groups=2)
    assert boxes is not None
    assert boxes.row_axis == 2
