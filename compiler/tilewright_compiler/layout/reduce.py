"""Plans of reductions along one axis: in a thread, across lanes, across warps, in a fixed order.

1. *Thread*: the registers of one row are combined by a balanced tree over neighbours
(`combine_order`). 2. *Lanes*: butterfly exchanges over the lane bits that run along the axis; every
lane gets the result. 3. *Warps*: each warp's partial goes through shared memory (`layout.shared`),
each thread reads the partials of its rows and combines them by the same tree.

Bits that only replicate take no part, so nothing is counted twice. The order depends on the layout
alone, so equal inputs give equal bits; replicas agree bit for bit because a tree over bits does not
change when its leaves are exchanged by xor, as long as the operation commutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.capabilities import BASELINE_SHARED_BYTES
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout, unflatten
from tilewright_compiler.layout.shared import SharedExchange, plan_exchange

_CACHED = 1024


@dataclass(frozen=True, slots=True)
class WarpExchange:
    """The step across warps: `exchange` takes the partials (registers of step 2) to one register
    for each partial of each row; result register i combines `groups[i]` of them.
    """

    exchange: SharedExchange
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ReducePlan:
    """How to reduce a tile; every step as the module says.

    `groups[i]` are the source registers combined into partial i, in tree order. `lane_masks` are
    the xor distances of the butterflies, in order: `v = combine(v, shfl.bfly(v, mask))`.
    `across_warps` is None if each warp already has the result. The result is in `result` layout:
    register i is partial i.
    """

    axis: int
    groups: tuple[tuple[int, ...], ...]
    lane_masks: tuple[int, ...]
    across_warps: WarpExchange | None
    result: LinearLayout

    @property
    def scratch_bytes(self) -> int:
        """Shared memory that the step across warps needs."""
        return 0 if self.across_warps is None else self.across_warps.exchange.scratch_bytes


@lru_cache(_CACHED)
def plan_reduce(source: LinearLayout, axis: int, *, size_bytes: int) -> ReducePlan:
    """Plan reducing a tile of elements of `size_bytes` in layout `source` along `axis`.

    Raises InternalCompilerError if a basis runs along the axis and across it at once
    (`LinearLayout.is_separable`): such a tile must be converted first.
    """
    if not source.is_separable(axis):
        msg = f"cannot reduce {source} along axis {axis}: a basis mixes the axis with others"
        raise InternalCompilerError(msg)
    result = source.slice(axis)
    free = source.free

    def runs_along(basis: int) -> bool:
        return basis != 0 and unflatten(basis, source.shape)[axis] != 0

    lane_masks = tuple(
        1 << bit
        for bit, basis in enumerate(source.lane)
        if runs_along(basis) and not free.lane >> bit & 1
    )
    warp_bits = tuple(
        bit
        for bit, basis in enumerate(source.warp)
        if runs_along(basis) and not free.warp >> bit & 1
    )
    return ReducePlan(
        axis=axis,
        groups=_register_groups(source, axis),
        lane_masks=lane_masks,
        across_warps=_plan_warps(result, warp_bits, size_bytes) if warp_bits else None,
        result=result,
    )


def combine_order(count: int) -> tuple[tuple[int, int], ...]:
    """Return the steps of the tree over `count` (a power of two) values in a list.

    Each step (i, j) replaces value i by combine(value i, value j); value 0 is the result.
    Neighbours are combined first: ((0, 1), (2, 3)), then their results.
    """
    steps = []
    distance = 1
    while distance < count:
        steps += [(i, i + distance) for i in range(0, count, 2 * distance)]
        distance *= 2
    return tuple(steps)


def _register_groups(source: LinearLayout, axis: int) -> tuple[tuple[int, ...], ...]:
    """Group registers by row, replicas left out, in the order of the result's registers."""
    bits = [
        (bit, unflatten(basis, source.shape)[axis] != 0)
        for bit, basis in enumerate(source.register)
        if not source.free.register >> bit & 1
    ]
    along = [1 << bit for bit, is_along in bits if is_along]
    across = [1 << bit for bit, is_along in bits if not is_along]
    return tuple(
        tuple(gf2.apply(across, row) | gf2.apply(along, i) for i in range(1 << len(along)))
        for row in range(1 << len(across))
    )


def _plan_warps(result: LinearLayout, warp_bits: Sequence[int], size_bytes: int) -> WarpExchange:
    """Give each partial of a row a place along a new last axis and exchange that tile."""
    count = len(warp_bits)
    shape = (*result.shape, 1 << count)
    register, lane = (tuple(b << count for b in bases) for bases in (result.register, result.lane))
    written = [basis << count for basis in result.warp]
    for index, bit in enumerate(warp_bits):
        written[bit] = 1 << index
    read = [0 if bit in warp_bits else basis << count for bit, basis in enumerate(result.warp)]
    partial = tuple(1 << index for index in range(count))
    exchange = plan_exchange(
        LinearLayout(shape, register, lane, tuple(written)),
        LinearLayout(shape, (*partial, *register), lane, tuple(read)),
        size_bytes=size_bytes,
        most_bytes=BASELINE_SHARED_BYTES,
    )
    groups = tuple(
        tuple(row << count | index for index in range(1 << count))
        for row in range(result.num_registers)
    )
    return WarpExchange(exchange, groups)
