"""Atomic operations by warps: one place of each element does it, and tells the others.

Warps run in any order, so lanes of different warps that meet in one element take effect in any
order too, as on a device.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType

import numpy as np

from tilewright_compiler.analysis.access_plan import register_sources
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.atomics import update, verb_of
from tilewright_compiler.interpret.warp.fragments import from_bytes, vector_offsets
from tilewright_compiler.interpret.warp.moves import Exchange
from tilewright_compiler.interpret.warp.places import owned, threads
from tilewright_compiler.interpret.warp.state import Meeting, Warp, layout_of
from tilewright_compiler.interpret.warp.vectors import check_vectors
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.atomics import ATOMICS, KINDS, elements_at_once, mask_index
from tilewright_compiler.ir.types import TileType, element_bytes
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout
from tilewright_compiler.layout.share import plan_share
from tilewright_compiler.layout.shared import SharedExchange


def _atomic(warp: Warp, operation: Operation) -> Generator[Meeting, None, Array | None]:
    type_, index = operation.operands[0].type, mask_index(operation)
    layout = layout_of(type_) if isinstance(type_, TileType) else None
    operands = [warp.array(value) for value in operation.operands]
    counts = np.array([warp.index == 0]) if layout is None else owned(layout, warp.index)
    active = counts & operands[index] if len(operands) > index else counts
    if elements_at_once(operation) > 1:
        check_vectors(warp, operation, operands[0], operands[index] if operands[index:] else None)
    access = warp.global_access(operation, verb_of(operation))
    old = update(operation, (*operands[:index], active), warp.program.batch.memory, access)
    where = np.broadcast_to(active, operands[0].shape)
    by = threads(warp.index) if layout is not None else threads(warp.index)[0]
    touched, by = operands[0][where], np.broadcast_to(by, where.shape)[where]
    here, size = warp.access(operation, operation), access.dtype.size_bytes
    if operation.name == "atomic_load":
        warp.program.traces.load(touched, by, access=here, size_bytes=size)
    else:
        kind = _kind(operation)
        warp.program.traces.atomic(touched, by, access=here, size_bytes=size, kind=kind)
    if not operation.results:
        return None
    if layout is not None:
        old = np.broadcast_to(old, where.shape)[:, list(register_sources(layout))]
    plan = plan_share(layout, size_bytes=element_bytes(operation.result.type))
    if plan is not None:
        old = yield from _told(warp, operation, old, plan, layout)
    warp.agree(operation, old)
    return old


def _kind(operation: Operation) -> int:
    """Return a number for operations that nobody can tell the order of; 0 for all others."""
    kind = operation.attributes.get("kind", "xchg")
    return 0 if operation.results or kind == "xchg" else 1 + KINDS.index(kind)


def _told(
    warp: Warp,
    operation: Operation,
    values: Array,
    plan: SharedExchange,
    layout: LinearLayout | None,
) -> Generator[Meeting, None, Array]:
    """Let threads that count for an element write its value, and all that hold it read it."""
    start = operation.attributes.get("shared_offset")
    if start is None:
        raise warp.error(operation, f"needs {plan.scratch_bytes} bytes and has no shared_offset")
    memory, access = warp.program.shared, warp.access(operation, operation)
    by = threads(warp.index)
    lanes = np.arange(NUM_LANES)
    if layout is None:
        values = np.broadcast_to(values, (NUM_LANES, 1))
        writes = (lanes == 0) & (warp.index == 0)
    else:
        writes = (lanes & layout.free.lane == 0) & (warp.index & layout.free.warp == 0)
    offsets, registers = vector_offsets(plan.write, warp.index)
    places = start + np.broadcast_to(offsets, (NUM_LANES, len(registers))) * plan.size_bytes
    if writes.any():
        stored = values[:, registers][writes]
        memory.write(places[writes], stored, by[writes], access=access)
    yield Meeting(operation, access.turn)
    read = memory.read(places, by, plan.size_bytes, access=access)
    result = from_bytes(read, operation.result.type)
    if layout is None:
        scalar: Array = result[0]
        return scalar
    taken = np.zeros((NUM_LANES, layout.num_registers), result.dtype)
    taken[:, registers] = result
    return taken[:, list(register_sources(layout))]


EXCHANGES: Mapping[str, Exchange] = MappingProxyType(dict.fromkeys(ATOMICS, _atomic))
