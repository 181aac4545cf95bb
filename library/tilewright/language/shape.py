"""Where tiles come from and how their shape changes.

Extents are powers of two known at compile time; a shape is a tuple of ints or constexprs, or one of
them.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = [
    "arange",
    "broadcast_to",
    "expand_dims",
    "full",
    "ravel",
    "reshape",
    "trans",
    "zeros",
    "zeros_like",
]

Extent = int | constexpr
Shape = Extent | tuple[Extent, ...] | list[Extent]


@operation
def arange(start: Extent, end: Extent) -> Tile:
    """Return `start, start + 1, ...` as an i32 tile `[end - start]`, a power of two."""
    outside_kernel(arange)


@operation
def full(shape: Shape, value: Operand, dtype: DType) -> Tile:
    """Return a tile of `shape` whose elements are all the scalar `value`, cast to `dtype`."""
    outside_kernel(full)


@operation
def zeros(shape: Shape, dtype: DType) -> Tile:
    """Return a tile of `shape` of zeros of `dtype`."""
    outside_kernel(zeros)


@operation
def zeros_like(x: Tile) -> Tile:
    """Return zeros of the shape and dtype of `x`."""
    outside_kernel(zeros_like)


@operation
def broadcast_to(x: Operand, shape: Shape) -> Tile:
    """Repeat `x` to `shape`: axes align at the last one, extents are equal or 1."""
    outside_kernel(broadcast_to)


@operation
def expand_dims(x: Tile, axis: int | constexpr) -> Tile:
    """Insert an axis of extent 1 at `axis` of the result; negative counts from its end."""
    outside_kernel(expand_dims)


@operation
def reshape(x: Tile, shape: Shape) -> Tile:
    """Return the elements of `x` in row-major order as a tile of `shape` with as many elements."""
    outside_kernel(reshape)


@operation
def ravel(x: Tile) -> Tile:
    """Return the elements of `x` in row-major order as a tile of rank 1."""
    outside_kernel(ravel)


@operation
def trans(x: Tile, order: tuple[Extent, ...] | None = None) -> Tile:
    """Permute the axes: axis i of the result is axis `order[i]` of `x`.

    Without `order` the last two axes swap: `[M, N]` gives `[N, M]`.
    """
    outside_kernel(trans)
