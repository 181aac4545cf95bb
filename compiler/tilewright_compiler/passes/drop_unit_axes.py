"""Moves blocks without the leading axes of extent 1 that a reshape takes off or puts on anyway.

A kernel that walks a batch through descriptors loads `[1, 1, M, K]` and multiplies `[M, K]`. What
is left is the tile that the program computes with, so schedules see through it to the dot.
"""

from __future__ import annotations

from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import DescriptorType, shape_of


def drop_unit_axes(module: Module) -> Module:
    """Return the module with blocks in the shape in which they are used."""
    return rewrite_module(module, _Rewrite(module))


class _Rewrite:
    def __init__(self, module: Module) -> None:
        self._reshaped: dict[Value, Value] = {}  # of a block, what is stored without the axes
        self._loads: dict[Value, Value] = {}  # loaded block -> the one reshape of it
        users: dict[Value, list[Operation]] = {}
        loads = []
        for function in module.functions.values():
            for operation in function.body.walk():
                for value in operation.operands:
                    users.setdefault(value, []).append(operation)
                if operation.name == "descriptor_load":
                    loads.append(operation)
        for load in loads:
            using = users.get(load.result, [])
            if len(using) == 1 and using[0].name == "reshape":
                (reshape,) = using
                if _is_block(load.operands[0], reshape.result):
                    self._loads[load.result] = reshape.result

    def __call__(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        match operation.name:
            case "descriptor_load" if operation.result in self._loads:
                target = self._loads[operation.result]
                loaded = builder.value(operation.name, operands, target.type)
                loaded.name = target.name or operation.result.name
                return (loaded,)
            case "reshape" if operation.operands[0] in self._loads:
                return operands
            case "reshape":
                self._reshaped[operation.result] = operands[0]
            case "descriptor_store" | "descriptor_rmw":
                descriptor, _, *places = operands
                short = self._reshaped.get(operation.operands[1])
                if short is not None and _is_block(descriptor, short):
                    builder.create(
                        operation.name, (descriptor, short, *places), **operation.attributes
                    )
                    return ()
        return None


def _is_block(descriptor: Value, tile: Value) -> bool:
    type_ = descriptor.type
    assert isinstance(type_, DescriptorType), "the verifier checks types"
    return type_.is_block(shape_of(tile.type))
