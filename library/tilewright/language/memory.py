"""Global memory, read and written through tiles of pointers.

A pointer parameter plus an integer tile is a tile of pointers; offsets count elements, not bytes.
Where the mask is false nothing is touched, so the pointer there may be anything. The address in
bytes of a pointer is `pointer.to(tl.int64)`.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = ["load", "multiple_of", "store"]


@operation
def load(
    pointer: Tile,
    mask: Operand | None = None,
    other: Operand | None = None,
    cache_modifier: str | constexpr = "",
    eviction_policy: str | constexpr = "",
) -> Tile:
    """Return the elements at `pointer`, of its shape and element type.

    `mask` and `other` broadcast to the pointer's shape. Where `mask` (i1) is false the result is
    `other`, cast to the element type, or 0 without one. `cache_modifier` is "", ".ca", ".cg" or
    ".cv"; `eviction_policy` is "", "evict_first" or "evict_last". Both are hints and change no
    value.
    """
    outside_kernel(load)


@operation
def multiple_of(x: Tile, divisor: int | constexpr) -> Tile:
    """Return `x`, having promised that every element is a multiple of `divisor`, a power of two.

    A pointer is a multiple in bytes: a promise of 16 lets loads and stores go by 16 bytes. The
    interpreter checks the promise; on a device a broken one is undefined.
    """
    outside_kernel(multiple_of)


@operation
def store(
    pointer: Tile,
    value: Operand,
    mask: Operand | None = None,
    cache_modifier: str | constexpr = "",
    eviction_policy: str | constexpr = "",
) -> None:
    """Write `value`, cast to the pointer's element type, at `pointer` where `mask` is true.

    `value` and `mask` broadcast to the pointer's shape. Two lanes that write one address leave one
    of the two values. `cache_modifier` is "", ".wb", ".cg", ".cs" or ".wt"; `eviction_policy` as
    for `load`.
    """
    outside_kernel(store)
