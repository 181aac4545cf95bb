"""Sorted tiles. Floats are totally ordered: -inf, ..., -0.0, 0.0, ..., inf, NaN."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from typing import Any

from tilewright.language.reduce import Axis, Flag
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Tile, constexpr

__all__ = ["bitonic_merge", "sort", "topk"]


@operation
def sort(x: Tile, dim: Axis = None, descending: Flag = False, return_indices: Flag = False) -> Any:
    """Return the elements in order along `dim`, by default the last axis.

    NaN counts as larger than every number, whatever its sign, and comes back as a positive NaN;
    -0.0 comes before 0.0. With `descending` the order is exactly the opposite. With
    `return_indices` the result is a pair, the second the i32 indices along `dim` that the elements
    had; equal elements then keep their order, with `descending` too.
    """
    outside_kernel(sort)


@operation
def topk(
    x: Tile,
    k: int | constexpr,
    dim: Axis = None,
    largest: Flag = True,
    return_indices: Flag = False,
) -> Any:
    """Return the `k` largest elements along `dim` (by default the last axis), largest first.

    `k` is a power of two of at most the extent, which it becomes. Without `largest` they are the
    smallest ones, smallest first. The order is that of `tl.sort`, so NaN is among the largest. With
    `return_indices` the result is a pair, the second the i32 indices along `dim`; of equal elements
    those with lower indices come first.
    """
    outside_kernel(topk)


@operation
def bitonic_merge(x: Tile, dim: Axis = None, descending: Flag = False) -> Tile:
    """Return a bitonic sequence along `dim` in order, as `tl.sort` would, in fewer steps.

    Bitonic is what rises and then falls, or falls and then rises, such as one half in order
    followed by another in the opposite order. Anything else comes out in some order.
    """
    outside_kernel(bitonic_merge)
