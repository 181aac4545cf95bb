"""Elementwise kernels with broadcasting, on any strides.

The index space is `[size0, size1, size2, size3]`, to which the caller has collapsed its shape; a
broadcast axis has stride 0. The three outer axes are the rows of a tile, the inner axis its
columns. Program axis 0 counts blocks of columns and axis 1 strides over blocks of rows, because a
grid may be 2^31 - 1 wide but only 65,535 high, and because this order needs no division in the
common case of one contiguous row.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import store_row

MINUS_HALF_LOG2_E = tl.constexpr(-0.7213475204444817)


@tl.kernel
def row_pointers(base, rows, column, size0, size1, size2, stride0, stride1, stride2, stride3):
    """Return pointers to element `column` of each row; `rows` counts over the three outer axes."""
    offsets = rows * stride2
    if size0 * size1 > 1:  # 64-bit division is slow, and most launches have one outer axis
        index2 = rows % size2
        index1 = rows // size2 % size1
        index0 = rows // (size1 * size2)
        offsets = index0 * stride0 + index1 * stride1 + index2 * stride2
    return base + (offsets + column * stride3)[:, None]


@tl.kernel
def load_tile(pointers, lanes, stride, mask):
    """Load a tile of rows; a stride of 1 that only the launch knows spares the multiplications."""
    if stride == 1:
        values = tl.load(pointers + lanes, mask=mask)
    else:
        values = tl.load(pointers + lanes * stride, mask=mask)
    return values


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
def add_tile(x_rows, y_rows, out_rows, lanes, x_stride, y_stride, out_stride, mask):
    """Compute one tile `[BLOCK_M, BLOCK_N]`; `mask` is None for a full one."""
    a = load_tile(x_rows, lanes, x_stride, mask)
    b = load_tile(y_rows, lanes, y_stride, mask)
    store_row(out_rows, lanes, out_stride, a + b, mask)


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
        y_rows = row_pointers(
            y, rows, column, size0, size1, size2, y_stride0, y_stride1, y_stride2, y_stride3
        )
        out_rows = row_pointers(
            out,
            rows,
            column,
            size0,
            size1,
            size2,
            out_stride0,
            out_stride1,
            out_stride2,
            out_stride3,
        )
        if (width == BLOCK_N) & (first + BLOCK_M <= rows_total):
            add_tile(x_rows, y_rows, out_rows, lanes, x_stride3, y_stride3, out_stride3, None)
        else:
            mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
            add_tile(x_rows, y_rows, out_rows, lanes, x_stride3, y_stride3, out_stride3, mask)


@tl.kernel
def mul_tile(x_rows, y_rows, out_rows, lanes, x_stride, y_stride, out_stride, mask):
    """Compute one tile `[BLOCK_M, BLOCK_N]`; `mask` is None for a full one."""
    a = load_tile(x_rows, lanes, x_stride, mask)
    b = load_tile(y_rows, lanes, y_stride, mask)
    store_row(out_rows, lanes, out_stride, a * b, mask)


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
        y_rows = row_pointers(
            y, rows, column, size0, size1, size2, y_stride0, y_stride1, y_stride2, y_stride3
        )
        out_rows = row_pointers(
            out,
            rows,
            column,
            size0,
            size1,
            size2,
            out_stride0,
            out_stride1,
            out_stride2,
            out_stride3,
        )
        if (width == BLOCK_N) & (first + BLOCK_M <= rows_total):
            mul_tile(x_rows, y_rows, out_rows, lanes, x_stride3, y_stride3, out_stride3, None)
        else:
            mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
            mul_tile(x_rows, y_rows, out_rows, lanes, x_stride3, y_stride3, out_stride3, mask)


@tl.kernel
def exp_tile(x_rows, out_rows, lanes, x_stride, out_stride, mask):
    """Compute one tile `[BLOCK_M, BLOCK_N]`; `mask` is None for a full one."""
    a = load_tile(x_rows, lanes, x_stride, mask)
    store_row(out_rows, lanes, out_stride, tl.exp(a), mask)


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
        out_rows = row_pointers(
            out,
            rows,
            column,
            size0,
            size1,
            size2,
            out_stride0,
            out_stride1,
            out_stride2,
            out_stride3,
        )
        if (width == BLOCK_N) & (first + BLOCK_M <= rows_total):
            exp_tile(x_rows, out_rows, lanes, x_stride3, out_stride3, None)
        else:
            mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
            exp_tile(x_rows, out_rows, lanes, x_stride3, out_stride3, mask)


@tl.kernel
def gelu_tile(x_rows, out_rows, lanes, x_stride, out_stride, mask):
    """Compute one tile `[BLOCK_M, BLOCK_N]`; `mask` is None for a full one."""
    a = load_tile(x_rows, lanes, x_stride, mask)
    store_row(out_rows, lanes, out_stride, gelu_value(a), mask)


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
        out_rows = row_pointers(
            out,
            rows,
            column,
            size0,
            size1,
            size2,
            out_stride0,
            out_stride1,
            out_stride2,
            out_stride3,
        )
        if (width == BLOCK_N) & (first + BLOCK_M <= rows_total):
            gelu_tile(x_rows, out_rows, lanes, x_stride3, out_stride3, None)
        else:
            mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
            gelu_tile(x_rows, out_rows, lanes, x_stride3, out_stride3, mask)
