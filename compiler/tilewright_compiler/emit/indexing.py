"""Look-ups through shared memory: carries out the plans of `layout.lookup`.

An index is cut to the bits of the extent, a power of two, so that no read leaves the tile. The
counters of a histogram are added to atomically; sums of integers do not depend on the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.abi.dtypes import int32, int64
from tilewright_compiler.analysis.access_plan import register_sources
from tilewright_compiler.emit.arithmetic import convert
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.memory import both
from tilewright_compiler.emit.shared_access import (
    ThreadAddresses,
    load_element,
    load_registers,
    moved,
    store_fragment,
    symbol_address,
)
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import SHARED_POINTER, dtype_text
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import ScalarType, element_bytes, element_dtype, element_type
from tilewright_compiler.layout.linear import log2
from tilewright_compiler.layout.lookup import plan_counters, plan_gather


def _emit_gather(emitter: KernelEmitter, operation: Operation) -> None:
    source, index = operation.operands
    text, threads, size = emitter.text, emitter.threads, element_bytes(source.type)
    element = element_type(source.type)
    axis: int = operation.attributes["axis"]
    plan = plan_gather(layout_of(source.type), layout_of(index.type), axis, size_bytes=size)
    base = symbol_address(text, operation.attributes["shared_offset"])
    written = ThreadAddresses.of(text, threads, base, plan.write, size)
    store_fragment(text, written, plan.write, emitter.fragment(source), element)
    emitter.shared.barrier()
    lane, warp = (tuple(column * size for column in columns) for columns in (plan.lane, plan.warp))
    places = ThreadAddresses(text, threads, base, lane, warp)
    dtype = element_dtype(index.type)
    read: dict[tuple[str, int], str] = {}
    for name, offset in zip(emitter.fragment(index), plan.registers, strict=True):
        if (name, offset) not in read:
            along = convert(text, name, dtype, int32)
            along = text.value(f"llvm.and {along}, {text.i32(plan.extent - 1)} : i32")
            distance = text.i32(log2(plan.stride * size))
            along = text.value(f"llvm.shl {along}, {distance} overflow<nsw, nuw> : i32")
            address = moved(text, places.at(offset * size), along)
            read[name, offset] = load_element(text, address, element)
    pairs = zip(emitter.fragment(index), plan.registers, strict=True)
    emitter.define(operation.result, [read[pair] for pair in pairs])


def _emit_histogram(emitter: KernelEmitter, operation: Operation) -> None:
    source, *masks = operation.operands
    text, counter = emitter.text, ScalarType(int32)
    size = element_bytes(operation.result.type)
    layout = layout_of(operation.result.type)
    plan = plan_counters(layout, size_bytes=size)
    base = symbol_address(text, operation.attributes["shared_offset"])
    addresses = ThreadAddresses.of(text, emitter.threads, base, plan, size)
    store_fragment(text, addresses, plan, [text.i32(0)] * layout.num_registers, counter)
    emitter.shared.barrier()
    free = layout_of(source.type).free
    owner = emitter.threads.is_representative(free_lane=free.lane, free_warp=free.warp)
    conditions = emitter.fragment(masks[0]) if masks else None
    for register, name in enumerate(emitter.fragment(source)):
        if register & free.register:
            continue
        place, is_counted = _bin(text, name, operation)
        mask = None if conditions is None else conditions[register]
        predicate = both(text, both(text, owner, mask), is_counted)
        _increment(text, moved(text, base, place), predicate)
    emitter.shared.barrier()
    loaded = load_registers(text, addresses, plan, counter)
    emitter.define(operation.result, [loaded[register] for register in register_sources(layout)])


def _bin(text: FunctionText, name: str, operation: Operation) -> tuple[str, str]:
    """Return the byte offset of the counter of an element, and whether it has one."""
    dtype = element_dtype(operation.operands[0].type)
    wide = int64 if dtype.bits == 64 else int32
    value, type_ = convert(text, name, dtype, wide), dtype_text(wide)
    bins = text.constant(layout_of(operation.result.type).size, wide)
    is_counted = text.value(f'llvm.icmp "ult" {value}, {bins} : {type_}')
    number = convert(text, value, wide, int32)
    size = text.i32(element_bytes(operation.result.type))
    return text.value(f"llvm.mul {number}, {size} : i32"), is_counted


def _increment(text: FunctionText, address: str, predicate: str | None) -> None:
    # In PTX, since LLVM's atomicrmw would need a branch around it.
    guard, operand, type_, constraint = "", "", "", ""
    if predicate is not None:
        guard, operand, type_, constraint = "@$1 ", f", {predicate}", ", i1", ",b"
    instruction = f"{guard}red.relaxed.cta.shared.add.u32 [$0], 1;"
    text.line(
        f'llvm.inline_asm has_side_effects asm_dialect = att "{instruction}", '
        f'"r{constraint},~{{memory}}" {address}{operand} : ({SHARED_POINTER}{type_}) -> ()'
    )


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {"gather": _emit_gather, "histogram": _emit_histogram}
)
