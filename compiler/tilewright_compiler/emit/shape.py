"""Where tiles come from and how their shape changes: no data moves, registers are renamed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.errors import InternalCompilerError
from tilewright_compiler.emit.indices import add_or_xor
from tilewright_compiler.emit.kernel import Emit, KernelEmitter, layout_of
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_dtype
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.convert import broadcast_sources, register_sources
from tilewright_compiler.layout.linear import LinearLayout

_AXES = "xyz"


def _emit_program_id(emitter: KernelEmitter, operation: Operation) -> None:
    _emit_special_register(emitter, operation, "ctaid")


def _emit_num_programs(emitter: KernelEmitter, operation: Operation) -> None:
    _emit_special_register(emitter, operation, "nctaid")


def _emit_special_register(emitter: KernelEmitter, operation: Operation, name: str) -> None:
    axis = _AXES[operation.attributes["axis"]]
    text = emitter.text
    narrow = text.value(f"nvvm.read.ptx.sreg.{name}.{axis} : i32")
    emitter.define(operation.result, [text.value(f"llvm.zext {narrow} : i32 to i64")])


def _emit_constant(emitter: KernelEmitter, operation: Operation) -> None:
    dtype = element_dtype(operation.result.type)
    emitter.define(operation.result, [emitter.text.constant(operation.attributes["value"], dtype)])


def _emit_arange(emitter: KernelEmitter, operation: Operation) -> None:
    layout, text = layout_of(operation.result.type), emitter.text
    start: int = operation.attributes["start"]
    thread = emitter.threads.linear(lane=layout.lane, warp=layout.warp)
    varying = 0
    for basis in (*layout.lane, *layout.warp):
        varying |= basis
    names = []
    for register in range(layout.num_registers):
        constant = gf2.apply(layout.register, register)
        if thread is None:
            names.append(text.i32(start + constant))
            continue
        name = thread
        if constant & varying:
            name, constant = add_or_xor(text, name, text.i32(constant), disjoint=False), 0
        if start + constant:
            # The element index and its place in an i32 tile cannot overflow.
            name = text.value(f"llvm.add {name}, {text.i32(start + constant)} overflow<nsw> : i32")
        names.append(name)
    emitter.define(operation.result, names)


def _emit_splat(emitter: KernelEmitter, operation: Operation) -> None:
    name = emitter.scalar(operation.operands[0])
    emitter.define(operation.result, [name] * layout_of(operation.result.type).num_registers)


def _emit_expand_dims(emitter: KernelEmitter, operation: Operation) -> None:
    source = layout_of(operation.operands[0].type)
    _rename(emitter, operation, source.expand_dims(operation.attributes["axis"]))


def _emit_reshape(emitter: KernelEmitter, operation: Operation) -> None:
    source = layout_of(operation.operands[0].type)
    _rename(emitter, operation, source.reshape(layout_of(operation.result.type).shape))


def _emit_transpose(emitter: KernelEmitter, operation: Operation) -> None:
    source = layout_of(operation.operands[0].type)
    _rename(emitter, operation, source.transpose(operation.attributes["order"]))


def _rename(emitter: KernelEmitter, operation: Operation, moved: LinearLayout) -> None:
    target = layout_of(operation.result.type)
    _take(emitter, operation, register_sources(moved, target))


def _emit_broadcast(emitter: KernelEmitter, operation: Operation) -> None:
    source, target = layout_of(operation.operands[0].type), layout_of(operation.result.type)
    _take(emitter, operation, broadcast_sources(source, target))


def _take(emitter: KernelEmitter, operation: Operation, sources: tuple[int, ...] | None) -> None:
    if sources is None:
        (operand,) = operation.operands
        msg = (
            f"{operation.name} of {operand.type} to {operation.result.type} would move data "
            "between threads: the schedule must convert the layout first"
        )
        raise InternalCompilerError(msg)
    fragment = emitter.fragment(operation.operands[0])
    emitter.define(operation.result, [fragment[register] for register in sources])


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        "program_id": _emit_program_id,
        "num_programs": _emit_num_programs,
        "constant": _emit_constant,
        "arange": _emit_arange,
        "splat": _emit_splat,
        "expand_dims": _emit_expand_dims,
        "reshape": _emit_reshape,
        "transpose": _emit_transpose,
        "broadcast": _emit_broadcast,
    }
)
