"""Vector accesses to global memory: which registers of a thread lie next to each other along an
axis.

A vector must start at a multiple of its length, in every thread: only register bits may move within
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout, flatten, log2


def vector_width(layout: LinearLayout, axis: int, *, limit: int) -> int:
    """Return the elements, at most `limit`, that each thread holds contiguously along `axis`."""
    width = 1
    for unit in axis_units(layout.shape, axis):
        moving = [basis for basis in layout.bases if basis & unit]
        if 2 * width > limit or unit not in layout.register or len(moving) > 1:
            break
        width *= 2
    return width


def sectors(
    layout: LinearLayout, axis: int, *, vector: int, contiguity: int, size_bytes: int
) -> int:
    """Return the 32-byte sectors that one warp-wide access touches, as far as the map tells.

    Runs of `contiguity` elements along `axis` are next to each other in memory; whatever else
    differs in an index is taken to be far away. Lanes that only replicate touch nothing new.
    """
    run = vector
    units = axis_units(layout.shape, axis)
    distinct = gf2.rank(layout.lane)
    along = 0
    for unit in units[log2(vector) :]:
        if 2 * run > contiguity or unit not in layout.lane:
            break
        run *= 2
        along += 1
    runs = 1 << (distinct - along)
    return runs * -(-run * size_bytes // 32)


def axis_units(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the flat index of 1, 2, 4, ... along an axis."""
    return tuple(
        flatten([1 << bit if a == axis else 0 for a in range(len(shape))], shape)
        for bit in range(log2(shape[axis]))
    )
