"""Elementwise mathematics on tiles and scalars.

Operands broadcast and promote. Functions of floats take integers as f32. f16 and bf16 are computed
in f32 and rounded once. "Exact" means the correctly rounded result; "4 ulp" that the f32 result is
at most 4 units in the last place away from it.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile

__all__ = [
    "abs", "ceil", "clamp", "cos", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2",
    "maximum", "minimum", "rsqrt", "sigmoid", "sin", "sqrt", "tanh", "where",
]  # fmt: skip


@operation
def exp(x: Operand) -> Tile:
    """Return `e ** x`, 4 ulp."""
    outside_kernel(exp)


@operation
def exp2(x: Operand) -> Tile:
    """Return `2 ** x`, 4 ulp; 0 where that is subnormal."""
    outside_kernel(exp2)


@operation
def log(x: Operand) -> Tile:
    """Return the natural logarithm, 4 ulp; -inf at 0, NaN below."""
    outside_kernel(log)


@operation
def log2(x: Operand) -> Tile:
    """Return the logarithm to base 2, 4 ulp; -inf at 0, NaN below."""
    outside_kernel(log2)


@operation
def sqrt(x: Operand) -> Tile:
    """Return the square root, exact; NaN below 0."""
    outside_kernel(sqrt)


@operation
def rsqrt(x: Operand) -> Tile:
    """Return `1 / sqrt(x)`, 4 ulp; inf at 0, NaN below."""
    outside_kernel(rsqrt)


@operation
def sin(x: Operand) -> Tile:
    """Return the sine of `x` in radians, 4 ulp for `|x| < 1e5`."""
    outside_kernel(sin)


@operation
def cos(x: Operand) -> Tile:
    """Return the cosine of `x` in radians, 4 ulp for `|x| < 1e5`."""
    outside_kernel(cos)


@operation
def tanh(x: Operand) -> Tile:
    """Return the hyperbolic tangent, 4 ulp."""
    outside_kernel(tanh)


@operation
def erf(x: Operand) -> Tile:
    """Return the error function, 4 ulp."""
    outside_kernel(erf)


@operation
def sigmoid(x: Operand) -> Tile:
    """Return `1 / (1 + exp(-x))`, computed so that it overflows for no `x`."""
    outside_kernel(sigmoid)


@operation
def abs(x: Operand) -> Tile:
    """Return the magnitude, exact, in the dtype of `x`; the lowest integer gives itself."""
    outside_kernel(abs)


@operation
def floor(x: Operand) -> Tile:
    """Return the largest integer not above `x`, as a float of the dtype of `x`."""
    outside_kernel(floor)


@operation
def ceil(x: Operand) -> Tile:
    """Return the smallest integer not below `x`, as a float of the dtype of `x`."""
    outside_kernel(ceil)


@operation
def fma(x: Operand, y: Operand, z: Operand) -> Tile:
    """Return `x * y + z`, rounded once."""
    outside_kernel(fma)


@operation
def fdiv(x: Operand, y: Operand) -> Tile:
    """Return the approximate float quotient `x / y`; `/` is the correctly rounded one.

    In f32 within 2 units in the last place for `2**-126 <= |y| <= 2**126`; beyond, and where an
    operand or the result is subnormal, the result may be 0. f64 is divided exactly.
    """
    outside_kernel(fdiv)


@operation
def maximum(x: Operand, y: Operand) -> Tile:
    """Return the larger of two, elementwise; NaN if either is NaN."""
    outside_kernel(maximum)


@operation
def minimum(x: Operand, y: Operand) -> Tile:
    """Return the smaller of two, elementwise; NaN if either is NaN."""
    outside_kernel(minimum)


@operation
def clamp(x: Operand, low: Operand, high: Operand) -> Tile:
    """Return `minimum(maximum(x, low), high)`; NaN if any of the three is NaN."""
    outside_kernel(clamp)


@operation
def where(condition: Operand, x: Operand, y: Operand) -> Tile:
    """Return `x` where `condition` (i1) is true and `y` elsewhere.

    All three broadcast; `x` and `y` promote. Both are computed: this is no branch.
    """
    outside_kernel(where)
