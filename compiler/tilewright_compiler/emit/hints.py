"""Promises cost nothing: axis analysis has read them, and the value is its operand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.ir.core import Operation


def _emit_promise(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.define(operation.result, emitter.fragment(operation.operands[0]))


def _emit_nothing(_emitter: KernelEmitter, _operation: Operation) -> None:
    """Emit nothing: what `resident` asks for stands beside the kernel's name."""


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        "multiple_of": _emit_promise,
        "max_contiguous": _emit_promise,
        "max_constancy": _emit_promise,
        "assume": _emit_nothing,
        "resident": _emit_nothing,
    }
)
