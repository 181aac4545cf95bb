"""Global memory: pointers are virtual addresses in 64-bit integers."""

from __future__ import annotations

import numpy as np

from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.memory import Access
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_dtype


def access_of(operation: Operation, batch: Batch, *, verb: str) -> Access:
    """Return what a message about an access says."""
    here = () if operation.location is None else (operation.location,)
    return Access(
        verb=verb,
        dtype=element_dtype(operation.operands[0].type),
        kernel=batch.kernel,
        locations=(*here, *batch.callers),
        program=batch.program_at,
    )


def _addptr(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    pointer, offset = operands
    size = element_dtype(operation.result.type).size_bytes
    result: Array = pointer + offset.astype(np.int64) * size
    return result


def _address(_operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return operands[0].astype(np.int64)


def _load(operation: Operation, operands: Operands, batch: Batch) -> Array:
    pointer, mask, other, *_ = (*operands, None, None)
    assert pointer is not None
    return batch.memory.load(pointer, mask, other, access=access_of(operation, batch, verb="load"))


def _store(operation: Operation, operands: Operands, batch: Batch) -> None:
    pointer, value, *rest = operands
    mask = rest[0] if rest else None
    batch.memory.store(pointer, value, mask, access=access_of(operation, batch, verb="store"))


COMPUTE: dict[str, Compute] = {
    "addptr": _addptr,
    "address": _address,
    "load": _load,
    "store": _store,
}
