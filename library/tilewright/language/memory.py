"""Global memory, read and written through tiles of pointers.

A pointer parameter plus an integer tile is a tile of pointers; offsets count elements, not bytes.
Where the mask is false nothing is touched, so the pointer there may be anything. The address in
bytes of a pointer is `pointer.to(tl.int64)`.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = ["async_copy", "load", "store"]


@operation
def load(
    pointer: Tile,
    mask: Operand | None = None,
    other: Operand | None = None,
    boundary_check: tuple[int | constexpr, ...] = (),
    padding_option: str | constexpr = "",
    cache_modifier: str | constexpr = "",
    eviction_policy: str | constexpr = "",
    volatile: bool | constexpr = False,
) -> Tile:
    """Return the elements at `pointer`, of its shape and element type.

    `mask` and `other` broadcast to the pointer's shape. Where `mask` (i1) is false the result is
    `other`, cast to the element type, or 0 without one. `cache_modifier` is "", ".ca", ".cg" or
    ".cv"; `eviction_policy` is "", "evict_first" or "evict_last". Both are hints and change no
    value. A `volatile` load reads memory each time that it runs, however often, because another
    program may have written: what a loop waits for is loaded so.

    A block pointer reads its window. Along the axes in `boundary_check` lanes outside the array are
    masked, and give 0, or NaN with the `padding_option` "nan"; along others nothing is checked.
    """
    outside_kernel(load)


@operation
def async_copy(
    pointer: Tile,
    mask: Operand | None = None,
    other: Operand | None = None,
    cache_modifier: str | constexpr = "",
    eviction_policy: str | constexpr = "",
) -> Tile:
    """Return the elements at `pointer` as `load` does, copied while earlier iterations compute.

    It stands in a run-time `for`, in no `if` or `while` inside it. With n stages (`num_stages` of
    the launch or of `tl.range`), the copy for an iteration begins n - 1 iterations earlier, into
    shared memory, and is waited for where the result is. A kernel whose copy cannot run ahead is
    refused, with the reason; with one stage it is a `load`. Vectors of 4, 8 or 16 bytes whose
    masked lanes are 0 are copied by the hardware alone, others through registers.

    The kernel promises that nothing in the loop writes what is read here, or what its address is
    computed from. So it runs ahead in loops that store too, where a `load` would not.

        for row in tl.range(first, last, num_stages=4):
            values = tl.async_copy(x + row * columns + lanes, mask=lanes < columns)
            tl.store(out + row * columns + lanes, values * 2, mask=lanes < columns)
    """
    outside_kernel(async_copy)


@operation
def store(
    pointer: Tile,
    value: Operand,
    mask: Operand | None = None,
    boundary_check: tuple[int | constexpr, ...] = (),
    cache_modifier: str | constexpr = "",
    eviction_policy: str | constexpr = "",
) -> None:
    """Write `value`, cast to the pointer's element type, at `pointer` where `mask` is true.

    `value` and `mask` broadcast to the pointer's shape. Two lanes that write one address leave one
    of the two values. `cache_modifier` is "", ".wb", ".cg", ".cs" or ".wt"; `eviction_policy` as
    for `load`. A block pointer writes its window, along the axes in `boundary_check` only inside
    the array.
    """
    outside_kernel(store)
