"""Shared-memory layouts: where each element of a tile lies, as a linear map, conflict-free.

The map takes the bits of the row-major flat element index to bits of the element offset. A swizzle
is such a map and nothing more, so transposing or reshaping a tile in shared memory moves bits and
no data, and bank conflicts are a rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Self

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout import banks, gf2
from tilewright_compiler.layout.access import axis_units
from tilewright_compiler.layout.linear import flatten, log2, unflatten

# What one asynchronous copy moves at most, and one row of a matrix that `ldmatrix` reads.
CHUNK_BYTES = 16

# How many bits of a row's number change its place in a line, by the bytes of an element: three for
# `ldmatrix`, which reads 16-bit elements in both directions. Lanes of other fragments differ in two
# bits above the rows that a word packs (bytes), and those of multiply-adds in three above the four
# columns of each (words).
_SPREAD_ROW_BITS = {1: 4, 2: 3, 4: 5, 8: 3}

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

    `order` lists the axes, fastest first. Different banks are met by eight chunks that follow each
    other along the fastest axis, as copies write; by eight at one place of consecutive indices of
    the next axis, as `ldmatrix` reads; and by the fragments of elements that are not of 16 bits,
    which plain accesses read where the reduced axis is not the fastest. Rows are as long as the
    tile's fastest axis, or as long as a line of the banks where that is longer.
    """
    fastest, *others = order
    units = [*axis_units(shape, fastest)]
    row_bits = len(units)
    for axis in others:
        units += axis_units(shape, axis)
    chunk = log2(max(1, CHUNK_BYTES // size_bytes))
    line = log2(banks.LINE_BYTES // size_bytes)
    row = min(row_bits, line)
    # The places in a line that rows are spread over. Where rows are shorter than a line, the first
    # of them fill it by lying behind each other. Then the upper chunks come first: what two rows
    # have side by side in neighbouring chunks, a fragment of wide elements, stays apart.
    spread = [*range(row, line), *range(chunk + 1, row), *range(chunk, min(chunk + 1, row))]
    by_unit = {unit: 1 << bit for bit, unit in enumerate(units)}
    for index, unit in enumerate(units[row_bits:][: _SPREAD_ROW_BITS[size_bytes]]):
        place = 1 << spread[index % len(spread)]
        if by_unit[unit] > place:
            by_unit[unit] |= place
    return SharedLayout(tuple(shape), tuple(by_unit[1 << bit] for bit in range(len(units))))
