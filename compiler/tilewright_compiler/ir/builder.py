"""Building and copying IR: a cursor that appends operations, and cloning under a value map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.errors import SourceLocation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import Type


class Builder:
    """Appends operations to a block. `location` is stamped on each one."""

    def __init__(self, block: Block, location: SourceLocation | None = None) -> None:
        self.block = block
        self.location = location

    def create(
        self,
        name: str,
        operands: Iterable[Value] = (),
        result_types: Iterable[Type] = (),
        regions: Iterable[Block] = (),
        **attributes: Any,
    ) -> Operation:
        """Append an operation and return it."""
        operation = Operation(
            name,
            tuple(operands),
            tuple(Value(type_) for type_ in result_types),
            attributes,
            tuple(regions),
            self.location,
        )
        self.block.operations.append(operation)
        return operation

    def value(
        self, name: str, operands: Iterable[Value], result_type: Type, **attributes: Any
    ) -> Value:
        """Append an operation with one result and return the result."""
        return self.create(name, operands, (result_type,), **attributes).result


ValueMap = dict[Value, Value]
Rewrite = Callable[[Operation, tuple[Value, ...], Builder], Sequence[Value] | None]


def clone_operation(
    operation: Operation, values: ValueMap, builder: Builder, rewrite: Rewrite | None = None
) -> Operation | None:
    """Copy `operation` with its regions to the builder's block, mapping operands through `values`.

    `rewrite(operation, mapped operands, builder)` may return replacement results instead (an
    operation it builds itself, or existing values); then nothing is copied and None is returned.
    """
    operands = tuple(values.get(value, value) for value in operation.operands)
    if rewrite is not None:
        builder.location = operation.location
        replaced = rewrite(operation, operands, builder)
        if replaced is not None:
            values.update(zip(operation.results, replaced, strict=True))
            return None
    regions = [clone_block(region, values, rewrite) for region in operation.regions]
    return copy_operation(operation, values, builder, regions)


def copy_operation(
    operation: Operation, values: ValueMap, builder: Builder, regions: Iterable[Block] = ()
) -> Operation:
    """Append a copy of `operation` that owns `regions`, which the caller has already copied."""
    copy = Operation(
        operation.name,
        tuple(values.get(value, value) for value in operation.operands),
        tuple(Value(result.type, result.name) for result in operation.results),
        dict(operation.attributes),
        tuple(regions),
        operation.location,
    )
    values.update(zip(operation.results, copy.results, strict=True))
    builder.block.operations.append(copy)
    return copy


def clone_block(block: Block, values: ValueMap, rewrite: Rewrite | None = None) -> Block:
    """Copy a block with new arguments, recording them in `values`."""
    copy = Block(tuple(Value(argument.type, argument.name) for argument in block.arguments))
    values.update(zip(block.arguments, copy.arguments, strict=True))
    builder = Builder(copy)
    for operation in block.operations:
        clone_operation(operation, values, builder, rewrite)
    return copy


def rewrite_module(module: Module, rewrite: Rewrite | None = None) -> Module:
    """Copy a module, offering each operation (outer first) to `rewrite`."""
    return Module(
        {
            name: Function(
                name,
                clone_block(function.body, {}, rewrite),
                function.result_types,
                function.is_kernel,
                function.location,
            )
            for name, function in module.functions.items()
        },
        module.signature,
        dict(module.attributes),
    )
