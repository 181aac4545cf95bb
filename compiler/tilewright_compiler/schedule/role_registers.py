"""How the register file is divided among the roles of a kernel, and what accumulators take of it.

At entry all threads have the same part, in steps of the hardware's; then the producer's warpgroup
gives up most of its own, and the consumers share that (PTX ISA, setmaxnreg).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.types import shape_of
from tilewright_compiler.layout.linear import NUM_LANES
from tilewright_compiler.schedule.unsuited import Unsuited

PRODUCER_WARPS = 4
PRODUCER_REGISTERS = 40
_MOST_REGISTERS = 240
_REGISTER_FILE = 65536
_REGISTER_STEP = 8
_MOST_WARPS = 32  # of a CTA
_OTHER_REGISTERS = 40  # of a consumer's thread, besides accumulators


def consumer_registers(num_warps: int) -> int:
    """Return what each thread of the consumers may have."""
    groups = num_warps // PRODUCER_WARPS
    at_entry = _REGISTER_FILE // (NUM_LANES * (num_warps + PRODUCER_WARPS))
    at_entry -= at_entry % _REGISTER_STEP
    share = (at_entry * (groups + 1) - PRODUCER_REGISTERS) // groups
    return min(share - share % _REGISTER_STEP, _MOST_REGISTERS)


def check_accumulators(module: Module, dots: Mapping[Operation, int]) -> None:
    """Demand that there is room for a producer, and for the accumulators that meet in one loop.

    `dots` says how many of its size each dot needs: one it keeps, further ones only until its
    result has been used. Raises Unsuited. The kernel has neither layouts nor calls.
    """
    if module.signature.num_warps + PRODUCER_WARPS > _MOST_WARPS:
        msg = f"{module.signature.num_warps} warps leave no room for a producer"
        raise Unsuited(msg)
    threads = NUM_LANES * module.signature.num_warps
    available = consumer_registers(module.signature.num_warps)

    def needed(operation: Operation) -> tuple[int, int]:
        """Return the registers of what meets in an operation, and the most of one further."""
        if operation in dots:
            size = prod(shape_of(operation.result.type)) // threads
            return size, (dots[operation] - 1) * size
        # Loops that follow each other do not meet.
        kept, loops, more = 0, 0, 0
        for inner in (inner for region in operation.regions for inner in region.operations):
            size, further = needed(inner)
            more = max(more, further)
            if inner.regions:
                loops = max(loops, size)
            else:
                kept += size
        return kept + loops, more

    for operation in module.kernel.body.operations:
        registers = sum(needed(operation))
        if registers + _OTHER_REGISTERS > available:
            first = next(inner for inner in operation.walk() if inner in dots)
            msg = (
                f"accumulators take {registers} registers of each thread, "
                f"of {available} that it has"
            )
            raise Unsuited(msg, first)
