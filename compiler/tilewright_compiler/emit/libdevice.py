"""Functions of libdevice: a call for each element, which LLVM links and inlines."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.emit.types import dtype_text
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.libdevice import overload_of


def _emit_libdevice(emitter: KernelEmitter, operation: Operation) -> None:
    overload = overload_of(operation)
    assert overload is not None, "the verifier checks overloads"
    text = emitter.text
    symbol = f"__nv_{overload.symbol}"
    types = [dtype_text(dtype) for dtype in overload.operands]
    if overload.result.bits > 1:
        result = dtype_text(overload.result)
        emitter.elementwise(operation, lambda *names: text.call(symbol, names, types, result))
        return
    zero = text.i32(0)
    emitter.elementwise(
        operation,
        lambda *names: text.value(
            f'llvm.icmp "ne" {text.call(symbol, names, types, "i32")}, {zero} : i32'
        ),
    )


EMITTERS: Mapping[str, Emit] = MappingProxyType({"libdevice": _emit_libdevice})
