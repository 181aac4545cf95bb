"""Elementwise mathematics on tiles and scalars.

Operands broadcast and promote. Functions of floats take integers as f32. f16 and bf16 are computed
in f32 and rounded once. "Exact" means the correctly rounded result; "4 ulp" that the f32 result is
at most 4 units in the last place away from it.
"""

# ruff: noqa: ARG001  # signatures without behaviour: only the compiler reads the arguments
from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.language.registry import operation, outside_kernel
from tilewright.language.types import Operand, Tile, constexpr

__all__ = [
    "abs", "cast", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "expm1", "fdiv", "floor",
    "fma", "log", "log1p", "log2", "maximum", "minimum", "rsqrt", "sigmoid", "sin", "softmax",
    "sqrt", "sqrt_rn", "swizzle2d", "tanh", "umulhi", "where",
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
def expm1(x: Operand) -> Tile:
    """Return `e ** x - 1`, 4 ulp also where `x` is small."""
    outside_kernel(expm1)


@operation
def log(x: Operand) -> Tile:
    """Return the natural logarithm, 4 ulp; -inf at 0, NaN below."""
    outside_kernel(log)


@operation
def log2(x: Operand) -> Tile:
    """Return the logarithm to base 2, 4 ulp; -inf at 0, NaN below."""
    outside_kernel(log2)


@operation
def log1p(x: Operand) -> Tile:
    """Return the natural logarithm of `1 + x`, 4 ulp also where `x` is small; NaN below -1."""
    outside_kernel(log1p)


@operation
def sqrt(x: Operand) -> Tile:
    """Return the square root, exact; NaN below 0."""
    outside_kernel(sqrt)


@operation
def sqrt_rn(x: Operand) -> Tile:
    """Return the square root, exact: the same as `sqrt`, which is an approximation in Triton."""
    outside_kernel(sqrt_rn)


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
    """Return `1 / (1 + exp(-x))`, 4 ulp, computed so that it overflows for no `x`."""
    outside_kernel(sigmoid)


@operation
def softmax(x: Tile, dim: int | constexpr = 0, ieee_rounding: bool | constexpr = False) -> Tile:
    """Return `exp(x - max) / sum(exp(x - max))` along axis `dim`, in the shape of `x`.

    f16 and bf16 are computed in f32 and rounded once; f32 and f64 within `8 + max - x` ulp. The
    quotient is that of `fdiv`, or with `ieee_rounding` that of `/`. A row of -inf, or with a NaN,
    gives NaN.
    """
    outside_kernel(softmax)


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
def div_rn(x: Operand, y: Operand) -> Tile:
    """Return the correctly rounded float quotient: `/`, which is an approximation in Triton."""
    outside_kernel(div_rn)


@operation
def umulhi(x: Operand, y: Operand) -> Tile:
    """Return the upper half of the product of two 32- or 64-bit integers, taken as unsigned.

    Its dtype is the promoted one, whose sign plays no part.
    """
    outside_kernel(umulhi)


@operation
def maximum(x: Operand, y: Operand, propagate_nan: bool | constexpr = True) -> Tile:
    """Return the larger of two, elementwise; +0 is above -0.

    NaN if either is NaN. With `propagate_nan=False` a NaN is passed over: the other is the result.
    """
    outside_kernel(maximum)


@operation
def minimum(x: Operand, y: Operand, propagate_nan: bool | constexpr = True) -> Tile:
    """Return the smaller of two, elementwise; -0 is below +0.

    NaN if either is NaN. With `propagate_nan=False` a NaN is passed over: the other is the result.
    """
    outside_kernel(minimum)


@operation
def clamp(x: Operand, min: Operand, max: Operand, propagate_nan: bool | constexpr = True) -> Tile:
    """Return `minimum(maximum(x, min), max)`, so `max` where `min` lies above it.

    NaN if any of the three is NaN. With `propagate_nan=False` a NaN is passed over, so NaN becomes
    `min`.
    """
    outside_kernel(clamp)


@operation
def where(condition: Operand, x: Operand, y: Operand) -> Tile:
    """Return `x` where `condition` (i1) is true and `y` elsewhere.

    All three broadcast; `x` and `y` promote. Both are computed: this is no branch.
    """
    outside_kernel(where)


@operation
def cast(
    x: Operand,
    dtype: DType,
    bitcast: bool | constexpr = False,
    fp_downcast_rounding: str | constexpr | None = None,
) -> Tile:
    """Return `x.to(...)`: the values of `x` as another dtype, or with `bitcast` its bits.

    `fp_downcast_rounding` says how a float becomes a narrower one: "rtne", the default, to nearest
    even, or "rtz" towards zero, where what is too large becomes the largest number.
    """
    outside_kernel(cast)


@operation
def swizzle2d(
    i: Operand, j: Operand, size_i: Operand, size_j: Operand, size_g: Operand
) -> tuple[Tile, Tile]:
    """Return where the place `(i, j)` of a row-major grid goes when rows are walked in groups.

    `size_g` rows form a group, and a group is walked column by column: programs that follow each
    other share columns as well as rows.
    """
    outside_kernel(swizzle2d)
