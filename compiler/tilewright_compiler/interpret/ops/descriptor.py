"""Tensor descriptors: rows of base, sizes and strides, turned into addresses at each access."""

from __future__ import annotations

import numpy as np

from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.atomics import modify
from tilewright_compiler.interpret.ops.form import Compute, Operands, failure
from tilewright_compiler.interpret.ops.memory import access_of
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import DescriptorType, element_dtype, shape_of


def _make(_operation: Operation, operands: Operands, _batch: Batch) -> Array:
    numbers = (operand.astype(np.int64) for operand in operands)
    result: Array = np.stack(np.broadcast_arrays(*numbers), axis=-1)
    return result


def _load(operation: Operation, operands: Operands, batch: Batch) -> Array:
    descriptor, *offsets = operands
    pointer, mask = _addresses(operation, operation.result, descriptor, offsets)
    access = access_of(operation, batch, verb="load")
    return batch.memory.load(pointer, mask, None, access=access)


def _store(operation: Operation, operands: Operands, batch: Batch) -> None:
    descriptor, value, *offsets = operands
    pointer, mask = _addresses(operation, operation.operands[1], descriptor, offsets)
    access = access_of(operation, batch, verb="store")
    batch.memory.store(pointer, value, mask, access=access)


def _rmw(operation: Operation, operands: Operands, batch: Batch) -> None:
    descriptor, value, *offsets = operands
    tile, kind = operation.operands[1], operation.attributes["kind"]
    verb = f"atomic_{kind}"
    for offset in offsets:
        if (offset < 0).any():
            what = f"does {verb} on a block at offset {offset.min()}, which is negative"
            raise failure(operation, batch, int(np.argmin(offset)), what)
    pointer, mask = _addresses(operation, tile, descriptor, offsets)
    # What all programs hold alike each of them gives.
    shape = (batch.size, *pointer.shape[1:])
    pointer, value, mask = (np.broadcast_to(x, shape) for x in (pointer, value, mask))
    access = access_of(operation, batch, verb=verb)
    modify(batch.memory, kind, element_dtype(tile.type), pointer, value, mask, access=access)


def _addresses(
    operation: Operation, tile: Value, descriptor: Array, offsets: list[Array]
) -> tuple[Array, Array]:
    """Return the addresses of a block's elements, and which lie inside the tensor."""
    type_ = operation.operands[0].type
    assert isinstance(type_, DescriptorType), "the verifier checks types"
    rank = len(type_.block)

    def spread(number: Array) -> Array:
        return number.reshape(-1, *(1,) * rank)

    pointer = spread(descriptor[..., 0])
    mask: Array = np.ones((1,) * (rank + 1), bool)
    for axis, (extent, offset) in enumerate(zip(type_.block, offsets, strict=True)):
        lanes = np.arange(extent).reshape(1, *(-1 if a == axis else 1 for a in range(rank)))
        index = spread(offset.astype(np.int64)) + lanes
        size = spread(descriptor[..., 1 + axis])
        stride: Array | int = 1
        if axis < rank - 1:
            stride = spread(descriptor[..., 1 + rank + axis])
        pointer = pointer + index * stride * type_.dtype.size_bytes
        mask = mask & (index >= 0) & (index < size)
    shape = (np.broadcast_shapes(pointer.shape, mask.shape)[0], *type_.block)
    held = (shape[0], *shape_of(tile.type))
    return (
        np.broadcast_to(pointer, shape).reshape(held),
        np.broadcast_to(mask, shape).reshape(held),
    )


COMPUTE: dict[str, Compute] = {
    "make_descriptor": _make,
    "descriptor_load": _load,
    "descriptor_store": _store,
    "descriptor_rmw": _rmw,
}
