"""Checks, of which the first program whose condition is false is an error, and prints."""

from __future__ import annotations

import sys

import numpy as np

from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands, failure
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import shape_of


def _assert(operation: Operation, operands: Operands, batch: Batch) -> None:
    broken = ~operands[0]
    if broken.any():
        message: str = operation.attributes["message"]
        what = f"tl.device_assert failed{': ' if message else ''}{message}"
        raise failure(operation, batch, int(np.argmax(broken)), what)


def _print(operation: Operation, operands: Operands, batch: Batch) -> Array:
    prefix, digits = operation.attributes["prefix"], operation.attributes["digits"]
    shape = (batch.size, *shape_of(operation.result.type))
    values, *places = (np.broadcast_to(operand, shape) for operand in operands)
    lines = []
    for element in np.ndindex(shape):
        program, index = ([int(p[element]) for p in part] for part in (places[:3], places[3:]))
        where = f"pid ({', '.join(map(str, program))})"
        if index:
            where += f" idx ({', '.join(map(str, index))})"
        value = values[element]
        if digits:
            shown = f"0x{int(value):0{digits}x}"
        else:
            shown = f"{value:f}" if value.dtype.kind == "f" else str(int(value))
        lines.append(f"{where} {prefix} {shown}\n")
    sys.stdout.write("".join(lines))
    return operands[0]


COMPUTE: dict[str, Compute] = {"assert": _assert, "print": _print}
