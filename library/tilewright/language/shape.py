"""Where tiles come from and how their shape changes.

Extents are powers of two known at compile time; a shape is a tuple of ints or constexprs, or one of
them. `reshape`, `view`, `trans` and `permute` also take the extents or axes one by one. What only
arranges elements moves no data: registers are renamed, and where threads must exchange elements the
compiler converts the layout.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = [
    "arange",
    "broadcast",
    "broadcast_to",
    "cat",
    "expand_dims",
    "flip",
    "full",
    "interleave",
    "join",
    "permute",
    "ravel",
    "reshape",
    "split",
    "squeeze",
    "trans",
    "unsqueeze",
    "view",
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
def broadcast(x: Operand, y: Operand) -> tuple[Tile, Tile]:
    """Return both repeated to the shape that they have together."""
    outside_kernel(broadcast)


@operation
def expand_dims(x: Tile, axis: int | constexpr | tuple[Extent, ...]) -> Tile:
    """Insert an axis of extent 1 at `axis` of the result; negative counts from its end.

    With several, each is a place among the axes of the result.
    """
    outside_kernel(expand_dims)


@operation
def unsqueeze(x: Tile, dim: int | constexpr) -> Tile:
    """Insert an axis of extent 1 at `dim` of the result, as `expand_dims`."""
    outside_kernel(unsqueeze)


@operation
def squeeze(x: Tile, dim: int | constexpr) -> Tile:
    """Return `x` without axis `dim`, whose extent is 1; a tile of one axis becomes a scalar."""
    outside_kernel(squeeze)


@operation
def reshape(x: Tile, *shape: Shape) -> Tile:
    """Return the elements of `x` in row-major order as a tile of `shape` with as many elements."""
    outside_kernel(reshape)


@operation
def view(x: Tile, *shape: Shape) -> Tile:
    """Return the elements of `x` in row-major order as a tile of `shape`, as `reshape`."""
    outside_kernel(view)


@operation
def ravel(x: Tile) -> Tile:
    """Return the elements of `x` in row-major order as a tile of rank 1."""
    outside_kernel(ravel)


@operation
def trans(x: Tile, *order: Shape) -> Tile:
    """Permute the axes: axis i of the result is axis `order[i]` of `x`.

    Without `order` the last two axes swap: `[M, N]` gives `[N, M]`.
    """
    outside_kernel(trans)


@operation
def permute(x: Tile, *order: Shape) -> Tile:
    """Permute the axes: axis i of the result is axis `order[i]` of `x`."""
    outside_kernel(permute)


@operation
def join(x: Operand, y: Operand) -> Tile:
    """Return the two, broadcast and promoted, behind each other along a new last axis of extent 2.

    `[M, N]` gives `[M, N, 2]` with `x` at `[..., 0]`; two scalars give `[2]`.
    """
    outside_kernel(join)


@operation
def split(x: Tile) -> tuple[Tile, Tile]:
    """Return `x[..., 0]` and `x[..., 1]` of a tile whose last axis has extent 2: undoes `join`."""
    outside_kernel(split)


@operation
def interleave(x: Operand, y: Operand) -> Tile:
    """Return the elements of the two in turn along the last axis, `x` first: `[M, 2 N]`."""
    outside_kernel(interleave)


@operation
def cat(x: Tile, y: Tile, dim: int | constexpr = 0, can_reorder: bool | constexpr = False) -> Tile:
    """Return `y` behind `x` along axis `dim`; shapes agree, dtypes promote.

    The order is kept whatever `can_reorder` says, which Triton demands to be True.
    """
    outside_kernel(cat)


@operation
def flip(x: Tile, dim: int | constexpr | None = None) -> Tile:
    """Return `x` in reverse order along axis `dim`; None is the only axis of a tile of rank 1."""
    outside_kernel(flip)
