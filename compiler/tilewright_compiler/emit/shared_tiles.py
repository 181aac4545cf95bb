"""Tiles in shared memory: their places, and moving them to and from registers.

A tile or ring is its address. Transposing it moves bits of its layout, so nothing is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.errors import InternalCompilerError
from tilewright_compiler.emit import words
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.shared_access import (
    ThreadAddresses,
    load_matrices,
    load_registers,
    moved,
    store_fragment,
    store_matrices,
    symbol_address,
)
from tilewright_compiler.emit.words import Words
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import ScalarType, SharedType, Type
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.matrix_load import WORD_BYTES, plan_matrix_load
from tilewright_compiler.layout.shared_access import plan_shared_access


def shared_type(type_: Type) -> SharedType:
    """Return a type that the verifier has found to be one of shared memory."""
    assert isinstance(type_, SharedType), f"{type_} is not in shared memory"
    return type_


def load_tile(
    emitter: KernelEmitter, tile: SharedType, layout: LinearLayout, *, base: str
) -> dict[int, str]:
    """Read the tile at address `base`; return the element of each register that is no replica."""
    text, size_bytes = emitter.text, tile.dtype.size_bytes
    matrices = plan_matrix_load(layout, tile.layout, size_bytes=size_bytes)
    if matrices is None:
        plan = plan_shared_access(layout, tile.layout, size_bytes=size_bytes)
        addresses = ThreadAddresses.of(text, emitter.threads, base, plan, size_bytes)
        return load_registers(text, addresses, plan, ScalarType(tile.dtype))
    addresses = ThreadAddresses.of(text, emitter.threads, base, matrices, size_bytes)
    form = Words.of(tile.dtype, WORD_BYTES // size_bytes)
    loaded: dict[int, str] = {}
    for registers, word in load_matrices(text, addresses, matrices, size_bytes=size_bytes).items():
        loaded.update(zip(registers, words.unpack(text, form, (word,)), strict=True))
    return loaded


def _emit_alloc(emitter: KernelEmitter, operation: Operation) -> None:
    offset = operation.attributes.get("shared_offset")
    if offset is None:
        msg = f"{operation.result.type} has no place: the schedule must allocate it first"
        raise InternalCompilerError(msg)
    emitter.define(operation.result, [symbol_address(emitter.text, offset)])


def _emit_slot(emitter: KernelEmitter, operation: Operation) -> None:
    ring, index = operation.operands
    text, tile = emitter.text, shared_type(operation.result.type)
    size = text.i32(tile.tile_bytes)
    distance = text.value(
        f"llvm.mul {emitter.scalar(index)}, {size} overflow<nsw, nuw> : i32"
    )  # an offset into shared memory
    emitter.define(operation.result, [moved(text, emitter.scalar(ring), distance)])


def _emit_transpose(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.define(operation.result, emitter.fragment(operation.operands[0]))


def _emit_load(emitter: KernelEmitter, operation: Operation) -> None:
    (source,) = operation.operands
    layout = layout_of(operation.result.type)
    loaded = load_tile(emitter, shared_type(source.type), layout, base=emitter.scalar(source))
    by_element = {gf2.apply(layout.register, register): name for register, name in loaded.items()}
    emitter.define(
        operation.result,
        [
            by_element[gf2.apply(layout.register, register)]
            for register in range(layout.num_registers)
        ],
    )


def _emit_store(emitter: KernelEmitter, operation: Operation) -> None:
    source, target = operation.operands
    text, tile, layout = emitter.text, shared_type(target.type), layout_of(source.type)
    size_bytes, fragment = tile.dtype.size_bytes, emitter.fragment(source)
    base = emitter.scalar(target)
    matrices = None
    if emitter.form.is_hopper:
        matrices = plan_matrix_load(layout, tile.layout, size_bytes=size_bytes)
    if matrices is None:
        plan = plan_shared_access(layout, tile.layout, size_bytes=size_bytes)
        addresses = ThreadAddresses.of(text, emitter.threads, base, plan, size_bytes)
        store_fragment(text, addresses, plan, fragment, ScalarType(tile.dtype))
        return
    addresses = ThreadAddresses.of(text, emitter.threads, base, matrices, size_bytes)
    form = Words.of(tile.dtype, WORD_BYTES // size_bytes)
    packed = {
        registers: words.pack(text, form, [fragment[register] for register in registers])[0]
        for group in matrices.groups
        for registers in group.words
    }
    store_matrices(text, addresses, matrices, packed, size_bytes=size_bytes)


def _emit_barrier(emitter: KernelEmitter, operation: Operation) -> None:
    groups: int = operation.attributes.get("groups", 1)
    group = emitter.by_group(1, groups=groups)
    if group is None:
        emitter.shared.barrier()
    else:
        emitter.shared.group_barrier(group, emitter.num_threads // groups)


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        "alloc_shared": _emit_alloc,
        "shared_slot": _emit_slot,
        "shared_transpose": _emit_transpose,
        "shared_load": _emit_load,
        "shared_store": _emit_store,
        "barrier": _emit_barrier,
    }
)
