"""Gradients of elementwise operations that are no product of arrays, on any strides.

The index space and its grid are those of `kernels.elementwise`. The others need no kernel of their
own: the gradient of `exp` is `dy * y`, those of `mul` are `dy * y` and `dy * x`, of `add` `dy`.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.elementwise import load_tile, lower_tail, row_pointers
from tilewright.kernels.rows import store_row

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
def gelu_backward_tile(x_rows, dy_rows, dx_rows, lanes, x_stride, dy_stride, dx_stride, mask):
    """Compute one tile `[BLOCK_M, BLOCK_N]`; `mask` is None for a full one."""
    a = load_tile(x_rows, lanes, x_stride, mask)
    gradient = load_tile(dy_rows, lanes, dy_stride, mask)
    store_row(dx_rows, lanes, dx_stride, gradient.to(tl.float32) * gelu_slope(a), mask)


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
    rows_total = size0 * size1 * size2
    column = tl.program_id(0) * BLOCK_N
    lanes = tl.arange(0, BLOCK_N)[None, :]
    width = tl.minimum(size3 - column, BLOCK_N).to(tl.int32)
    step = tl.num_programs(1) * BLOCK_M
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, step):
        rows = first + tl.arange(0, BLOCK_M)
        x_rows = row_pointers(
            x, rows, column, size0, size1, size2, x_stride0, x_stride1, x_stride2, x_stride3
        )
        dy_rows = row_pointers(
            dy, rows, column, size0, size1, size2, dy_stride0, dy_stride1, dy_stride2, dy_stride3
        )
        dx_rows = row_pointers(
            dx, rows, column, size0, size1, size2, dx_stride0, dx_stride1, dx_stride2, dx_stride3
        )
        if (width == BLOCK_N) & (first + BLOCK_M <= rows_total):
            gelu_backward_tile(
                x_rows, dy_rows, dx_rows, lanes, x_stride3, dy_stride3, dx_stride3, None
            )
        else:
            mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
            gelu_backward_tile(
                x_rows, dy_rows, dx_rows, lanes, x_stride3, dy_stride3, dx_stride3, mask
            )
