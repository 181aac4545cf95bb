"""Merges equal operations: the first one visible serves the later ones.

An operation is visible in the rest of its block and in the regions there. Pure operations merge
whenever name, operands, attributes and types agree; loads only if no write can lie between, which a
version of memory in their key decides: each write makes a new one, and so does entering or leaving
a loop that writes, or that may wait for another program to write.
"""

from __future__ import annotations

from tilewright_compiler.ir.builder import Builder, ValueMap, copy_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.effects import is_pure, is_read, may_wait, may_write
from tilewright_compiler.ir.printer import format_attribute

# NaN of either operand stays a NaN, and IEEE 754-2019 orders the zeros: both orders give one value.
_COMMUTATIVE = ("add", "mul", "and", "or", "xor", "min", "max")

_Key = tuple[object, ...]


def cse(module: Module) -> Module:
    """Return the module without repeated operations."""
    functions = {name: _Merger().function(function) for name, function in module.functions.items()}
    return Module(functions, module.signature, dict(module.attributes))


class _Merger:
    """Copies one function. `_numbers` orders its values by definition."""

    def __init__(self) -> None:
        self._values: ValueMap = {}
        self._numbers: dict[Value, int] = {}
        self._memory = 0
        self._versions = 0

    def function(self, function: Function) -> Function:
        body = self._block(function.body, {})
        return Function(
            function.name, body, function.result_types, function.is_kernel, function.location
        )

    def _block(self, block: Block, visible: dict[_Key, tuple[Value, ...]]) -> Block:
        copy = Block(tuple(Value(argument.type, argument.name) for argument in block.arguments))
        self._values.update(zip(block.arguments, copy.arguments, strict=True))
        self._number(copy.arguments)
        builder, available = Builder(copy), dict(visible)
        for operation in block.operations:
            self._operation(operation, builder, available)
        return copy

    def _operation(
        self, operation: Operation, builder: Builder, available: dict[_Key, tuple[Value, ...]]
    ) -> None:
        if operation.regions:
            self._with_regions(operation, builder, available)
            return
        key = self._key(operation)
        if key is not None and key in available:
            self._values.update(zip(operation.results, available[key], strict=True))
            return
        copy = copy_operation(operation, self._values, builder)
        self._number(copy.results)
        if key is not None:
            available[key] = copy.results
        if may_write(operation):
            self._new_memory()

    def _with_regions(
        self, operation: Operation, builder: Builder, available: dict[_Key, tuple[Value, ...]]
    ) -> None:
        writes = may_write(operation) or may_wait(operation)
        entry = self._memory
        regions = []
        for region in operation.regions:
            if writes and operation.name != "if":
                self._new_memory()  # the iteration before may have written
            else:
                self._memory = entry
            regions.append(self._block(region, available))
        self._number(copy_operation(operation, self._values, builder, regions).results)
        self._memory = entry
        if writes:
            self._new_memory()

    def _key(self, operation: Operation) -> _Key | None:
        if not (is_pure(operation) or is_read(operation)):
            return None
        operands = [self._numbers[self._values[value]] for value in operation.operands]
        if operation.name in _COMMUTATIVE:
            operands.sort()
        attributes = sorted((n, format_attribute(v)) for n, v in operation.attributes.items())
        types = tuple(result.type for result in operation.results)
        memory = self._memory if is_read(operation) else None
        return operation.name, tuple(operands), tuple(attributes), types, memory

    def _number(self, values: tuple[Value, ...]) -> None:
        for value in values:
            self._numbers[value] = len(self._numbers)

    def _new_memory(self) -> None:
        self._versions += 1
        self._memory = self._versions
