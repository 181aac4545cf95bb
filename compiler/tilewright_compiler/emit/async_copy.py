"""Asynchronous copies from global to shared memory: `cp.async`, a vector of a thread at a time.

A copy takes 4, 8 or 16 bytes; those of 16 go past L1, which nothing reads again. A false mask is a
source size of 0, which fills with zeros and reads nothing, so there is no branch. LLVM knows the
copies as writes of their destination, and commits and waits as touching all memory: reads stay
behind the wait that they need.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.access_plan import plan_access
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.shared_access import ThreadAddresses
from tilewright_compiler.emit.shared_tiles import shared_type
from tilewright_compiler.emit.types import POINTER, SHARED_POINTER
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.layout.access import axis_units
from tilewright_compiler.layout.linear import log2
from tilewright_compiler.layout.shared import SharedAccess, shared_access
from tilewright_compiler.layout.shared_access import vector_directions
from tilewright_compiler.layout.swizzle import CHUNK_BYTES

COPY_BYTES = (4, 8, CHUNK_BYTES)


def _emit_copy(emitter: KernelEmitter, operation: Operation) -> None:
    pointer, target, *mask = operation.operands
    text, tile = emitter.text, shared_type(target.type)
    size_bytes = tile.dtype.size_bytes
    plan = _plan(emitter, operation)
    copy_bytes = plan.vector * size_bytes
    addresses = ThreadAddresses.of(text, emitter.threads, emitter.scalar(target), plan, size_bytes)
    sources = emitter.fragment(pointer)
    masks = emitter.fragment(mask[0]) if mask else None
    whole = copy_bytes == CHUNK_BYTES and operation.attributes["cache"] != "ca"
    cache = "cg" if whole else "ca"
    for group in plan.groups:
        first = group.registers[0]
        address = addresses.at(group.offset * size_bytes)
        copy = f"nvvm.cp.async.shared.global {address}, {sources[first]}, {copy_bytes}"
        if masks is None:
            text.line(f"{copy}, cache = {cache} : {SHARED_POINTER}, {POINTER}")
            continue
        present = text.value(
            f"llvm.select {masks[first]}, {text.i32(copy_bytes)}, {text.i32(0)} : i1, i32"
        )
        text.line(f"{copy}, cache = {cache}, {present} : {SHARED_POINTER}, {POINTER}, i32")


def _plan(emitter: KernelEmitter, operation: Operation) -> SharedAccess:
    """Return the accesses of shared memory, whose vectors are also vectors of global memory."""
    pointer, target, *mask = operation.operands
    tile, layout = shared_type(target.type), layout_of(pointer.type)
    size_bytes = tile.dtype.size_bytes
    access = plan_access(
        layout,
        emitter.axis_info[pointer],
        emitter.axis_info[mask[0]] if mask else None,
        size_bytes=size_bytes,
    )
    units = axis_units(layout.shape, access.axis)[: log2(access.vector)]
    directions = vector_directions(layout, tile.layout)
    length = 0
    while length < min(len(units), len(directions)) and units[length] == directions[length]:
        length += 1
    if size_bytes << length not in COPY_BYTES or not access.mask_is_uniform:
        msg = (
            f"asynchronous copy of {size_bytes << length} bytes, with "
            f"{'one mask' if access.mask_is_uniform else 'several masks'}, from {pointer.type} to "
            f"{tile}: the hardware copies {COPY_BYTES} bytes under one mask"
        )
        raise InternalCompilerError(msg)
    return shared_access(
        layout,
        directions[:length],
        tile.layout.offsets,
        skipped_registers=layout.free.register,
    )


def _emit_commit(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.text.line("nvvm.cp.async.commit.group")
    emitter.define(operation.result, [])


def _emit_wait(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.text.line(f"nvvm.cp.async.wait.group {operation.attributes['pending']}")


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {"async_copy": _emit_copy, "async_commit": _emit_commit, "async_wait": _emit_wait}
)
