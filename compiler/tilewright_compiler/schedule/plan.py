"""Tile IR -> scheduled tile IR: the steps of the schedule in order, and a check of the outcome."""

from __future__ import annotations

from tilewright.errors import KernelValueError
from tilewright_compiler.capabilities import BASELINE_SHARED_BYTES
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes.assign_layouts import assign_layouts
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.passes.legalize_dot import legalize_dot
from tilewright_compiler.passes.lower_descriptors import lower_descriptors
from tilewright_compiler.schedule.allocate_shared import allocate_shared
from tilewright_compiler.schedule.insert_barriers import insert_barriers
from tilewright_compiler.schedule.multistage import most_stages, multistage
from tilewright_compiler.schedule.pipelined_loads import must_run_ahead
from tilewright_compiler.schedule.place_operands import place_operands
from tilewright_compiler.schedule.verify_scheduled import verify_scheduled


def schedule_module(module: Module, *, shared_limit: int = BASELINE_SHARED_BYTES) -> Module:
    """Schedule an optimised kernel without calls.

    In the result every tile has a layout, loads of loops run ahead, each operation that goes
    through shared memory has its `shared_offset`, barriers stand where threads depend on each
    other, and the module has `shared_bytes`. Where the stages asked for do not fit `shared_limit`
    bytes, it has `num_stages`: how many did. Raises KernelValueError if not even one fits.
    """
    laid_out = assign_layouts(legalize_dot(lower_descriptors(module)))
    scheduled = insert_barriers(_fit(laid_out, shared_limit))
    verify_scheduled(scheduled)
    return scheduled


def _fit(module: Module, limit_bytes: int) -> Module:
    """Use shared memory as the loops ask, with as many stages as there is room for."""
    asked = most_stages(module)
    # A copy that must run ahead is refused where it cannot.
    is_bound = asked > 1 and any(map(must_run_ahead, module.kernel.body.walk()))
    least = 2 if is_bound else 1
    for stages in range(asked, least - 1, -1):
        # Last of all, operands pass through one common place instead of lying side by side.
        for stores in (True, False) if stages == 1 else (True,):
            staged = place_operands(multistage(module, max_stages=stages), stores=stores)
            try:
                result = allocate_shared(dce(staged), limit_bytes=limit_bytes)
            except KernelValueError:
                if stages == least and (is_bound or not stores):
                    raise
                continue
            if stages < asked:
                result.attributes["num_stages"] = stages
            return result
    msg = "the last attempt returns or raises"
    raise AssertionError(msg)
