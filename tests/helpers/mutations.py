"""Scheduled kernels with one thing wrong, so that a test can ask whether the checker sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import Type

Change = Callable[[Operation, tuple[Value, ...], Builder], tuple[Value, ...] | None]


def find(module: Module, name: str) -> list[Operation]:
    """Return the operations of a name, in program order."""
    return [operation for operation in module.kernel.body.walk() if operation.name == name]


def changed(module: Module, target: Operation, change: Change) -> Module:
    """Return a copy of a module in which one operation is rewritten."""

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        return change(operation, operands, builder) if operation is target else None

    return rewrite_module(module, rewrite)


def without(module: Module, target: Operation) -> Module:
    """Return a copy without an operation that has no results."""
    assert not target.results
    return changed(module, target, lambda _operation, _operands, _builder: ())


def with_attributes(module: Module, target: Operation, **attributes: Any) -> Module:
    """Return a copy in which an operation has other attributes."""
    return changed(module, target, _replacing(attributes, None))


def with_type(module: Module, target: Operation, type_: Type) -> Module:
    """Return a copy in which an operation has another result type."""
    return changed(module, target, _replacing({}, type_))


def _replacing(attributes: dict[str, Any], type_: Type | None) -> Change:
    def change(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        types = [result.type for result in operation.results] if type_ is None else [type_]
        both = {**operation.attributes, **attributes}
        return builder.create(operation.name, operands, types, **both).results

    return change
