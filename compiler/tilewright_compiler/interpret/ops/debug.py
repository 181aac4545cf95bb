"""Checks: the first program whose condition is false is an error."""

from __future__ import annotations

import numpy as np

from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.ops.form import Compute, Operands, failure
from tilewright_compiler.ir.core import Operation


def _assert(operation: Operation, operands: Operands, batch: Batch) -> None:
    broken = ~operands[0]
    if broken.any():
        message: str = operation.attributes["message"]
        what = f"tl.device_assert failed{': ' if message else ''}{message}"
        raise failure(operation, batch, int(np.argmax(broken)), what)


COMPUTE: dict[str, Compute] = {"assert": _assert}
