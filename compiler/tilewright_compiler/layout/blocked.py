"""Coalesced layouts: neighbouring elements in a lane's vector, then in lanes, then in warps.

Along the fastest axis first, then along the others. Elements left over go to registers; where a
tile has fewer elements than the program has threads, the upper lanes and warps replicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright_compiler.layout.access import axis_units
from tilewright_compiler.layout.linear import LANE_BITS, LinearLayout, log2


def blocked(
    shape: Sequence[int],
    order: Sequence[int],
    *,
    vector: int,
    num_warps: int,
    warp_order: Sequence[int] | None = None,
) -> LinearLayout:
    """Return the coalesced layout of a tile.

    `order` lists the axes, fastest first. Each lane holds `vector` contiguous elements along the
    fastest axis (fewer if the extent is smaller); lanes take what follows in that order, so that a
    warp-wide access touches as few memory sectors as the tile allows. Warps take the rest along the
    axes of `warp_order` (the same order if None): whole rows for each warp keep a reduction within
    it. Registers take what is left.
    """
    left = {axis: list(axis_units(shape, axis)) for axis in order}

    def take(axes: Sequence[int], count: int) -> tuple[int, ...]:
        taken: list[int] = []
        for axis in axes:
            while left[axis] and len(taken) < count:
                taken.append(left[axis].pop(0))
        return tuple(taken)

    warp_bits = log2(num_warps)
    within = take(order[:1], log2(vector))
    lane = take(order, LANE_BITS)
    warp = take(order if warp_order is None else warp_order, warp_bits)
    rest = take(order, sum(map(len, left.values())))
    return LinearLayout(
        tuple(shape),
        (*within, *rest),
        lane + (0,) * (LANE_BITS - len(lane)),
        warp + (0,) * (warp_bits - len(warp)),
    )


def widest_vector(shape: Sequence[int], axis: int, *, limit: int, num_warps: int) -> int:
    """Return the vector length up to `limit` elements that keeps every lane of every warp busy.

    A longer vector does not make fewer transactions once a warp covers whole lines, but leaves
    lanes idle when the tile is small: then shorter vectors over all lanes keep more loads in
    flight.
    """
    threads = num_warps << LANE_BITS
    return max(1, min(limit, shape[axis], prod(shape) // threads))
