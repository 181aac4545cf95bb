"""Programs that run in lockstep, and the form of their values.

A value of a batch is one array whose leading axis counts programs and whose other axes are the
tile's. An extent of 1 where more is meant stands for equal elements along that axis, as in NumPy
broadcasting: what does not depend on the program, or is constant along a row, is held and computed
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.errors import SourceLocation
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.memory import Memory
from tilewright_compiler.interpret.numerics import Array


@dataclass(frozen=True, slots=True)
class Batch:
    """Programs that run in lockstep.

    `programs` [P] holds their linear numbers, axis 0 of the grid running fastest; `callers` is the
    chain of calls from the kernel to the function that runs.
    """

    kernel: str
    grid: tuple[int, int, int]
    programs: Array
    memory: Memory
    callers: tuple[SourceLocation, ...] = ()

    def program_id(self, axis: int) -> Array:
        """Return the program ids along an axis of the grid."""
        if self.grid[axis] == 1:
            return np.zeros(1, np.int64)
        below = self.grid[0] * self.grid[1] if axis == 2 else self.grid[0] if axis == 1 else 1
        result: Array = self.programs // below % self.grid[axis]
        return result

    def program_at(self, position: int) -> tuple[int, int, int]:
        """Return the program id of the program at a position of the leading axis."""
        number = int(self.programs[position])
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def take(self, positions: Array) -> Batch:
        """Return the batch of the programs at these positions."""
        return replace(self, programs=self.programs[positions])

    def called_from(self, location: SourceLocation | None) -> Batch:
        """Return the batch inside a function that is called from `location`."""
        return self if location is None else replace(self, callers=(location, *self.callers))

    @property
    def size(self) -> int:
        """Number of programs."""
        return self.programs.size


def take(value: Array, positions: Array) -> Array:
    """Return a value of the programs at these positions of the leading axis."""
    return value if value.shape[0] == 1 else value[positions]


@dataclass(frozen=True, slots=True)
class Part:
    """Values of some programs of a batch: those at `positions`."""

    positions: Array
    values: tuple[Array, ...]


def merge(parts: Sequence[Part], size: int) -> tuple[Array, ...]:
    """Put the values of all programs of a batch together again."""
    if len(parts) == 1:
        return parts[0].values
    result = []
    for pieces in zip(*(part.values for part in parts), strict=True):
        extents = np.broadcast_shapes(*(piece.shape[1:] for piece in pieces))
        merged = np.empty((size, *extents), pieces[0].dtype)
        for part, piece in zip(parts, pieces, strict=True):
            merged[part.positions] = piece
        result.append(merged)
    return tuple(result)
