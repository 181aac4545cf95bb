"""Tiles in shared memory as bulk tensor copies write them and `wgmma` reads them.

A tile is cut along its contiguous axis into *panels* one swizzle line wide (128, 64 or 32 bytes);
each panel is one box of a tensor map, its rows behind each other, with bits 4 and up of the address
xor bits 7 and up (PTX ISA, "Swizzle modes"). As a linear map that is one more `SharedLayout`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout.access import axis_units
from tilewright_compiler.layout.linear import log2
from tilewright_compiler.layout.swizzle import SharedLayout

LINE_BYTES = (128, 64, 32)
# A swizzle repeats after 8 lines of 128 bytes; a tile must start where it does.
ALIGNMENT_BYTES = 1024

_CHUNK_BIT = 4  # the swizzle moves 16-byte chunks
_ROW_BIT = 7  # by the number of the 128-byte row


@dataclass(frozen=True, slots=True)
class Panels:
    """How a tile `[rows, columns]`, contiguous along `axis`, is cut: a line is one row of a panel.

    `rows` counts the lines of a panel, `count` the panels.
    """

    axis: int
    line_bytes: int
    rows: int
    count: int

    @property
    def panel_bytes(self) -> int:
        """Bytes of one panel, and so from one to the next."""
        return self.rows * self.line_bytes


def panelled(shape: Sequence[int], axis: int, *, size_bytes: int) -> SharedLayout | None:
    """Return the layout of a tile contiguous along `axis`, its widest swizzle; None if too narrow.

    Other axes are the rows of the panels, the last of them fastest.
    """
    line_bytes = _line_bytes(shape[axis] * size_bytes)
    if line_bytes is None:
        return None
    columns = axis_units(shape, axis)
    rows: list[int] = []
    for other in reversed(range(len(shape))):
        if other != axis:
            rows += axis_units(shape, other)
    line = log2(line_bytes // size_bytes)
    units = [*columns[:line], *rows, *columns[line:]]
    size_bit = log2(size_bytes)
    by_unit = {}
    for bit, unit in enumerate(units):
        address_bit = bit + size_bit
        moved = 0
        if _ROW_BIT <= address_bit < _ROW_BIT + log2(line_bytes) - _CHUNK_BIT:
            moved = 1 << (bit - (_ROW_BIT - _CHUNK_BIT))
        by_unit[unit] = 1 << bit | moved
    return SharedLayout(tuple(shape), tuple(by_unit[1 << bit] for bit in range(len(units))))


def panels_of(layout: SharedLayout, *, size_bytes: int) -> Panels | None:
    """Return how a layout is cut into panels, or None if it is not one of `panelled`."""
    for axis in reversed(range(len(layout.shape))):
        if panelled(layout.shape, axis, size_bytes=size_bytes) == layout:
            width = layout.shape[axis] * size_bytes
            line_bytes = _line_bytes(width)
            assert line_bytes is not None, "a panelled layout is wide enough"
            rows = layout.size // layout.shape[axis]
            return Panels(axis, line_bytes, rows, width // line_bytes)
    return None


def _line_bytes(width_bytes: int) -> int | None:
    return next((line for line in LINE_BYTES if width_bytes >= line), None)
