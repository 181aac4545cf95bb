"""Block pointers: a window of fixed extents that moves over an array in memory.

A block pointer keeps the array's base, shape and strides beside the window's offsets, so that loads
and stores compute addresses and bounds from them. It is a value of the kernel like a tuple: it may
be assigned, passed to kernels, returned, and moved in a loop.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = ["advance", "make_block_ptr"]

_Scalars = tuple[Operand, ...]
_Numbers = tuple[int | constexpr, ...]


@operation
def make_block_ptr(
    base: Tile,
    shape: _Scalars,
    strides: _Scalars,
    offsets: _Scalars,
    block_shape: _Numbers,
    order: _Numbers,
) -> Tile:
    """Return a block pointer: the window `block_shape` at `offsets` of an array at `base`.

    `shape`, `strides` and `offsets` are one integer an axis, in elements; they are computed in 64
    bits. `block_shape` is known at compile time. `order`, a permutation of the axes as in Triton,
    is checked and otherwise not needed: layouts come from the accesses.
    """
    outside_kernel(make_block_ptr)


@operation
def advance(base: Tile, offsets: _Scalars) -> Tile:
    """Return the block pointer `base` moved by `offsets`, one integer an axis, in elements."""
    outside_kernel(advance)
