"""Descriptors: nothing at run time. Bulk copies name tensor maps, which are parameters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.ir.core import Operation


def _emit_make(emitter: KernelEmitter, operation: Operation) -> None:
    emitter.define(operation.result, [])


EMITTERS: Mapping[str, Emit] = MappingProxyType({"make_descriptor": _emit_make})
