"""Arithmetic, comparison, selection and conversion."""

from __future__ import annotations

import numpy as np

from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.interpret import numerics
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.arithmetic import BINARY
from tilewright_compiler.ir.types import element_dtype


def _binary(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    left, right = operands
    return numerics.binary(operation.name, left, right, element_dtype(operation.result.type))


def _cmp(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return numerics.compare(operation.attributes["predicate"], *operands)


def _select(_operation: Operation, operands: Operands, _batch: Batch) -> Array:
    condition, left, right = operands
    return np.where(condition, left, right)


def _cast(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    source = element_dtype(operation.operands[0].type)
    return numerics.cast(operands[0], source, element_dtype(operation.result.type))


def _truncate(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return numerics.truncate(operands[0], element_dtype(operation.result.type))


def _bitcast(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return operands[0].view(to_numpy(element_dtype(operation.result.type)))


def _neg(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return numerics.negate(operands[0], element_dtype(operation.result.type))


def _abs(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return numerics.absolute(operands[0], element_dtype(operation.result.type))


COMPUTE: dict[str, Compute] = {
    **dict.fromkeys(BINARY, _binary),
    "cmp": _cmp,
    "select": _select,
    "cast": _cast,
    "truncate": _truncate,
    "bitcast": _bitcast,
    "neg": _neg,
    "abs": _abs,
}
