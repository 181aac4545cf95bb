"""What a load or store of a tile costs in a layout, and the layouts that suit it best.

The cost counts the instructions of one warp and the 32-byte sectors that they touch, since warps
run side by side. Vectors are chosen by the pointer alone; masks do not narrow them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.ops.atomics import ATOMICS, elements_at_once
from tilewright_compiler.ir.types import element_dtype, shape_of
from tilewright_compiler.layout.access import sectors, vector_width
from tilewright_compiler.layout.blocked import blocked, widest_vector
from tilewright_compiler.layout.linear import LinearLayout

_MAX_VECTOR_BYTES = 16

# In half issue slots of one warp; a slot is the unit of `layout.shared` costs. An access carries
# 64-bit addresses and predicates; a sector takes two cycles of what one multiprocessor gets of
# device memory, but half a cycle where another warp has brought it into the L1 cache.
_INSTRUCTION_COST = 8
_SECTOR_COST = 4
_CACHED_SECTOR_COST = 1


@dataclass(frozen=True, slots=True)
class Access:
    """An access of a tile: what its pointer is known to do along each axis.

    `limits` is the longest vector in elements, from contiguity, alignment and 16 bytes.
    """

    shape: tuple[int, ...]
    size_bytes: int
    contiguity: tuple[int, ...]
    limits: tuple[int, ...]
    is_load: bool

    @classmethod
    def of(cls, operation: Operation, axis_info: Mapping[Value, AxisInfo]) -> Access:
        """Describe a load, a store or an atomic operation."""
        pointer = operation.operands[0]
        info = axis_info[pointer]
        size_bytes = element_dtype(pointer.type).size_bytes
        shape = shape_of(pointer.type)
        limits = tuple(longest_vector(info, axis, size_bytes) for axis in range(len(shape)))
        if operation.name in ATOMICS:
            limits = tuple(min(limit, elements_at_once(operation)) for limit in limits)
        return cls(
            shape,
            size_bytes,
            tuple(info.contiguity),
            limits,
            operation.name == "load",
        )

    @property
    def bytes(self) -> int:
        """Bytes of the whole tile in memory."""
        size = self.size_bytes
        for extent in self.shape:
            size *= extent
        return size

    def cost(self, layout: LinearLayout) -> int:
        """Return the issue slots that one warp needs."""
        owned = layout.num_registers >> layout.free.register.bit_count()
        warps = 1 << layout.free.warp.bit_count() if self.is_load else 1  # that read the same
        sector = _SECTOR_COST + _CACHED_SECTOR_COST * (warps - 1)
        costs = []
        for axis in range(len(self.shape)):
            vector = vector_width(layout, axis, limit=self.limits[axis])
            touched = sectors(
                layout,
                axis,
                vector=vector,
                contiguity=self.contiguity[axis],
                size_bytes=self.size_bytes,
            )
            costs.append(owned // vector * (_INSTRUCTION_COST + touched * sector // warps))
        return min(costs) // 2

    def preferred_layouts(self, *, num_warps: int) -> tuple[LinearLayout, ...]:
        """Return coalesced layouts, equally good for this access: they differ in where warps go.

        The fastest axis is the one with the longest runs in memory; the last where nothing is
        known.
        """
        axes = range(len(self.shape))
        fastest = max(axes, key=lambda axis: (self.limits[axis], self.contiguity[axis], axis))
        order = (fastest, *(axis for axis in reversed(axes) if axis != fastest))
        vector = widest_vector(self.shape, fastest, limit=self.limits[fastest], num_warps=num_warps)
        return coalesced_layouts(self.shape, order, vector=vector, num_warps=num_warps)


def longest_vector(pointer: AxisInfo, axis: int, size_bytes: int) -> int:
    """Return the most elements along `axis` that one access may take: contiguous and aligned."""
    aligned = pointer.divisibility[axis] // size_bytes
    return max(1, min(pointer.contiguity[axis], aligned, _MAX_VECTOR_BYTES // size_bytes))


def coalesced_layouts(
    shape: tuple[int, ...], order: tuple[int, ...], *, vector: int, num_warps: int
) -> tuple[LinearLayout, ...]:
    """Return the blocked layouts with warps along the fastest and along the slowest axis first."""
    along, across = (
        blocked(shape, order, vector=vector, num_warps=num_warps, warp_order=warp_order)
        for warp_order in (order, order[::-1])
    )
    return (along,) if along == across else (along, across)
