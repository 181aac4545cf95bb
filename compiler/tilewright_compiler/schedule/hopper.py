"""Tile IR -> scheduled tile IR for Hopper, where products read blocks of tensor descriptors: a
persistent kernel in which one warpgroup copies and the others multiply.

Everything that does not fit leaves the kernel to `plan.schedule_module`; `why_not` says what.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.errors import KernelValueError
from tilewright_compiler.capabilities import KIB
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes.assign_layouts import assign_layouts
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.passes.legalize_dot import legalize_dot
from tilewright_compiler.passes.raise_accesses import raise_accesses, why_not_raised
from tilewright_compiler.passes.unwrap_indices import unwrap_indices
from tilewright_compiler.schedule.advance_waits import advance_waits
from tilewright_compiler.schedule.allocate_shared import allocate_shared
from tilewright_compiler.schedule.bulk_loads import bulk_loads
from tilewright_compiler.schedule.bulk_stores import bulk_stores
from tilewright_compiler.schedule.delay_scalars import delay_scalars
from tilewright_compiler.schedule.insert_barriers import insert_barriers
from tilewright_compiler.schedule.multistage import most_stages
from tilewright_compiler.schedule.persistent import persistent
from tilewright_compiler.schedule.pipelined_loads import must_run_ahead
from tilewright_compiler.schedule.place_operands import place_operands
from tilewright_compiler.schedule.rotate_dots import rotate_dots
from tilewright_compiler.schedule.share_rings import share_rings
from tilewright_compiler.schedule.unsuited import Unsuited
from tilewright_compiler.schedule.verify_scheduled import verify_scheduled
from tilewright_compiler.schedule.warp_specialize import warp_specialize
from tilewright_compiler.schedule.wide_sums import wide_sums

SHARED_BYTES = 227 * KIB
_PROGRAM_SLOTS = (2, 1)  # of what a program reads all along, the better first


def schedule_hopper(module: Module, *, shared_limit: int = SHARED_BYTES) -> Module | None:
    """Schedule an optimised kernel without calls for sm_90a; None if it does not fit the form.

    The result has the attributes `shared_bytes`, `producer_warps`, and `num_stages` where fewer fit
    `shared_limit` bytes than were asked for.
    """
    for form in _forms(module):
        try:
            return _scheduled(form, shared_limit)
        except Unsuited:
            continue
    return None


def why_not(module: Module, *, shared_limit: int = SHARED_BYTES) -> str | None:
    """Return why `schedule_hopper` gives None; None if it schedules the kernel."""
    reason: str | None = None
    for form in _forms(module):
        try:
            _scheduled(form, shared_limit)
        except Unsuited as unsuited:
            # What the plainest form lacks says the most.
            reason = str(unsuited)
        else:
            return None
    return reason


def _forms(module: Module) -> Iterator[Module]:
    """Yield a kernel with blocks for what its pointers move, stores included, then without those.

    Where no load of pointers is a block there is one form: the kernel as it is.
    """
    unwrapped = unwrap_indices(module)
    with_stores = raise_accesses(unwrapped, stores=True)
    if with_stores is unwrapped:
        yield module
        return
    yield with_stores
    yield raise_accesses(unwrapped, stores=False)


def _scheduled(module: Module, shared_limit: int) -> Module:
    operations = list(module.kernel.body.walk())
    if any(must_run_ahead(operation) for operation in operations):
        msg = "tl.async_copy is done by the threads that compute"
        raise Unsuited(msg)
    if not any(operation.name == "descriptor_load" for operation in operations):
        msg = "no product reads blocks of a tensor descriptor"
        left = why_not_raised(module)
        if left is not None:
            msg, load = f"{msg}, and this load gives no block: {left[0]}", left[1]
            raise Unsuited(msg, load)
        raise Unsuited(msg)
    placed = bulk_stores(assign_layouts(legalize_dot(bulk_loads(wide_sums(module)))))
    placed = persistent(rotate_dots(share_rings(placed)))
    scheduled = insert_barriers(delay_scalars(_fit(placed, shared_limit)))
    verify_scheduled(scheduled)
    return scheduled


def _fit(module: Module, limit_bytes: int) -> Module:
    """Give warps their roles, with as many stages as there is room for, but no fewer than two."""
    asked = most_stages(module)
    reason = ""
    for stages, slots in product(range(asked, min(asked, 2) - 1, -1), _PROGRAM_SLOTS):
        specialized = warp_specialize(module, max_stages=stages, program_slots=slots)
        try:
            placed = advance_waits(dce(place_operands(specialized)))
            result = allocate_shared(placed, limit_bytes=limit_bytes)
        except KernelValueError as error:
            reason = str(error)
            continue
        if stages < asked:
            result.attributes["num_stages"] = stages
        return result
    raise Unsuited(reason)
