"""PTX of the kernel's author: what its reference gave, or an error."""

from __future__ import annotations

from collections.abc import Generator

from tilewright.errors import InterpreterError
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.ops.form import (
    Control,
    Environment,
    Evaluator,
    Operands,
    Pause,
)
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.inline_asm import NAMES


def _given(
    operation: Operation,
    operands: Operands,
    _env: Environment,
    batch: Batch,
    _evaluator: Evaluator,
) -> Generator[Pause, None, Operands]:
    yield from ()
    references = operands[operation.attributes["arguments"] :]
    if not references:
        raise refusal(operation, batch.kernel)
    return references


def refusal(operation: Operation, kernel: str) -> InterpreterError:
    """Return the error for PTX that nobody said the meaning of."""
    location = operation.location
    where = "" if location is None else f"\n  at {location.render()}"
    msg = (
        f"kernel {kernel!r} has PTX of its own, which runs on a GPU only; for the interpreter, "
        "give tl.inline_asm_elementwise a kernel that computes the same: "
        f"`reference=...`{where}"
    )
    return InterpreterError(msg)


CONTROL: dict[str, Control] = dict.fromkeys(NAMES, _given)
