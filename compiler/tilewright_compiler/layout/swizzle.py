"""Shared-memory layouts: where each element of a tile lies, as a linear map, conflict-free.

The map takes the bits of the row-major flat element index to bits of the element offset. A swizzle
is such a map and nothing more, so transposing or reshaping a tile in shared memory moves bits and
no data, and bank conflicts are a rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout import banks, gf2
from tilewright_compiler.layout.access import axis_units
from tilewright_compiler.layout.linear import flatten, log2, unflatten

# What one asynchronous copy moves at most, and one row of a matrix that `ldmatrix` reads.
CHUNK_BYTES = 16

_TEXT = re.compile(r"#shared<(?P<shape>[0-9x]*); (?P<offsets>[0-9,]*)>")


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A bijection from the elements of a tile of `shape` to offsets in shared memory.

    `offsets[bit]` is the xor contribution of that bit of the row-major flat element index to the
    offset, in elements from the start of the tile.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.offsets) != log2(self.size) or gf2.inverse(self.offsets) is None:
            msg = f"shared layout of shape {self.shape}: {self.offsets} is no bijection"
            raise InternalCompilerError(msg)

    def __str__(self) -> str:
        return f"#shared<{'x'.join(map(str, self.shape))}; {','.join(map(str, self.offsets))}>"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raises InternalCompilerError if it is not one."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            msg = f"not a shared layout: {text!r}; the form is #shared<4x8; 1,2,4,8,16>"
            raise InternalCompilerError(msg)
        shape, offsets = (
            tuple(int(part) for part in match[group].split(separator) if part)
            for group, separator in (("shape", "x"), ("offsets", ","))
        )
        return cls(shape, offsets)

    @property
    def size(self) -> int:
        """Number of elements, and so of offsets."""
        return prod(self.shape)

    def offset(self, flat_index: int) -> int:
        """Return the offset of an element."""
        return gf2.apply(self.offsets, flat_index)

    def transpose(self, order: Sequence[int]) -> SharedLayout:
        """Return the layout of the transposed tile, whose axis i is this one's order[i]."""
        shape = tuple(self.shape[axis] for axis in order)

        def source(flat_index: int) -> int:
            moved = unflatten(flat_index, shape)
            coordinates = [0] * len(order)
            for axis, coordinate in zip(order, moved, strict=True):
                coordinates[axis] = coordinate
            return flatten(coordinates, self.shape)

        return self._view(shape, source)

    def reshape(self, shape: Sequence[int]) -> SharedLayout:
        """Return the layout of the tile under another shape of the same size."""
        return self._view(tuple(shape), lambda flat_index: flat_index)

    def _view(self, shape: tuple[int, ...], source: Callable[[int], int]) -> SharedLayout:
        bits = range(log2(prod(shape)))
        return SharedLayout(shape, tuple(self.offset(source(1 << bit)) for bit in bits))


def swizzled(shape: Sequence[int], order: Sequence[int], *, size_bytes: int) -> SharedLayout:
    """Return the layout that keeps 16-byte chunks along the fastest axis, free of conflicts.

    `order` lists the axes, fastest first. Eight chunks that follow each other along the fastest
    axis, and eight at one place of consecutive indices of the next axis, both lie in different
    banks: the two ways in which copies write and `ldmatrix` reads. Where rows are shorter than a
    line of the banks, rows that share a line count as one.
    """
    fastest, *others = order
    units = [*axis_units(shape, fastest)]
    for axis in others:
        units += axis_units(shape, axis)
    chunk = max(0, log2(CHUNK_BYTES // size_bytes))
    line = log2(banks.LINE_BYTES // size_bytes)
    row = log2(shape[fastest])
    # Chunk bits of a line that row bits must be spread over; the first row bits may fill the line.
    spread = list(range(chunk, min(line, row)))
    by_unit = {unit: 1 << bit for bit, unit in enumerate(units)}
    first = max(row, line)
    for index, bit in enumerate(spread):
        if first + index < len(units):
            by_unit[units[first + index]] |= 1 << bit
    return SharedLayout(tuple(shape), tuple(by_unit[1 << bit] for bit in range(len(units))))
