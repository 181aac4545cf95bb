"""How a thread's accesses to global memory group into vectors: which registers go together.

A vector is a run of elements along one axis that one thread holds, that lie next to each other in
memory and whose first address is aligned to the whole. The layout says the first, axis analysis
the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout, unflatten

MAX_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """Vectors of registers, in order of address; replicas of a register are left out.

    `sources[i]` is the register that stands for register i. With `mask_is_uniform`, all elements
    of a vector have one mask.
    """

    groups: tuple[tuple[int, ...], ...]
    sources: tuple[int, ...]
    mask_is_uniform: bool

    @property
    def vector(self) -> int:
        """Elements of one access."""
        return len(self.groups[0])


SCALAR = AccessPlan(((0,),), (0,), mask_is_uniform=True)


def plan_access(
    layout: LinearLayout, pointer: AxisInfo, mask: AxisInfo | None, *, size_bytes: int
) -> AccessPlan:
    """Plan the accesses of a tile of pointers to elements of `size_bytes`."""
    sources = _sources(layout)
    candidates = [
        _vector_bits(layout, axis, _longest(pointer, axis, size_bytes))
        for axis in range(layout.rank)
    ]
    # The last axis wins ties: it is the contiguous one of most tiles.
    axis = max(range(layout.rank), key=lambda a: (len(candidates[a]), a), default=0)
    bits = candidates[axis] if candidates else ()
    steps = [1 << bit for bit in bits]
    members = [gf2.apply(steps, index) for index in range(1 << len(steps))]
    taken = sum(steps)
    groups = tuple(
        tuple(register | member for member in members)
        for register in range(layout.num_registers)
        if sources[register] == register and not register & taken
    )
    vector = len(members)
    uniform = mask is None or vector == 1 or mask.constancy[axis] >= vector
    return AccessPlan(groups, sources, uniform)


def _sources(layout: LinearLayout) -> tuple[int, ...]:
    first: dict[int, int] = {}
    return tuple(
        first.setdefault(gf2.apply(layout.register, register), register)
        for register in range(layout.num_registers)
    )


def _longest(pointer: AxisInfo, axis: int, size_bytes: int) -> int:
    aligned = pointer.divisibility[axis] // size_bytes
    return min(pointer.contiguity[axis], max(1, aligned), MAX_VECTOR_BYTES // size_bytes)


def _vector_bits(layout: LinearLayout, axis: int, longest: int) -> tuple[int, ...]:
    """Return the register bits that step through up to `longest` elements along `axis`."""
    stride = prod(layout.shape[axis + 1 :])
    bits: list[int] = []
    while 2 << len(bits) <= longest and stride << len(bits) in layout.register:
        bits.append(layout.register.index(stride << len(bits)))
    # No other basis may touch the low bits along the axis, or vectors would start in their middle.
    while bits and any(
        unflatten(basis, layout.shape)[axis] & ((1 << len(bits)) - 1)
        for basis in _others(layout, bits)
    ):
        bits.pop()
    return tuple(bits)


def _others(layout: LinearLayout, bits: list[int]) -> list[int]:
    registers = [basis for bit, basis in enumerate(layout.register) if bit not in bits]
    return [*registers, *layout.lane, *layout.warp]
