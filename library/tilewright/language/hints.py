"""Promises about values, which let the compiler choose wider accesses, and a wish.

A promise returns its value, and holds of what it returns, where it is used. The interpreter checks
every one; on a device a broken promise makes results undefined. Along each axis the promise is a
power of two; of another number its largest power of two counts.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = ["assume", "max_constancy", "max_contiguous", "multiple_of", "resident"]

_Extents = int | constexpr | tuple[int | constexpr, ...]


@operation
def multiple_of(x: Tile, divisor: _Extents) -> Tile:
    """Return `x`, having promised that the first element of each run is a multiple of `divisor`.

    `x` is an integer or a pointer, which counts in bytes: a promise of 16 lets loads and stores go
    by 16 bytes. Of a scalar it is the value itself; of a tile, `divisor` is a number for each axis,
    and a run is as many elements as grow by 1 (a pointer by its element) along that axis.
    """
    outside_kernel(multiple_of)


@operation
def max_contiguous(x: Tile, run: _Extents) -> Tile:
    """Return `x`, having promised that along each axis every `run` elements grow by 1.

    The runs begin at multiples of `run`; `x` is a tile of integers or pointers, `run` a number for
    each axis. Written around `multiple_of`, it also says where the runs of that promise begin:
    `tl.max_contiguous(tl.multiple_of(rows, 16), 16)`.
    """
    outside_kernel(max_contiguous)


@operation
def max_constancy(x: Tile, run: _Extents) -> Tile:
    """Return `x`, having promised that along each axis every `run` elements are equal."""
    outside_kernel(max_constancy)


@operation
def assume(condition: Operand) -> None:
    """Promise that a scalar `condition` is true here.

    False at compile time is an error, and the interpreter checks the rest. That an index is not
    negative lets loads of pointers be blocks on GPUs that copy those; to allow wider accesses, use
    `multiple_of`.
    """
    outside_kernel(assume)


@operation
def resident(programs: int | constexpr) -> None:
    """Let so many programs fit a multiprocessor at once, which bounds their registers.

    Left alone, the assembler gives a thread as many as help it. A program that waits for memory
    gains more from a second one beside it. Where registers would be spilled the wish gives way.
    """
    outside_kernel(resident)
