"""Tiles in shared memory as boxes of a tensor map: what one bulk tensor copy moves.

A box is a panel (`layout.panels`), or a whole tile that lies row by row. The hardware takes up to
256 elements along each axis (CUDA driver API, `cuTensorMapEncodeTiled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout.panels import ALIGNMENT_BYTES, panels_of
from tilewright_compiler.layout.swizzle import SharedLayout

MAX_EXTENT = 256
MAX_RANK = 5
SwizzleBytes = Literal[0, 32, 64, 128]

_UNIT_BYTES = 16  # rows of a box, and its place in shared memory, are multiples of it
_PLAIN_ALIGNMENT_BYTES = 128


@dataclass(frozen=True, slots=True)
class Boxes:
    """How a tile is cut: `count` panels along the last axis, each of `groups` boxes of `shape`.

    The boxes of a panel lie behind each other along `row_axis`, and the panels in memory.
    """

    shape: tuple[int, ...]
    count: int
    swizzle_bytes: SwizzleBytes
    size_bytes: int
    groups: int = 1

    @property
    def row_axis(self) -> int:
        """The axis whose parts are groups."""
        return row_axis(self.shape)

    @property
    def box_bytes(self) -> int:
        """Bytes of one box, and so from one to the next in a panel."""
        return prod(self.shape) * self.size_bytes

    @property
    def panel_bytes(self) -> int:
        """Bytes of one panel, and so from one to the next."""
        return self.groups * self.box_bytes

    @property
    def alignment_bytes(self) -> int:
        """What the address of the tile must be a multiple of."""
        return ALIGNMENT_BYTES if self.swizzle_bytes else _PLAIN_ALIGNMENT_BYTES


def boxes_of(layout: SharedLayout, *, size_bytes: int, groups: int = 1) -> Boxes | None:
    """Return the boxes that bulk copies write as `layout`; None if there are none.

    With `groups`, each panel is cut into as many parts of its rows.
    """
    panels = panels_of(layout, size_bytes=size_bytes)
    if panels is not None:
        if panels.axis != len(layout.shape) - 1:
            return None
        line = panels.line_bytes // size_bytes
        boxes = Boxes(
            (*layout.shape[:-1], line), panels.count, _swizzle(panels.line_bytes), size_bytes
        )
    elif layout.offsets == tuple(1 << bit for bit in range(len(layout.offsets))):
        boxes = Boxes(layout.shape, 1, 0, size_bytes)
    else:
        return None
    fits = max(boxes.shape) <= MAX_EXTENT and 1 <= len(boxes.shape) <= MAX_RANK
    if not fits or boxes.shape[-1] * size_bytes % _UNIT_BYTES:
        return None
    return boxes if groups == 1 else _parted(boxes, groups)


def row_axis(shape: Sequence[int]) -> int:
    """Return the slowest axis of a tile along which there is more than one row."""
    return next((axis for axis, extent in enumerate(shape[:-1]) if extent > 1), 0)


def _parted(boxes: Boxes, groups: int) -> Boxes | None:
    axis, shape = row_axis(boxes.shape), list(boxes.shape)
    if len(shape) == 1 or shape[axis] % groups:
        return None
    shape[axis] //= groups
    parts = replace(boxes, shape=tuple(shape), groups=groups)
    # With one row each, the axis could no longer be told from the shape.
    if shape[axis] == 1 or parts.box_bytes % boxes.alignment_bytes:
        return None
    return parts


def _swizzle(line_bytes: int) -> SwizzleBytes:
    match line_bytes:
        case 128:
            return 128
        case 64:
            return 64
        case _:
            return 32
