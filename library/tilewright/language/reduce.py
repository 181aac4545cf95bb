"""Reductions of a tile, always combined in one order, so that equal inputs give equal bits."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.abi.dtypes import DType
from tilewright.language.kernel import Kernel
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Tile, constexpr

__all__ = ["argmax", "argmin", "max", "min", "reduce", "reduce_or", "sum", "xor_sum"]

Axis = int | constexpr | None
Flag = bool | constexpr
CombineFunction = Kernel | Callable[..., Any]


@operation
def sum(
    x: Tile, axis: Axis = None, keep_dims: Flag = False, dtype: DType | constexpr | None = None
) -> Tile:
    """Return the sum along `axis`, or over all elements without one.

    The axis disappears, or stays with extent 1 if `keep_dims`: `[M, N]` along axis 1 gives `[M]` or
    `[M, 1]`; over all elements the result is a scalar, or has extent 1 along every axis. f16 and
    bf16 accumulate in f32 and the result is rounded once to their dtype; bools and integers
    narrower than 32 bits accumulate in and give i32 (u32 if unsigned). With `dtype`, elements are
    cast to it first and the result has it.
    """
    outside_kernel(sum)


@operation
def max(
    x: Tile,
    axis: Axis = None,
    return_indices: Flag = False,
    return_indices_tie_break_left: Flag = True,
    keep_dims: Flag = False,
) -> Tile:
    """Return the largest element along `axis`, or of all without one, in the dtype of `x`.

    NaN if any element is NaN, and 0.0 is larger than -0.0; of bools, whether any is true. Shapes as
    for `sum`. With `return_indices` the result is a pair, the second as `argmax` gives it.
    """
    outside_kernel(max)


@operation
def min(
    x: Tile,
    axis: Axis = None,
    return_indices: Flag = False,
    return_indices_tie_break_left: Flag = True,
    keep_dims: Flag = False,
) -> Tile:
    """Return the smallest element along `axis`, or of all without one, in the dtype of `x`.

    NaN if any element is NaN, and -0.0 is smaller than 0.0; of bools, whether all are true. Shapes
    as for `sum`. With `return_indices` the result is a pair, the second as `argmin` gives it.
    """
    outside_kernel(min)


@operation
def argmax(
    x: Tile, axis: Axis = None, tie_break_left: Flag = True, keep_dims: Flag = False
) -> Tile:
    """Return the index of the largest element along `axis`, i32; without one, in row-major order.

    Of equal elements, 0.0 and -0.0 among them, it is the first; of elements with NaN, the first
    NaN. Without `tie_break_left` another of them would do, and it is the first all the same.
    """
    outside_kernel(argmax)


@operation
def argmin(
    x: Tile, axis: Axis = None, tie_break_left: Flag = True, keep_dims: Flag = False
) -> Tile:
    """Return the index of the smallest element along `axis`, as `argmax` does of the largest."""
    outside_kernel(argmin)


@operation
def xor_sum(x: Tile, axis: Axis = None, keep_dims: Flag = False) -> Tile:
    """Return the exclusive or of integers or bools along `axis`, in the dtype of `x`."""
    outside_kernel(xor_sum)


@operation
def reduce_or(x: Tile, axis: Axis = None, keep_dims: Flag = False) -> Tile:
    """Return the or of the bits of integers or bools along `axis`, in the dtype of `x`."""
    outside_kernel(reduce_or)


@operation
def reduce(
    x: Tile | tuple[Tile, ...],
    axis: Axis,
    combine_fn: CombineFunction,
    keep_dims: Flag = False,
) -> Any:
    """Return what `combine_fn` makes of the elements along `axis`, or of all in row-major order.

    `combine_fn` is a kernel of scalars, or a function of the language such as `tl.maximum`. It gets
    what earlier elements gave and what later ones gave, and must be associative; it need not be
    commutative. Of a tuple of n tiles of one shape it gets n values and n values, and returns a
    tuple of n, whose dtypes are those of the tiles. The result is a tuple then. Neighbours are
    combined first, then neighbouring pairs: one order, whatever the shape or the GPU.

        @tl.kernel
        def later_maximum(value, index, other, other_index):
            is_other = other >= value
            return tl.where(is_other, other, value), tl.where(is_other, other_index, index)

        largest, place = tl.reduce((x, tl.arange(0, N)), 0, later_maximum)
    """
    outside_kernel(reduce)
