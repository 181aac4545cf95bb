"""Reductions of a tile, always combined in one order, so that equal inputs give equal bits."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Tile, constexpr

__all__ = ["max", "min", "sum"]

Axis = int | constexpr | None


@operation
def sum(x: Tile, axis: Axis = None, keep_dims: bool | constexpr = False) -> Tile:
    """Return the sum along `axis`, or over all elements without one.

    The axis disappears, or stays with extent 1 if `keep_dims`: `[M, N]` along axis 1 gives `[M]` or
    `[M, 1]`; over all elements the result is a scalar, or has extent 1 along every axis. f16 and
    bf16 accumulate in f32 and the result is rounded once to their dtype; bools and integers
    narrower than 32 bits accumulate in and give i32 (u32 if unsigned).
    """
    outside_kernel(sum)


@operation
def max(x: Tile, axis: Axis = None, keep_dims: bool | constexpr = False) -> Tile:
    """Return the largest element along `axis`, or of all without one, in the dtype of `x`.

    NaN if any element is NaN; of bools, whether any is true. Shapes as for `sum`.
    """
    outside_kernel(max)


@operation
def min(x: Tile, axis: Axis = None, keep_dims: bool | constexpr = False) -> Tile:
    """Return the smallest element along `axis`, or of all without one, in the dtype of `x`.

    NaN if any element is NaN; of bools, whether all are true. Shapes as for `sum`.
    """
    outside_kernel(min)
