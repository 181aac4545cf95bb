"""Plans of look-ups: a tile lies in shared memory in row-major order, and is reached by index.

`gather` writes its source there, lets all warps meet, and reads for each element of the result the
one at its index. The offset is linear in the place of the element but along the axis, where it is
the index: the two parts share no bits, so that they add. `histogram` has its counters there: they
are set to zero, the threads add to them, and all read what they hold of the result.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout, flatten, log2, unflatten
from tilewright_compiler.layout.shared import SharedAccess
from tilewright_compiler.layout.shared_access import plan_shared_access
from tilewright_compiler.layout.swizzle import SharedLayout

_CACHED = 512


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How to gather. Offsets count elements.

    Register r of the result, in a thread whose lane and warp contribute `base`, the xor of `lane`
    and `warp` over their bits, is the element at `(registers[r] ^ base) + index * stride`, with the
    index modulo `extent`.
    """

    write: SharedAccess
    registers: tuple[int, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    extent: int
    stride: int


@lru_cache(_CACHED)
def plan_gather(
    source: LinearLayout, index: LinearLayout, axis: int, *, size_bytes: int
) -> GatherPlan:
    """Plan gathering along `axis` from a tile of elements of `size_bytes` in layout `source`."""

    def across(basis: int) -> int:
        coordinates = list(unflatten(basis, index.shape))
        coordinates[axis] = 0
        return flatten(coordinates, source.shape)

    columns = [across(basis) for basis in index.register]
    return GatherPlan(
        write=plan_shared_access(source, row_major(source.shape), size_bytes=size_bytes),
        registers=tuple(gf2.apply(columns, register) for register in range(index.num_registers)),
        lane=tuple(map(across, index.lane)),
        warp=tuple(map(across, index.warp)),
        extent=source.shape[axis],
        stride=prod(source.shape[axis + 1 :]),
    )


@lru_cache(_CACHED)
def plan_counters(layout: LinearLayout, *, size_bytes: int) -> SharedAccess:
    """Plan how threads reach the counters that they hold of a histogram in `layout`."""
    return plan_shared_access(layout, row_major(layout.shape), size_bytes=size_bytes)


def row_major(shape: tuple[int, ...]) -> SharedLayout:
    """Return the layout in which each element lies at its flat index."""
    return SharedLayout(shape, tuple(1 << bit for bit in range(log2(prod(shape)))))
