"""Scans of a tile: each element becomes what it and all before it along an axis combine to."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from typing import Any

from tilewright.abi.dtypes import DType
from tilewright.language.reduce import CombineFunction, Flag
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Tile, constexpr

__all__ = ["associative_scan", "cumprod", "cumsum"]

Axis = int | constexpr


@operation
def cumsum(
    x: Tile, axis: Axis = 0, reverse: Flag = False, dtype: DType | constexpr | None = None
) -> Tile:
    """Return running sums along `axis`; with `reverse` from the last element to the first.

    dtypes as for `tl.sum`: f16 and bf16 accumulate in f32 and each sum is rounded once, bools and
    integers narrower than 32 bits give i32 or u32, and `dtype` decides otherwise.
    """
    outside_kernel(cumsum)


@operation
def cumprod(x: Tile, axis: Axis = 0, reverse: Flag = False) -> Tile:
    """Return running products along `axis`; order and dtypes as for `cumsum`."""
    outside_kernel(cumprod)


@operation
def associative_scan(
    x: Tile | tuple[Tile, ...], axis: Axis, combine_fn: CombineFunction, reverse: Flag = False
) -> Any:
    """Return for each element what `combine_fn` makes of all before it along `axis` and itself.

    `combine_fn` is as for `tl.reduce`: associative, not necessarily commutative, and of a tuple of
    n tiles it takes two times n scalars. With `reverse` the last element is the first: the function
    gets what later elements gave as its first arguments.

        @tl.kernel
        def affine(a, b, c, d):  # x -> a x + b, then x -> c x + d
            return a * c, b * c + d

        decay, state = tl.associative_scan((gate, value), 0, affine)

    The same kernel combines in the same order each time. Another layout may group floats otherwise,
    and then round differently.
    """
    outside_kernel(associative_scan)
