"""Tensors in global memory, read and written by blocks (`tl.make_tensor_descriptor`).

| operation | operands | meaning |
|---|---|---|
| make_descriptor | base pointer, sizes, strides but the last -> descriptor | the last stride is 1 |
| descriptor_load | descriptor, coordinates -> tile of the block's shape | outside the tensor: 0 |
| descriptor_store | descriptor, value, coordinates | elements outside are not written |
| descriptor_rmw | descriptor, value, coordinates | becomes `kind(old, value)` by relaxed atomic \
operations, as of `atomic_rmw`; elements outside are left alone |

A tile may lack leading axes of the block that have extent 1.

Sizes, strides (in elements) and coordinates are integer scalars, one for each axis of the block; a
coordinate is that of the block's first element and may be negative.
"""

from __future__ import annotations

from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.atomics import BITWISE, BLOCK_KINDS, NARROWEST_BITS
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import (
    DescriptorType,
    PointerType,
    ScalarType,
    TileType,
    Type,
    element_dtype,
)

_MANY = 1 << 30


def _verify_make(operation: Operation) -> str | None:
    base, *numbers = (value.type for value in operation.operands)
    descriptor = operation.result.type
    if not isinstance(descriptor, DescriptorType) or not isinstance(base, PointerType):
        return f"makes a descriptor of a pointer, got {base} -> {descriptor}"
    if base.dtype != descriptor.dtype:
        return f"{base} is no base of {descriptor}"
    rank = len(descriptor.block)
    if len(numbers) != 2 * rank - 1 or not all(map(_is_integer, numbers)):
        return f"takes {rank} sizes and {rank - 1} strides, integer scalars"
    return None


def _verify_load(operation: Operation) -> str | None:
    descriptor, *coordinates = (value.type for value in operation.operands)
    return _verify_access(descriptor, operation.result.type, coordinates)


def _verify_store(operation: Operation) -> str | None:
    descriptor, value, *coordinates = (value.type for value in operation.operands)
    return _verify_access(descriptor, value, coordinates)


def _verify_rmw(operation: Operation) -> str | None:
    dtype, kind = element_dtype(operation.operands[1].type), operation.attributes["kind"]
    if kind not in BLOCK_KINDS:
        return f"kind is one of {', '.join(BLOCK_KINDS)}"
    if dtype.bits < NARROWEST_BITS:
        return f"elements have at least {NARROWEST_BITS} bits, got {dtype}"
    if kind in BITWISE and dtype.is_float:
        return f"{kind} takes integers, got {dtype}"
    return _verify_store(operation)


def _verify_access(descriptor: Type, tile: Type, coordinates: list[Type]) -> str | None:
    if not isinstance(descriptor, DescriptorType) or not isinstance(tile, TileType):
        return f"moves a tile through a descriptor, got {tile} and {descriptor}"
    if not descriptor.is_block(tile.shape) or element_dtype(tile) != descriptor.dtype:
        return f"{tile} is no block of {descriptor}"
    if len(coordinates) != len(descriptor.block) or not all(map(_is_integer, coordinates)):
        return f"takes {len(descriptor.block)} coordinates, integer scalars"
    return None


def _is_integer(type_: Type) -> bool:
    return isinstance(type_, ScalarType) and type_.dtype.kind in ("int", "uint")


SPECS = (
    OperationSpec("make_descriptor", (2, _MANY), verify=_verify_make),
    OperationSpec("descriptor_load", (2, _MANY), effect=Effect.READ, verify=_verify_load),
    OperationSpec(
        "descriptor_store", (3, _MANY), effect=Effect.WRITE, results=0, verify=_verify_store
    ),
    OperationSpec(
        "descriptor_rmw", (3, _MANY), ("kind",), Effect.ATOMIC, results=0, verify=_verify_rmw
    ),
)
