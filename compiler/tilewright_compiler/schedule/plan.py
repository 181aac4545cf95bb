"""Tile IR -> scheduled tile IR: the steps of the schedule in order, and a check of the outcome."""

from __future__ import annotations

from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes.assign_layouts import assign_layouts
from tilewright_compiler.passes.legalize_dot import legalize_dot
from tilewright_compiler.schedule.allocate_shared import allocate_shared
from tilewright_compiler.schedule.verify_scheduled import verify_scheduled


def schedule_module(module: Module) -> Module:
    """Schedule an optimised kernel without calls.

    In the result every tile has a layout, each operation that goes through shared memory has its
    `shared_offset`, and the module has `shared_bytes`. Raises KernelValueError if the tiles need
    more shared memory than every GPU has.
    """
    scheduled = allocate_shared(assign_layouts(legalize_dot(module)))
    verify_scheduled(scheduled)
    return scheduled
