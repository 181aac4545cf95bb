"""Shapes and strides as kernels want them: broadcast, then collapsed to few axes. Pure arithmetic.

Strides count elements. Axes of extent 1 get stride 0, so that the alignment of a stride nobody
walks cannot push a launch off the fast specialization.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from tilewright.errors import ArgumentError
from tilewright.lazy_dataclass import dataclass

Shape = tuple[int, ...]
Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexSpace:
    """An index space of `sizes` with the strides of each operand over it."""

    sizes: Shape
    strides: tuple[Strides, ...]

    @property
    def size(self) -> int:
        """Number of indices."""
        return prod(self.sizes)


@lru_cache(maxsize=4096)
def broadcast_shape(*shapes: Shape) -> Shape:
    """Return the common shape by NumPy's rule; raises ArgumentError naming the shapes."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for extents in zip(*padded, strict=True):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            msg = f"shapes {', '.join(map(str, shapes))} do not broadcast together"
            raise ArgumentError(msg)
        result.append(wide.pop() if wide else 1)
    return tuple(result)


@lru_cache(maxsize=4096)
def broadcast_strides(shape: Shape, strides: Strides, target: Shape) -> Strides:
    """Return strides over `target` of an array of `shape`: 0 along every axis that is repeated."""
    missing = len(target) - len(shape)
    return (0,) * missing + tuple(
        0 if extent == 1 else stride for extent, stride in zip(shape, strides, strict=True)
    )


def collapse(space: IndexSpace, *, keep_last: bool = False) -> IndexSpace:
    """Drop axes of extent 1 and merge neighbours that every operand walks with one stride.

    The order of elements is kept. With `keep_last` the last axis stays an axis of its own, for
    kernels that reduce along it.
    """
    sizes: list[int] = []
    strides: list[list[int]] = []  # per kept axis, one stride an operand
    rank = len(space.sizes)
    for axis, extent in enumerate(space.sizes):
        last = keep_last and axis == rank - 1
        walk = [0 if extent == 1 else operand[axis] for operand in space.strides]
        if extent == 1 and not last:
            continue
        merges = sizes and not last and _continues(strides[-1], walk, extent)
        if merges:
            sizes[-1] *= extent
            strides[-1] = walk
        else:
            sizes.append(extent)
            strides.append(walk)
    operands = tuple(
        tuple(axis[operand] for axis in strides) for operand in range(len(space.strides))
    )
    return IndexSpace(tuple(sizes), operands)


def pad(space: IndexSpace, rank: int) -> IndexSpace:
    """Prepend axes of extent 1 and stride 0 up to `rank`."""
    missing = rank - len(space.sizes)
    return IndexSpace(
        (1,) * missing + space.sizes,
        tuple((0,) * missing + strides for strides in space.strides),
    )


@lru_cache(maxsize=4096)
def collapsed(
    shape: Shape, strides: tuple[Strides, ...], *, rank: int, keep_last: bool
) -> IndexSpace | None:
    """Return the space collapsed and padded to `rank` axes, None if it has more.

    Remembered, because a program launches few geometries many times.
    """
    space = collapse(IndexSpace(shape, strides), keep_last=keep_last)
    return pad(space, rank) if len(space.sizes) <= rank else None


def _continues(outer: Sequence[int], inner: Sequence[int], inner_extent: int) -> bool:
    return all(o == i * inner_extent for o, i in zip(outer, inner, strict=True))
