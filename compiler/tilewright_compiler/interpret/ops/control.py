"""Control flow over a batch: regions run on all programs at once, or on those that take the branch.

Where programs part, the batch is split: each side runs its region on its own programs only, and the
values are merged behind it. A `for` runs as many iterations as the shortest-running programs need,
lets these go, and continues with the rest; a `while` likewise. A load or store of a program that
left a loop therefore never happens, as on the device. Programs that wait for each other are not run
this way: `tile.run` gives each a batch of its own, so that nothing parts, and switches between them
at the pauses that `while` makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright_compiler.interpret.batch import Batch, Part, merge, take
from tilewright_compiler.interpret.ops.form import (
    Compute,
    Control,
    Environment,
    Operands,
    Pause,
    failure,
)

if TYPE_CHECKING:
    from tilewright_compiler.interpret.numerics import Array
    from tilewright_compiler.interpret.ops.form import Evaluator, Run
    from tilewright_compiler.ir.core import Operation


def _for(
    operation: Operation, operands: Operands, env: Environment, batch: Batch, evaluator: Evaluator
) -> Run:
    (body,) = operation.regions
    lower, upper, step, *initial = operands
    carried = tuple(initial)
    if (step <= 0).any():
        position = int(np.argmax(step <= 0))
        what = f"a loop's step is {step[position]}, it must be positive"
        raise failure(operation, batch, position, what)
    counts = _trip_counts(lower, upper, step)  # [P] or [1]
    induction = lower
    size = batch.size
    positions = np.arange(size)
    parts = []
    done = 0
    while True:
        target = int(counts.min())
        for _ in range(done, target):
            carried = yield from evaluator.run_block(body, (induction, *carried), env, batch)
            induction = induction + step
        done = target
        stops = counts == done
        if stops.all():
            parts.append(Part(positions, carried))
            return merge(parts, size)
        left, stay = np.flatnonzero(stops), np.flatnonzero(~stops)
        parts.append(Part(positions[left], tuple(take(value, left) for value in carried)))
        positions, counts = positions[stay], counts[stay]
        carried = tuple(take(value, stay) for value in carried)
        induction, step = take(induction, stay), take(step, stay)
        batch, env = batch.take(stay), _restricted(evaluator.captured(body, env), stay)


def _while(
    operation: Operation, operands: Operands, env: Environment, batch: Batch, evaluator: Evaluator
) -> Run:
    before, after = operation.regions
    carried = operands
    size = batch.size
    positions = np.arange(size)
    parts = []
    entry = object()
    while True:
        condition, *rest = yield from evaluator.run_block(before, carried, env, batch)
        passed = tuple(rest)
        if not condition.any():
            parts.append(Part(positions, passed))
            return merge(parts, size)
        if not condition.all():
            left, stay = np.flatnonzero(~condition), np.flatnonzero(condition)
            parts.append(Part(positions[left], tuple(take(value, left) for value in passed)))
            positions = positions[stay]
            passed = tuple(take(value, stay) for value in passed)
            captured = evaluator.captured(before, env) | evaluator.captured(after, env)
            batch, env = batch.take(stay), _restricted(captured, stay)
        carried = yield from evaluator.run_block(after, passed, env, batch)
        yield Pause(operation, entry, carried)


def _if(
    operation: Operation, operands: Operands, env: Environment, batch: Batch, evaluator: Evaluator
) -> Run:
    (condition,) = operands
    then, otherwise = operation.regions
    if condition.all():
        return (yield from evaluator.run_block(then, (), env, batch))
    if not condition.any():
        return (yield from evaluator.run_block(otherwise, (), env, batch))
    parts = []
    for region, taken in ((then, condition), (otherwise, ~condition)):
        positions = np.flatnonzero(taken)
        inner = _restricted(evaluator.captured(region, env), positions)
        values = yield from evaluator.run_block(region, (), inner, batch.take(positions))
        parts.append(Part(positions, values))
    return merge(parts, batch.size)


def _call(
    operation: Operation, operands: Operands, _env: Environment, batch: Batch, evaluator: Evaluator
) -> Run:
    inner = batch.called_from(operation.location)
    return (yield from evaluator.call(operation.attributes["callee"], operands, inner))


def _convert_layout(_operation: Operation, operands: Operands, _batch: Batch) -> Array:
    return operands[0]


def _trip_counts(lower: Array, upper: Array, step: Array) -> Array:
    # The distance of two 64-bit integers may need all 64 bits.
    distance = upper.astype(np.uint64) - lower.astype(np.uint64)
    counts = (distance - np.uint64(1)) // step.astype(np.uint64) + np.uint64(1)
    return np.where(upper > lower, counts, np.uint64(0))


def _restricted(env: Environment, positions: Array) -> Environment:
    return {value: take(array, positions) for value, array in env.items()}


def _barrier(_operation: Operation, _operands: Operands, _batch: Batch) -> None:
    """Do nothing: whole tiles are computed one after the other."""


COMPUTE: dict[str, Compute] = {"convert_layout": _convert_layout, "barrier": _barrier}
CONTROL: dict[str, Control] = {"for": _for, "while": _while, "if": _if, "call": _call}
