"""The program and its place in the grid, loops, and checks at compile time."""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from collections.abc import Iterator
from typing import overload

from tilewright.errors import ArgumentValueError
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = [
    "cdiv",
    "next_power_of_2",
    "num_programs",
    "program_id",
    "range",
    "static_assert",
    "static_range",
]


@operation
def program_id(axis: int | constexpr) -> Tile:
    """Return this program's index along `axis` (0, 1 or 2) of the grid, an i64 scalar."""
    outside_kernel(program_id)


@operation
def num_programs(axis: int | constexpr) -> Tile:
    """Return the extent of the grid along `axis` (0, 1 or 2), an i64 scalar."""
    outside_kernel(num_programs)


@operation
def range(
    start: Operand,
    end: Operand | None = None,
    step: Operand = 1,
    *,
    num_stages: int | constexpr | None = None,
    loop_unroll_factor: int | constexpr | None = None,
    flatten: bool | constexpr = False,
    warp_specialize: bool | constexpr = False,
    disallow_acc_multi_buffer: bool | constexpr = False,
    disable_licm: bool | constexpr = False,
) -> Iterator[Tile]:
    """Loop at run time over `start, start + step, ...` below `end`; with one argument from 0 to it.

    A negative `step` must be known at compile time and loops down to above `end`; a step known only
    at run time must be positive. Bounds are integers, and the loop variable has their promoted
    dtype; it has no value after the loop, which may not have run. `num_stages` overrides the
    launch's number of stages for the loads of this loop. `loop_unroll_factor` makes so many
    iterations one, and a loop for the rest; for that the step must be known at compile time, and
    the loop have no `break`.

    The other options are hints to schedules that Triton has. They change no result, and the
    schedules here decide these things themselves.
    """
    outside_kernel(range)


@operation
def static_range(
    start: int | constexpr, end: int | constexpr | None = None, step: int | constexpr = 1
) -> Iterator[int]:
    """Loop over bounds known at compile time: unrolled, with a constexpr as its variable.

    At most 4096 iterations.
    """
    outside_kernel(static_range)


@operation
def static_assert(condition: Operand, message: str | constexpr = "") -> None:
    """Fail the compilation with `message` unless `condition`, known at compile time, is true."""
    outside_kernel(static_assert)


@overload
def cdiv(x: int, y: int) -> int: ...  # type: ignore[overload-overlap]  # ints: outside a kernel


@overload
def cdiv(x: Operand, y: Operand) -> Tile: ...


@operation
def cdiv(x: Operand, y: Operand) -> int | Tile:
    """Return `x / y` rounded up, for integers `x >= 0` and `y > 0`; a constexpr if both are.

    Outside a kernel, where a grid is computed, it takes ints, and raises ArgumentValueError for
    a `y` of 0.
    """
    if not isinstance(x, int) or not isinstance(y, int):
        outside_kernel(cdiv)
    if y == 0:
        msg = f"tl.cdiv({x}, 0) divides by zero: `y` is positive"
        raise ArgumentValueError(msg)
    return -(-x // y)


@overload
def next_power_of_2(n: int) -> int: ...


@overload
def next_power_of_2(n: constexpr) -> Tile: ...


@operation
def next_power_of_2(n: int | constexpr) -> int | Tile:
    """Return the least power of two that is at least `n`, known at compile time.

    Outside a kernel, where a tile's extent is chosen, it takes an int.
    """
    if not isinstance(n, int):
        outside_kernel(next_power_of_2)
    return 1 << max(n - 1, 0).bit_length()
