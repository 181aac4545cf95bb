"""Layouts of tiles -> groups of warps that have rows of their own.

What such groups exchange through shared memory, each does by itself: its warps need not meet those
of the others.
"""

from __future__ import annotations

from tilewright_compiler.layout.access import axis_units
from tilewright_compiler.layout.boxes import row_axis
from tilewright_compiler.layout.linear import LinearLayout, log2, unflatten

_LEAST_WARPS = 4  # a warpgroup


def row_groups(layout: LinearLayout, *, least_rows: int) -> int:
    """Return into how many groups of consecutive warps a tile's rows are divided, in order.

    Each has at least a warpgroup, and `least_rows` rows. 1 if the rows are not divided.
    """
    rows = layout.shape[row_axis(layout.shape)]
    groups = min(layout.num_warps // _LEAST_WARPS, rows // least_rows)
    while groups > 1 and not _are_divided(layout, groups):
        groups //= 2
    return max(groups, 1)


def _are_divided(layout: LinearLayout, groups: int) -> bool:
    dividing = len(layout.warp) - log2(groups)
    axis = row_axis(layout.shape)
    units = axis_units(layout.shape, axis)
    if list(layout.warp[dividing:]) != list(units[len(units) - log2(groups) :]):
        return False
    rows = layout.shape[axis] // groups
    within = (*layout.register, *layout.lane, *layout.warp[:dividing])
    return all(unflatten(basis, layout.shape)[axis] < rows for basis in within)
