"""Gradients of elementwise operations that are no product of arrays, on any strides.

`kernels.elements` has their walk. The others need no kernel of their
own: the gradient of `exp` is `dy * y`, those of `mul` are `dy * y` and `dy * x`, of `add` `dy`.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.elements import map_elements
from tilewright.kernels.elementwise import lower_tail

# 1 / sqrt(2 * pi)
DENSITY_AT_0 = tl.constexpr(0.3989422804014327)
# From here on the density is below every number of f32.
FAR = tl.constexpr(20.0)


@tl.kernel
def gelu_slope(a):
    """Return `Phi(a) + a * phi(a)` in f32, of the normal distribution and its density."""
    value = a.to(tl.float32)
    tail, exponential = lower_tail(value, a.dtype)
    # At infinity the density is 0, and their product shall not be NaN.
    slope = value * (DENSITY_AT_0 * exponential)
    slope = tl.where(tl.abs(value) < FAR, slope, 0.0)
    return tl.where(value > 0, 1.0 - tail, tail) + slope


@tl.kernel
def gelu_gradient(a, gradient):
    """Return a gradient times gelu's slope, in f32."""
    return gradient.to(tl.float32) * gelu_slope(a)


@tl.kernel(
    divisible=(
        "x_stride0", "x_stride1", "x_stride2",
        "dy_stride0", "dy_stride1", "dy_stride2",
        "dx_stride0", "dx_stride1", "dx_stride2",
    ),
    unit=("x_stride3", "dy_stride3", "dx_stride3"),
)  # fmt: skip
def gelu_backward(
    x, dy, dx,
    size0, size1, size2, size3,
    x_stride0, x_stride1, x_stride2, x_stride3,
    dy_stride0, dy_stride1, dy_stride2, dy_stride3,
    dx_stride0, dx_stride1, dx_stride2, dx_stride3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `dy * (Phi(x) + x * phi(x))` to `dx`."""
    sources = (
        (x, x_stride0, x_stride1, x_stride2, x_stride3),
        (dy, dy_stride0, dy_stride1, dy_stride2, dy_stride3),
    )
    target = (dx, dx_stride0, dx_stride1, dx_stride2, dx_stride3)
    sizes = (size0, size1, size2, size3)
    map_elements(gelu_gradient, sources, target, sizes, BLOCK_M, BLOCK_N, True)
