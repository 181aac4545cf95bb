"""Elementwise kernels with broadcasting, on any strides.

The index space is `[size0, size1, size2, size3]`, to which the caller has collapsed its shape; a broadcast
axis has stride 0. The three outer axes are the rows of a tile, the inner axis its columns. Program
axis 0 counts blocks of columns and axis 1 strides over blocks of rows, because a grid may be 2^31 - 1 wide but
only 65,535 high, and because this order needs no division in the common case of one contiguous row.
"""

from __future__ import annotations

import tilewright.language as tl

RSQRT2 = tl.constexpr(0.7071067811865476)


@tl.kernel
def outer_offsets(rows, size0, size1, size2, stride0, stride1, stride2):  # noqa: D103
    offsets = rows * stride2
    if size0 * size1 > 1:  # 64-bit division is slow, and most launches have one outer axis
        index2 = rows % size2
        index1 = rows // size2 % size1
        index0 = rows // (size1 * size2)
        offsets = index0 * stride0 + index1 * stride1 + index2 * stride2
    return offsets


@tl.kernel
def gelu_value(a):  # noqa: D103
    value = a.to(tl.float32)
    return 0.5 * value * (1.0 + tl.erf(value * RSQRT2))


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
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.num_programs(1) * BLOCK_M
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, step):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows < rows_total)[:, None] & (columns < size3)[None, :]  # [BLOCK_M, BLOCK_N]
        x_rows = outer_offsets(rows, size0, size1, size2, x_stride0, x_stride1, x_stride2)
        y_rows = outer_offsets(rows, size0, size1, size2, y_stride0, y_stride1, y_stride2)
        out_rows = outer_offsets(rows, size0, size1, size2, out_stride0, out_stride1, out_stride2)
        a = tl.load(x + x_rows[:, None] + (columns * x_stride3)[None, :], mask=mask, other=0)
        b = tl.load(y + y_rows[:, None] + (columns * y_stride3)[None, :], mask=mask, other=0)
        tl.store(out + out_rows[:, None] + (columns * out_stride3)[None, :], a + b, mask=mask)


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
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.num_programs(1) * BLOCK_M
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, step):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows < rows_total)[:, None] & (columns < size3)[None, :]  # [BLOCK_M, BLOCK_N]
        x_rows = outer_offsets(rows, size0, size1, size2, x_stride0, x_stride1, x_stride2)
        y_rows = outer_offsets(rows, size0, size1, size2, y_stride0, y_stride1, y_stride2)
        out_rows = outer_offsets(rows, size0, size1, size2, out_stride0, out_stride1, out_stride2)
        a = tl.load(x + x_rows[:, None] + (columns * x_stride3)[None, :], mask=mask, other=0)
        b = tl.load(y + y_rows[:, None] + (columns * y_stride3)[None, :], mask=mask, other=0)
        tl.store(out + out_rows[:, None] + (columns * out_stride3)[None, :], a * b, mask=mask)


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
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.num_programs(1) * BLOCK_M
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, step):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows < rows_total)[:, None] & (columns < size3)[None, :]  # [BLOCK_M, BLOCK_N]
        x_rows = outer_offsets(rows, size0, size1, size2, x_stride0, x_stride1, x_stride2)
        out_rows = outer_offsets(rows, size0, size1, size2, out_stride0, out_stride1, out_stride2)
        a = tl.load(x + x_rows[:, None] + (columns * x_stride3)[None, :], mask=mask, other=0)
        tl.store(out + out_rows[:, None] + (columns * out_stride3)[None, :], tl.exp(a), mask=mask)


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
    """Write `x / 2 * (1 + erf(x / sqrt 2))` to `out` (Hendrycks and Gimpel 2016, exact form)."""
    rows_total = size0 * size1 * size2
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.num_programs(1) * BLOCK_M
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, step):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows < rows_total)[:, None] & (columns < size3)[None, :]  # [BLOCK_M, BLOCK_N]
        x_rows = outer_offsets(rows, size0, size1, size2, x_stride0, x_stride1, x_stride2)
        out_rows = outer_offsets(rows, size0, size1, size2, out_stride0, out_stride1, out_stride2)
        a = tl.load(x + x_rows[:, None] + (columns * x_stride3)[None, :], mask=mask, other=0)
        tl.store(out + out_rows[:, None] + (columns * out_stride3)[None, :], gelu_value(a), mask=mask)
