"""How a tile is reversed along an axis in the layout that it has.

Extents are powers of two, so element i of an axis of N goes to N - 1 - i, which is i xor N - 1: in
flat indices, an xor with one constant. A layout is linear, so the place that holds the wanted
element is this place xor the place of that constant. Registers are renamed, lanes exchange by one
butterfly a register, and only if warps must exchange does the tile go through shared memory: it is
written as it lies and read from offsets that differ by a constant.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilewright_compiler.capabilities import BASELINE_SHARED_BYTES
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.convert import (
    Conversion,
    RegisterMove,
    ShuffleExchange,
    ShuffleRound,
)
from tilewright_compiler.layout.linear import LANE_BITS, HardwareIndex, LinearLayout, flatten
from tilewright_compiler.layout.shared import SharedExchange, SharedGroup, plan_exchange

_CACHED = 1024


@lru_cache(_CACHED)
def plan_flip(layout: LinearLayout, axis: int, *, size_bytes: int) -> Conversion:
    """Plan reversing a tile of elements of `size_bytes` along `axis`, in place."""
    last = [extent - 1 if a == axis else 0 for a, extent in enumerate(layout.shape)]
    distance = layout.locate(flatten(last, layout.shape))
    if distance.warp:
        return _through_shared(layout, distance, size_bytes)
    registers = tuple(register ^ distance.register for register in range(layout.num_registers))
    if not distance.lane:
        return RegisterMove(registers)
    return ShuffleExchange(
        send=(),
        sender=tuple(1 << bit for bit in range(LANE_BITS)),
        rounds=tuple(ShuffleRound(register, distance.lane) for register in registers),
        receive=(),
        num_source_registers=layout.num_registers,
    )


def _through_shared(
    layout: LinearLayout, distance: HardwareIndex, size_bytes: int
) -> SharedExchange:
    plan = plan_exchange(layout, layout, size_bytes=size_bytes, most_bytes=BASELINE_SHARED_BYTES)
    offsets = {
        register: group.offset ^ index
        for group in plan.read.groups
        for index, register in enumerate(group.registers)
    }
    shift = offsets[distance.register]
    shift ^= gf2.apply(plan.read.lane, distance.lane) ^ gf2.apply(plan.read.warp, distance.warp)
    within = shift & (plan.read.vector - 1)  # the order inside a vector is the registers' matter
    groups = tuple(
        SharedGroup(
            group.offset ^ shift ^ within,
            tuple(group.registers[index ^ within] for index in range(len(group.registers))),
        )
        for group in plan.read.groups
    )
    return replace(plan, read=replace(plan.read, groups=groups))
