"""Tile IR for sm_90a -> the same, with sums of f32 that nobody asks for added four at once.

`red.v4.f32` takes 16 bytes that lie together (PTX ISA, red: sm_90 and up). Layouts are chosen so
that a thread holds them, where that costs less.
"""

from __future__ import annotations

from tilewright.abi.dtypes import float32
from tilewright_compiler.ir.builder import Builder, copy_operation, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import TileType, element_dtype

_AT_ONCE = 4
_REDUCING_SEM = ("relaxed", "release")


def wide_sums(module: Module) -> Module:
    """Mark the sums of a module without layouts."""

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if not _is_sum(operation):
            return None
        values = dict(zip(operation.operands, operands, strict=True))
        copy_operation(operation, values, builder).attributes["at_once"] = _AT_ONCE
        return ()

    return rewrite_module(module, rewrite)


def _is_sum(operation: Operation) -> bool:
    if operation.name != "atomic_rmw" or operation.results:
        return False
    pointer, kind = operation.operands[0].type, operation.attributes["kind"]
    if not isinstance(pointer, TileType) or element_dtype(pointer) != float32:
        return False
    return kind == "add" and operation.attributes["sem"] in _REDUCING_SEM
