"""The form of an operation's implementation, and what control flow asks of the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

from tilewright.errors import InterpreterError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Block, Operation, Value

Operands = tuple[Array, ...]
Environment = dict[Value, Array]
Compute = Callable[[Operation, Operands, Batch], Array | None]


@dataclass(frozen=True, slots=True)
class Pause:
    """A turn's end, at the back edge of a `while`.

    `entry` stands for one execution of the loop: two pauses of one entry with equal `carried`
    values and no store in between mean that the loop will repeat itself.
    """

    loop: Operation
    entry: object
    carried: Operands


Run = Generator[Pause, None, Operands]


class Evaluator(Protocol):
    """What the control operations need: to run a region or a function."""

    def run_block(self, block: Block, arguments: Operands, env: Environment, batch: Batch) -> Run:
        """Run a block in an environment and give the operands of its terminator."""

    def call(self, callee: str, arguments: Operands, batch: Batch) -> Run:
        """Run a function in an environment of its own and give what it returns."""

    def captured(self, block: Block, env: Environment) -> Environment:
        """Return the part of an environment that a region reads."""


Control = Callable[[Operation, Operands, Environment, Batch, Evaluator], Run]


def failure(operation: Operation, batch: Batch, position: int, what: str) -> InterpreterError:
    """Return the error for what the program at a position of the batch did wrong."""
    here = () if operation.location is None else (operation.location,)
    lines = [f"kernel {batch.kernel!r}, program {batch.program_at(position)}: {what}"]
    lines += [f"  at {location.render()}" for location in (*here, *batch.callers)]
    return InterpreterError("\n".join(lines))
