"""Warp roles: one branch that divides the warps, and where a CTA stands among those that run.

The producer is the last warpgroup, so that the threads which share the program's tiles count from 0
in every kernel. Of its 128 threads one works; the others are there because registers move between
warpgroups and not between warps. The branch is taken on a value that is seen to be equal in all
lanes, and is the only one: ptxas gives each side its registers then, and ignores `setmaxnreg`
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright_compiler.emit.control import EmitBlock
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.emit.types import GENERIC_POINTER
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.layout.convert import part_registers
from tilewright_compiler.layout.linear import NUM_LANES


def emitters(emit_block: EmitBlock) -> Mapping[str, Emit]:
    """Return the emitters of this family; `emit_block` emits the operations of a region."""

    def emit_roles(emitter: KernelEmitter, operation: Operation) -> None:
        _emit_roles(emitter, operation, emit_block)

    return MappingProxyType(
        {
            "roles": emit_roles,
            "cta_index": _emit_cta_index,
            "num_ctas": _emit_num_ctas,
            "grid_extent": _emit_grid_extent,
            "tile_part": _emit_part,
        }
    )


def _emit_roles(emitter: KernelEmitter, operation: Operation, emit_block: EmitBlock) -> None:
    text, (producer, consumer) = emitter.text, operation.regions
    warps = text.i32(emitter.num_threads // NUM_LANES)
    in_producer = text.value(f'llvm.icmp "uge" {emitter.threads.warp()}, {warps} : i32')
    text.line(f"scf.if {in_producer} {{")
    with text.nested():
        _emit_registers(emitter, "decrease", operation.attributes["producer_registers"])
        first = text.i32(emitter.num_threads)
        is_first = text.value(f'llvm.icmp "eq" {emitter.threads.thread}, {first} : i32')
        text.line(f"scf.if {is_first} {{")
        with text.nested(), emitter.producer():
            _prefetch_maps(emitter)
            emit_block(emitter, producer)
        text.line("}")
        text.line(f"nvvm.bar.warp.sync {text.i32(-1)} : i32")
    text.line("} else {")
    with text.nested(), emitter.shared.role(num_threads=emitter.num_threads):
        _emit_registers(emitter, "increase", operation.attributes["consumer_registers"])
        emit_block(emitter, consumer)
    text.line("}")


def _prefetch_maps(emitter: KernelEmitter) -> None:
    """Bring the tensor maps to where copies read them; those of stores are needed much later."""
    for name in dict.fromkeys(emitter.parameters.tensor_maps.values()):
        operand = (name, GENERIC_POINTER, "l")
        emitter.text.assembly("prefetch.tensormap [$0];", [operand])


def _emit_registers(emitter: KernelEmitter, change: str, count: int) -> None:
    if count:
        emitter.text.line(f"nvvm.setmaxregister {change} {count}")


def _emit_cta_index(emitter: KernelEmitter, operation: Operation) -> None:
    _emit_special_register(emitter, operation, "ctaid")


def _emit_num_ctas(emitter: KernelEmitter, operation: Operation) -> None:
    _emit_special_register(emitter, operation, "nctaid")


def _emit_special_register(emitter: KernelEmitter, operation: Operation, name: str) -> None:
    # A persistent kernel is launched along one axis.
    value = emitter.text.value(f"nvvm.read.ptx.sreg.{name}.x : i32")
    emitter.define(operation.result, [value])


def _emit_grid_extent(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.define(operation.result, [emitter.parameters.grid[operation.attributes["axis"]]])


def _emit_part(emitter: KernelEmitter, operation: Operation) -> None:
    (source,) = operation.operands
    fragment = emitter.fragment(source)
    registers = part_registers(
        layout_of(source.type),
        layout_of(operation.result.type),
        axis=operation.attributes["axis"],
        start=operation.attributes["start"],
    )
    emitter.define(operation.result, [fragment[register] for register in registers])
