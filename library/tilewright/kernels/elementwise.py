"""Elementwise kernels with broadcasting, on any strides; `kernels.elements` has their walk."""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.elements import map_elements

MINUS_HALF_LOG2_E = tl.constexpr(-0.7213475204444817)


@tl.kernel
def lower_tail(value, dtype):
    """Return `Phi(-|value|)`, of the normal distribution function, and `e ** (-value**2 / 2)`.

    With `t = 1 / (1 + c |value|)` the first is the second times `t * polynomial(t)`, a form after
    Abramowitz and Stegun 26.2.17 whose coefficients are a minimax fit of the relative error: within
    5e-6, or within 4e-5 for 16-bit `dtype`, whose own rounding is 2.4e-4. Where `1 + erf` would
    cancel all digits it keeps them; and it takes half the instructions of `erf`, which keeps 16-bit
    types at the speed of memory.
    """
    if dtype == tl.float32:
        t = tl.fdiv(1.0, 1.0 + 0.35 * tl.abs(value))
        series = -0.18713153898715973 + t * 0.04530210793018341
        series = 0.21534281969070435 + t * series
        series = 0.005512674804776907 + t * series
        series = 0.14460700750350952 + t * series
        series = 0.1365659534931183 + t * series
        series = 0.1398010104894638 + t * series
    else:
        t = tl.fdiv(1.0, 1.0 + 0.38 * tl.abs(value))
        series = 0.18887735903263092 - t * 0.08992908895015717
        series = 0.0919802114367485 + t * series
        series = 0.15782864391803741 + t * series
        series = 0.15122535824775696 + t * series
    exponential = tl.exp2(value * value * MINUS_HALF_LOG2_E)
    return exponential * (t * series), exponential


@tl.kernel
def gelu_value(a):
    """Return `a * Phi(a)` in f32: of f32 within 7 units in the last place for positive `a`."""
    value = a.to(tl.float32)
    tail, _ = lower_tail(value, a.dtype)
    return value * tl.where(value > 0, 1.0 - tail, tail)


@tl.kernel
def add_value(a, b):
    """Return `a + b`."""
    return a + b


@tl.kernel(
    divisible=(
        "x_stride0", "x_stride1", "x_stride2",
        "y_stride0", "y_stride1", "y_stride2",
        "out_stride0", "out_stride1", "out_stride2",
    ),
    unit=("x_stride3", "y_stride3", "out_stride3"),
)  # fmt: skip
def add(
    x, y, out,
    size0, size1, size2, size3,
    x_stride0, x_stride1, x_stride2, x_stride3,
    y_stride0, y_stride1, y_stride2, y_stride3,
    out_stride0, out_stride1, out_stride2, out_stride3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `x + y` to `out`."""
    sizes = (size0, size1, size2, size3)
    sources = (
        (x, x_stride0, x_stride1, x_stride2, x_stride3),
        (y, y_stride0, y_stride1, y_stride2, y_stride3),
    )
    target = (out, out_stride0, out_stride1, out_stride2, out_stride3)
    map_elements(add_value, sources, target, sizes, BLOCK_M, BLOCK_N, True)


@tl.kernel
def mul_value(a, b):
    """Return `a * b`."""
    return a * b


@tl.kernel(
    divisible=(
        "x_stride0", "x_stride1", "x_stride2",
        "y_stride0", "y_stride1", "y_stride2",
        "out_stride0", "out_stride1", "out_stride2",
    ),
    unit=("x_stride3", "y_stride3", "out_stride3"),
)  # fmt: skip
def mul(
    x, y, out,
    size0, size1, size2, size3,
    x_stride0, x_stride1, x_stride2, x_stride3,
    y_stride0, y_stride1, y_stride2, y_stride3,
    out_stride0, out_stride1, out_stride2, out_stride3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `x * y` to `out`."""
    sizes = (size0, size1, size2, size3)
    sources = (
        (x, x_stride0, x_stride1, x_stride2, x_stride3),
        (y, y_stride0, y_stride1, y_stride2, y_stride3),
    )
    target = (out, out_stride0, out_stride1, out_stride2, out_stride3)
    map_elements(mul_value, sources, target, sizes, BLOCK_M, BLOCK_N, True)


@tl.kernel
def exp_value(a):
    """Return `e ** a`."""
    return tl.exp(a)


@tl.kernel(
    divisible=(
        "x_stride0", "x_stride1", "x_stride2",
        "out_stride0", "out_stride1", "out_stride2",
    ),
    unit=("x_stride3", "out_stride3"),
)  # fmt: skip
def exp(
    x, out,
    size0, size1, size2, size3,
    x_stride0, x_stride1, x_stride2, x_stride3,
    out_stride0, out_stride1, out_stride2, out_stride3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `e ** x` to `out`."""
    sizes = (size0, size1, size2, size3)
    sources = ((x, x_stride0, x_stride1, x_stride2, x_stride3),)
    target = (out, out_stride0, out_stride1, out_stride2, out_stride3)
    map_elements(exp_value, sources, target, sizes, BLOCK_M, BLOCK_N, True)


@tl.kernel(
    divisible=(
        "x_stride0", "x_stride1", "x_stride2",
        "out_stride0", "out_stride1", "out_stride2",
    ),
    unit=("x_stride3", "out_stride3"),
)  # fmt: skip
def gelu(
    x, out,
    size0, size1, size2, size3,
    x_stride0, x_stride1, x_stride2, x_stride3,
    out_stride0, out_stride1, out_stride2, out_stride3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `x / 2 * (1 + erf(x / sqrt 2))` to `out` (Hendrycks and Gimpel 2016)."""
    sizes = (size0, size1, size2, size3)
    sources = ((x, x_stride0, x_stride1, x_stride2, x_stride3),)
    target = (out, out_stride0, out_stride1, out_stride2, out_stride3)
    map_elements(gelu_value, sources, target, sizes, BLOCK_M, BLOCK_N, True)
