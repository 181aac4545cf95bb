"""Elements of a tile found by their values: looked up by index, and counted."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Tile, constexpr

__all__ = ["gather", "histogram"]


@operation
def gather(x: Tile, index: Tile, axis: int | constexpr) -> Tile:
    """Return for each index the element of `x` at it along `axis`: `x[index[i, j], j]` for axis 0.

    `x` and `index` have one rank, and the same extents along the other axes; the result has the
    shape of `index`, integers of any width. An index counts modulo the extent of `x`, so that -1 is
    the last element and none is out of bounds.
    """
    outside_kernel(gather)


@operation
def histogram(x: Tile, num_bins: int | constexpr, mask: Tile | None = None) -> Tile:
    """Return how often each of 0 .. `num_bins` - 1 is an element of `x`, as i32 `[num_bins]`.

    `x` has integers, and any shape; `num_bins` is a power of two. Elements outside the range and
    those where `mask` is false are not counted.
    """
    outside_kernel(histogram)
