"""Atomic operations: each reads, computes and writes an element of global memory in one step.

All take a pointer or a tile of pointers, and what they store is cast to the pointer's element type,
of 16, 32 or 64 bits. Lanes whose `mask` is false touch nothing. The result is what the elements
were before, 0 where the mask is false. Lanes that meet in one element all take effect, in any
order; where the result is not used, the operation is cheaper.

`sem` is "relaxed", "acquire", "release" or "acq_rel", the default, and orders the other accesses of
the whole program: a release is behind all that the program did before, an acquire ahead of all that
it does later. Counts and sums need no order: with "relaxed" they need no fences either. `scope`
says who may take part: "gpu" (the default), the program alone ("cta"), or the host and other GPUs
too ("sys").
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = [
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
]


@operation
def atomic_add(
    pointer: Tile,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Add `val` to the elements at `pointer`; return what they were.

    Integers wrap, floats round to nearest even, in whatever order the lanes come. Numbers of f32
    that are too small to be normal count as zero, as the hardware has it.
    """
    outside_kernel(atomic_add)


@operation
def atomic_max(
    pointer: Tile,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Replace the elements at `pointer` by `val` where that is greater; return what they were.

    -0 is below +0. A NaN in `val` is greater than all numbers, and stays.
    """
    outside_kernel(atomic_max)


@operation
def atomic_min(
    pointer: Tile,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Replace the elements at `pointer` by `val` where that is less; return what they were.

    -0 is below +0. A NaN in `val` is less than all numbers, and stays.
    """
    outside_kernel(atomic_min)


@operation
def atomic_and(
    pointer: Tile,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Clear the bits at `pointer` that `val` lacks; return what the integers were."""
    outside_kernel(atomic_and)


@operation
def atomic_or(
    pointer: Tile,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Set the bits at `pointer` that `val` has; return what the integers were."""
    outside_kernel(atomic_or)


@operation
def atomic_xor(
    pointer: Tile,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Turn over the bits at `pointer` that `val` has; return what the integers were."""
    outside_kernel(atomic_xor)


@operation
def atomic_xchg(
    pointer: Tile,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Replace the elements at `pointer` by `val`; return what they were."""
    outside_kernel(atomic_xchg)


@operation
def atomic_cas(
    pointer: Tile,
    cmp: Operand,
    val: Operand,
    mask: Operand | None = None,
    sem: str | constexpr | None = None,
    scope: str | constexpr | None = None,
) -> Tile:
    """Replace the elements at `pointer` that are `cmp` by `val`; return what they were.

    Bits are compared, so a NaN may be equal and -0 is not +0. It succeeded where the result is
    `cmp`:

        while tl.atomic_cas(lock, 0, 1, sem="acquire") != 0:
            pass
        ...
        tl.atomic_xchg(lock, 0, sem="release")
    """
    outside_kernel(atomic_cas)
