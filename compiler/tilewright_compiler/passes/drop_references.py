"""Takes the references off PTX of the kernel's author: only the interpreter has a use for them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.ops.inline_asm import NAMES


def drop_references(module: Module) -> Module:
    """Return the module in which inline PTX has its arguments as its only operands."""
    return rewrite_module(module, _without_references)


def _without_references(
    operation: Operation, operands: tuple[Value, ...], builder: Builder
) -> Sequence[Value] | None:
    if operation.name not in NAMES:
        return None
    count: int = operation.attributes["arguments"]
    types = [result.type for result in operation.results]
    new = builder.create(operation.name, operands[:count], types, **operation.attributes)
    for result, old in zip(new.results, operation.results, strict=True):
        result.name = old.name
    return new.results
