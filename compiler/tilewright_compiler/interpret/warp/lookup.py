"""Look-ups through shared memory, for one warp: executes the plans of `layout.lookup`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType

import numpy as np

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.fragments import from_bytes, vector_offsets
from tilewright_compiler.interpret.warp.moves import Exchange, scratch_start
from tilewright_compiler.interpret.warp.places import elements, images, owned, threads
from tilewright_compiler.interpret.warp.state import Meeting, Warp, layout_of
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_bytes
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import NUM_LANES
from tilewright_compiler.layout.lookup import plan_counters, plan_gather
from tilewright_compiler.layout.shared import SharedAccess


def _gather(warp: Warp, operation: Operation) -> Generator[Meeting, None, Array]:
    source, index = operation.operands
    size, axis = element_bytes(source.type), operation.attributes["axis"]
    plan = plan_gather(layout_of(source.type), layout_of(index.type), axis, size_bytes=size)
    if layout_of(operation.result.type) != layout_of(index.type):
        raise warp.error(operation, "the index and the result have one layout")
    start = scratch_start(warp, operation, layout_of(source.type).size * size)
    _write(warp, operation, plan.write, warp.array(source), start=start)
    yield Meeting(operation, warp.turns[operation])
    base = images(plan.lane) ^ gf2.apply(plan.warp, warp.index)
    along = warp.array(index).astype(np.int64) & (plan.extent - 1)
    places = (base[:, None] ^ np.array(plan.registers)) + along * plan.stride
    access = warp.access(operation, operation)
    by = threads(warp.index)
    read = warp.program.shared.read(start + places * size, by, size, access=access)
    result = from_bytes(read, source.type)
    warp.agree(operation, result)
    return result


def _histogram(warp: Warp, operation: Operation) -> Generator[Meeting, None, Array]:
    source, *masks = operation.operands
    layout, size = layout_of(operation.result.type), element_bytes(operation.result.type)
    plan = plan_counters(layout, size_bytes=size)
    start = scratch_start(warp, operation, layout.size * size)
    zeros = np.zeros((NUM_LANES, layout.num_registers), np.int32)
    _write(warp, operation, plan, zeros, start=start)
    yield Meeting(operation, warp.turns[operation])
    values = warp.array(source)
    is_counted = owned(layout_of(source.type), warp.index) & (values >= 0) & (values < layout.size)
    for mask in masks:
        is_counted &= warp.array(mask)
    places = np.broadcast_to(values, is_counted.shape)[is_counted].astype(np.int64)
    access, shared = warp.access(operation, operation), warp.program.shared
    by = np.broadcast_to(threads(warp.index), is_counted.shape)[is_counted]
    ones = np.ones(places.shape, np.int32)
    shared.add(start + places * size, ones, by, access=access)
    yield Meeting(operation, warp.turns[operation])
    offsets = elements(layout, warp.index)
    read = shared.read(start + offsets * size, threads(warp.index), size, access=access)
    result = from_bytes(read, operation.result.type)
    warp.agree(operation, result)
    return result


def _write(
    warp: Warp, operation: Operation, plan: SharedAccess, values: Array, *, start: int
) -> None:
    places, registers = vector_offsets(plan, warp.index)
    warp.program.shared.write(
        start + places * values.dtype.itemsize,
        values[:, registers],
        threads(warp.index),
        access=warp.access(operation, operation),
    )


EXCHANGES: Mapping[str, Exchange] = MappingProxyType({"gather": _gather, "histogram": _histogram})
