"""Shared memory and asynchronous copies: operations that only the schedule makes.

| operation | operands | meaning |
|---|---|---|
| alloc_shared | -> shared tile or ring | attributes shared_offset (bytes) once it has its place, \
alignment (bytes) where that matters |
| shared_slot | ring, i32 index -> shared tile | 0 <= index < slots |
| shared_transpose | shared tile -> shared tile | attribute order as of `transpose`; no data moves |
| shared_load | shared tile -> tile | |
| shared_store | tile, shared tile | |
| async_copy | pointer, shared tile, [mask i1] | starts copying; where the mask is false, zeros |
| async_commit | -> token | closes the group of the copies started since the last one |
| async_wait | token | until the token's group and all before it have arrived, see below |
| barrier | | all warps of the program meet; what they wrote before is visible after. With the \
attribute groups, each of as many equal groups of consecutive warps meets by itself |

A copy is *visible to the thread that started it* after `async_wait`, to the others after a
`barrier` behind that. `async_wait` has the attribute `pending`: how many groups after the token's
may still be under way there; it is what the hardware counts (PTX ISA, cp.async.wait_group), and
the schedule checker proves that it agrees with the token.

`shared_slot` has the attribute `position`: how many iterations of the pipelined loop the slot is
ahead of the one that the iteration consumes, modulo the ring's slots. Within an iteration, slots of
different positions are different memory; from an iteration to the next a slot's position drops by
one. `async_copy` has the attributes `cache` and `eviction` of `load`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.abi.dtypes import int1, int32
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    SharedType,
    TileType,
    TokenType,
    Type,
    element_dtype,
    element_type,
    shape_of,
)


def _verify_alloc(operation: Operation) -> str | None:
    return None if isinstance(operation.result.type, SharedType) else "gives shared memory"


def _verify_slot(operation: Operation) -> str | None:
    ring, index = (value.type for value in operation.operands)
    if not isinstance(ring, SharedType) or ring.slots is None:
        return f"takes a ring, got {ring}"
    if index != ScalarType(int32):
        return f"the index is an i32 scalar, got {index}"
    if not 0 <= operation.attributes["position"] < ring.slots:
        return f"position is 0..{ring.slots - 1}"
    good = operation.result.type == replace(ring, slots=None)
    return None if good else "the result is one tile of the ring"


def _verify_transpose(operation: Operation) -> str | None:
    source, order = operation.operands[0].type, operation.attributes["order"]
    if not _is_tile(source) or sorted(order) != list(range(len(shape_of(source)))):
        return f"takes a shared tile and an order of its axes, got {source}, {order}"
    assert isinstance(source, SharedType)
    layout = source.layout.transpose(order)
    good = operation.result.type == SharedType(layout.shape, source.dtype, layout)
    return None if good else f"the result has the layout {layout}"


def _verify_load(operation: Operation) -> str | None:
    return _verify_move(operation.operands[0].type, operation.result.type)


def _verify_store(operation: Operation) -> str | None:
    tile, shared = (value.type for value in operation.operands)
    return _verify_move(shared, tile)


def _verify_async_copy(operation: Operation) -> str | None:
    pointer, shared, *mask = (value.type for value in operation.operands)
    if not _is_tile(shared) or not isinstance(pointer, TileType):
        return f"copies from a tile of pointers to a shared tile, got {pointer} and {shared}"
    if not isinstance(pointer.element, PointerType):
        return f"first operand is a tile of pointers, got {pointer}"
    if element_dtype(pointer) != element_dtype(shared) or pointer.shape != shape_of(shared):
        return f"{shared} does not fit pointer {pointer}"
    if mask and (mask[0] != replace(pointer, element=ScalarType(int1))):
        return f"mask is i1 of the pointer's shape and layout, got {mask[0]}"
    return None


def _verify_commit(operation: Operation) -> str | None:
    return None if operation.result.type == TokenType() else "gives a token"


def _verify_wait(operation: Operation) -> str | None:
    if operation.operands[0].type != TokenType():
        return "waits for a token"
    return None if operation.attributes["pending"] >= 0 else "pending is not negative"


def _verify_move(shared: Type, tile: Type) -> str | None:
    if not _is_tile(shared) or not isinstance(tile, TileType):
        return f"moves a tile to or from a shared tile, got {tile} and {shared}"
    good = element_type(tile) == element_type(shared) and tile.shape == shape_of(shared)
    return None if good else f"{tile} does not fit {shared}"


def _is_tile(type_: Type) -> bool:
    return isinstance(type_, SharedType) and type_.slots is None


_HINTS = ("cache", "eviction")

SPECS = (
    OperationSpec(
        "alloc_shared",
        (0, 0),
        optional_attributes=("shared_offset", "alignment"),
        verify=_verify_alloc,
    ),
    OperationSpec("shared_slot", (2, 2), ("position",), verify=_verify_slot),
    OperationSpec("shared_transpose", (1, 1), ("order",), verify=_verify_transpose),
    OperationSpec("shared_load", (1, 1), effect=Effect.READ, verify=_verify_load),
    OperationSpec("shared_store", (2, 2), effect=Effect.WRITE, results=0, verify=_verify_store),
    OperationSpec("async_copy", (2, 3), _HINTS, Effect.WRITE, results=0, verify=_verify_async_copy),
    OperationSpec("async_commit", (0, 0), effect=Effect.WRITE, verify=_verify_commit),
    OperationSpec("async_wait", (1, 1), ("pending",), Effect.WRITE, results=0, verify=_verify_wait),
    OperationSpec(
        "barrier", (0, 0), effect=Effect.WRITE, results=0, optional_attributes=("groups",)
    ),
)
