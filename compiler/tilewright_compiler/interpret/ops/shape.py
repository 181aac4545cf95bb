"""Sources of tiles, and changes of shape. What is only repeated is held once (`batch`)."""

from __future__ import annotations

import numpy as np

from tilewright_compiler.interpret import numerics
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_dtype, shape_of


def _program_id(operation: Operation, _operands: Operands, batch: Batch) -> Array:
    return batch.program_id(operation.attributes["axis"])


def _num_programs(operation: Operation, _operands: Operands, batch: Batch) -> Array:
    return np.array([batch.grid[operation.attributes["axis"]]], np.int64)


def _constant(operation: Operation, _operands: Operands, _batch: Batch) -> Array:
    return numerics.constant(operation.attributes["value"], element_dtype(operation.result.type))


def _arange(operation: Operation, _operands: Operands, _batch: Batch) -> Array:
    start, end = operation.attributes["start"], operation.attributes["end"]
    return np.arange(start, end, dtype=np.int32)[None]


def _splat(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    rank = len(shape_of(operation.result.type))
    return operands[0].reshape(-1, *(1,) * rank)


def _expand_dims(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return np.expand_dims(operands[0], operation.attributes["axis"] + 1)


def _broadcast(_operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return operands[0]


def _reshape(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    (source,) = operands
    programs = source.shape[0]
    full = np.broadcast_to(source, (programs, *shape_of(operation.operands[0].type)))
    return full.reshape(programs, *shape_of(operation.result.type))


def _transpose(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    order: tuple[int, ...] = operation.attributes["order"]
    return operands[0].transpose(0, *(axis + 1 for axis in order))


def _flip(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    result: Array = np.flip(operands[0], operation.attributes["axis"] + 1)
    return result


COMPUTE: dict[str, Compute] = {
    "program_id": _program_id,
    "num_programs": _num_programs,
    "constant": _constant,
    "arange": _arange,
    "splat": _splat,
    "expand_dims": _expand_dims,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "flip": _flip,
}
