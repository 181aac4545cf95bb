"""How a thread's accesses to global memory group into vectors: which registers go together.

A vector is a run of elements along one axis that one thread holds, that lie next to each other in
memory and whose first address is aligned to the whole. The layout says the first, axis analysis
the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.access_cost import longest_vector
from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.ops.atomics import elements_at_once, mask_index
from tilewright_compiler.ir.types import TileType, element_dtype
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.access import axis_units, vector_width
from tilewright_compiler.layout.linear import LinearLayout, log2


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """Vectors of registers, in order of address; replicas of a register are left out.

    `axis` is the one that vectors lie along; `sources[i]` is the register that stands for register
    i. With `mask_is_uniform`, all elements of a vector have one mask.
    """

    groups: tuple[tuple[int, ...], ...]
    axis: int
    sources: tuple[int, ...]
    mask_is_uniform: bool

    @property
    def vector(self) -> int:
        """Elements of one access."""
        return len(self.groups[0])


SCALAR = AccessPlan(((0,),), 0, (0,), mask_is_uniform=True)


def plan_access(
    layout: LinearLayout, pointer: AxisInfo, mask: AxisInfo | None, *, size_bytes: int
) -> AccessPlan:
    """Plan the accesses of a tile of pointers to elements of `size_bytes`."""
    widths = [
        vector_width(layout, axis, limit=longest_vector(pointer, axis, size_bytes))
        for axis in range(layout.rank)
    ]
    # The last axis wins ties: it is the contiguous one of most tiles.
    axis = max(range(layout.rank), key=lambda a: (widths[a], a), default=None)
    if axis is None:
        return SCALAR
    vector = widths[axis]
    return AccessPlan(
        groups=_groups(layout, axis, vector),
        axis=axis,
        sources=register_sources(layout),
        mask_is_uniform=mask is None or vector == 1 or mask.constancy[axis] >= vector,
    )


def plan_atomic(operation: Operation, axis_info: Mapping[Value, AxisInfo]) -> AccessPlan | None:
    """Plan an atomic operation of a tile in pairs; None if it goes element by element."""
    pointer, index = operation.operands[0], mask_index(operation)
    if elements_at_once(operation) == 1 or not isinstance(pointer.type, TileType):
        return None
    assert pointer.type.layout is not None, "only tiles with layouts are planned"
    mask = axis_info[operation.operands[index]] if len(operation.operands) > index else None
    size_bytes = element_dtype(pointer.type).size_bytes
    plan = plan_access(pointer.type.layout, axis_info[pointer], mask, size_bytes=size_bytes)
    return plan if plan.vector > 1 and plan.mask_is_uniform else None


def _groups(layout: LinearLayout, axis: int, vector: int) -> tuple[tuple[int, ...], ...]:
    """Return the registers of each vector, in order of address; replicas are left out."""
    units = axis_units(layout.shape, axis)[: log2(vector)]
    steps = [1 << layout.register.index(unit) for unit in units]
    skipped = sum(steps) | layout.free.register
    return tuple(
        tuple(first | gf2.apply(steps, index) for index in range(vector))
        for first in range(layout.num_registers)
        if not first & skipped
    )


def register_sources(layout: LinearLayout) -> tuple[int, ...]:
    """Return the register that stands for each one: that of the same element with no free bits."""
    free = layout.free.register
    held = {
        gf2.apply(layout.register, register): register
        for register in range(layout.num_registers)
        if not register & free
    }
    return tuple(
        held[gf2.apply(layout.register, register)] for register in range(layout.num_registers)
    )
