"""Random numbers that are a function of a seed and a place: Philox 4x32-10, as Random123 has it.

There is no state: the same seed and offset give the same number in every program, on every device
and in the interpreter. Integers and uniform numbers are those of Triton to the bit; normal ones are
made of functions that are exact to 4 ulp only. The seed has 64 bits (a narrower one is
sign-extended), the offset is an integer tile or scalar, taken as unsigned: of up to 32 bits as 32
bits, else as 64, so that 2**64 places come before anything repeats. The forms ending in `4x` give
the four numbers that one evaluation makes, so four for the price of one.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = [
    "pair_uniform_to_normal",
    "philox",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
    "randn4x",
    "uint_to_uniform_float",
]

Four = tuple[Tile, Tile, Tile, Tile]


@operation
def philox(
    seed: Operand,
    c0: Operand,
    c1: Operand,
    c2: Operand,
    c3: Operand,
    n_rounds: int | constexpr = 10,
) -> Four:
    """Return the four words that Philox makes of a counter of four words under the key `seed`.

    Counters of up to 32 bits make it Philox 4x32, with the lower and the upper half of the seed as
    its key; one of 64 bits makes it Philox 4x64, with the seed and 0. Words are unsigned.
    """
    outside_kernel(philox)


@operation
def randint(seed: Operand, offset: Operand, n_rounds: int | constexpr = 10) -> Tile:
    """Return a uint32 for each offset, all values equally likely."""
    outside_kernel(randint)


@operation
def randint4x(seed: Operand, offset: Operand, n_rounds: int | constexpr = 10) -> Four:
    """Return four uint32 for each offset; the first is that of `randint`."""
    outside_kernel(randint4x)


@operation
def rand(seed: Operand, offset: Operand, n_rounds: int | constexpr = 10) -> Tile:
    """Return a float32 for each offset, uniform in [0, 1): never 1."""
    outside_kernel(rand)


@operation
def rand4x(seed: Operand, offset: Operand, n_rounds: int | constexpr = 10) -> Four:
    """Return four float32 for each offset, uniform in [0, 1); the first is that of `rand`."""
    outside_kernel(rand4x)


@operation
def randn(seed: Operand, offset: Operand, n_rounds: int | constexpr = 10) -> Tile:
    """Return a float32 for each offset, normal with mean 0 and variance 1: within 5.68."""
    outside_kernel(randn)


@operation
def randn4x(seed: Operand, offset: Operand, n_rounds: int | constexpr = 10) -> Four:
    """Return four normal float32 for each offset; the first is that of `randn`."""
    outside_kernel(randn4x)


@operation
def uint_to_uniform_float(x: Operand) -> Tile:
    """Return a float32 in [0, 1) of each random 32- or 64-bit integer.

    The integer is taken as signed, and a negative one replaced by its complement.
    """
    outside_kernel(uint_to_uniform_float)


@operation
def pair_uniform_to_normal(u1: Operand, u2: Operand) -> tuple[Tile, Tile]:
    """Return two independent normal numbers of two uniform ones, by Box and Muller's method."""
    outside_kernel(pair_uniform_to_normal)
