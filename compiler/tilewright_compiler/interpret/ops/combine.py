"""Reductions and scans by a region: neighbours are combined first, then neighbouring pairs.

That is a tree over the bits of the index, from the lowest. A device combines totals in the very
same tree (`layout.ordered`), so that reductions agree with it to the last bit; in a scan, what goes
before an element is put together in an order that depends on the layout there.

The region runs once for each level of the tree, on all pairs at once: a pair takes the place that a
program has in a batch.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.batch import Batch, take
from tilewright_compiler.interpret.ops.form import Control, Environment, Operands, Pause
from tilewright_compiler.ir.core import Block, Operation
from tilewright_compiler.ir.types import shape_of

if TYPE_CHECKING:
    from tilewright_compiler.interpret.numerics import Array
    from tilewright_compiler.interpret.ops.form import Evaluator, Run

Combined = Generator[Pause, None, list["Array"]]


@dataclass(frozen=True, slots=True)
class Combine:
    """A region as a function of two lists of arrays [element, program, ...], one for each operand.

    `captured` are the values that it reads from outside.
    """

    region: Block
    captured: Environment
    batch: Batch
    evaluator: Evaluator

    def __call__(self, left: Sequence[Array], right: Sequence[Array]) -> Combined:
        """Run the region on each pair of elements."""
        shape = left[0].shape
        programs = np.arange(self.batch.size).reshape(-1, *(1,) * (len(shape) - 2))
        places = np.broadcast_to(programs, shape).ravel()
        env = {value: take(array, places) for value, array in self.captured.items()}
        arguments = tuple([array.reshape(-1) for array in (*left, *right)])
        results = yield from self.evaluator.run_block(
            self.region, arguments, env, self.batch.take(places)
        )
        return [np.broadcast_to(result, places.shape).reshape(shape) for result in results]


def _reduce_with(
    operation: Operation, operands: Operands, env: Environment, batch: Batch, evaluator: Evaluator
) -> Run:
    combine = _combine(operation, env, batch, evaluator)
    tiles = _axis_first(operation, operands, batch)
    while tiles[0].shape[0] > 1:
        tiles = yield from combine([tile[0::2] for tile in tiles], [tile[1::2] for tile in tiles])
    return tuple([tile[0] for tile in tiles])


def _scan(
    operation: Operation, operands: Operands, env: Environment, batch: Batch, evaluator: Evaluator
) -> Run:
    combine = _combine(operation, env, batch, evaluator)
    is_reversed: bool = operation.attributes["reverse"]
    tiles = _axis_first(operation, operands, batch)
    if is_reversed:
        tiles = [np.flip(tile, 0) for tile in tiles]
    extent, length = tiles[0].shape[0], 1
    prefixes = [tile.copy() for tile in tiles]
    while length < extent:
        # [pair, which of the two, place in it, ...]
        runs = [prefix.reshape(-1, 2, length, *prefix.shape[1:]) for prefix in prefixes]
        before = [np.broadcast_to(run[:, 0, -1:], run[:, 1].shape) for run in runs]
        after = yield from _along_programs(combine, before, [run[:, 1] for run in runs])
        for run, extended in zip(runs, after, strict=True):
            run[:, 1] = extended
        length *= 2
    if is_reversed:
        prefixes = [np.flip(prefix, 0) for prefix in prefixes]
    axis: int = operation.attributes["axis"]
    return tuple([np.moveaxis(prefix, 0, axis + 1) for prefix in prefixes])


def _along_programs(combine: Combine, left: list[Array], right: list[Array]) -> Combined:
    """Combine arrays [pair, place, program, ...]."""
    shape = left[0].shape
    flat = [[array.reshape(-1, *shape[2:]) for array in arrays] for arrays in (left, right)]
    result = yield from combine(*flat)
    return [array.reshape(shape) for array in result]


def _combine(operation: Operation, env: Environment, batch: Batch, evaluator: Evaluator) -> Combine:
    (region,) = operation.regions
    return Combine(region, evaluator.captured(region, env), batch, evaluator)


def _axis_first(operation: Operation, operands: Operands, batch: Batch) -> list[Array]:
    """Return the tiles in full, [element along the axis, program, ...]."""
    shape = (batch.size, *shape_of(operation.operands[0].type))
    axis: int = operation.attributes["axis"]
    return [np.moveaxis(np.broadcast_to(tile, shape), axis + 1, 0) for tile in operands]


CONTROL: dict[str, Control] = {"reduce_with": _reduce_with, "scan": _scan}
