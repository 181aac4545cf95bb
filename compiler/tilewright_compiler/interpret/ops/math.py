"""Elementwise functions of floats."""

from __future__ import annotations

from tilewright_compiler.interpret import numerics
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.math import UNARY
from tilewright_compiler.ir.types import element_dtype


def _unary(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return numerics.function(operation.name, operands[0], element_dtype(operation.result.type))


def _fma(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    left, right, addend = operands
    return numerics.fma(left, right, addend, element_dtype(operation.result.type))


def _extremum(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    left, right = operands
    return numerics.binary(operation.name, left, right, element_dtype(operation.result.type))


def _fdiv(operation: Operation, operands: Operands, _batch: Batch) -> Array:
    left, right = operands
    return numerics.binary("div", left, right, element_dtype(operation.result.type))


COMPUTE: dict[str, Compute] = {
    **dict.fromkeys(UNARY, _unary),
    "minnum": _extremum,
    "maxnum": _extremum,
    "fma": _fma,
    "fdiv": _fdiv,
}
