"""Sum and maximum over the last axis, in f32 whatever the element type and rounded once at the end.

The order of combination depends on the width and the configuration alone, so equal inputs give
equal bits. A maximum is NaN if any element is; the sum of an empty row is 0, its maximum -inf.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import is_full, load_row, row_offsets, row_widths


@tl.kernel(divisible=("columns", "x_stride0", "x_stride1"), unit=("x_stride2",))
def sum_rows(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the sum of each row of `x` to `out`.

    `columns <= BLOCK_N`; a program takes BLOCK_M rows.
    """
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    x_rows = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None]
    pointers = out + row_offsets(rows, size0, size1, out_stride0, out_stride1)
    if is_full(first, size0, size1, columns, BLOCK_M, BLOCK_N):
        values = load_row(x_rows, lanes, x_stride2, None, 0)
        tl.store(pointers, tl.sum(values, axis=1))
    else:
        mask = lanes < row_widths(rows, size0, size1, columns)[:, None]
        values = load_row(x_rows, lanes, x_stride2, mask, 0)
        tl.store(pointers, tl.sum(values, axis=1), mask=rows < size0 * size1)


@tl.kernel(divisible=("x_stride0", "x_stride1"), unit=("x_stride2",))
def sum_rows_looped(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the sum of each row of `x` to `out`.

    Rows have any width; a program takes one.
    """
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    running = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = load_row(x_row, lanes, x_stride2, lanes < columns, 0)
        running = running + values
    result = tl.sum(running, axis=0)
    tl.store(out + row_offsets(row, size0, size1, out_stride0, out_stride1), result)


@tl.kernel(divisible=("columns", "x_stride0", "x_stride1"), unit=("x_stride2",))
def max_rows(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the maximum of each row of `x` to `out`.

    `columns <= BLOCK_N`; a program takes BLOCK_M rows.
    """
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    x_rows = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None]
    pointers = out + row_offsets(rows, size0, size1, out_stride0, out_stride1)
    if is_full(first, size0, size1, columns, BLOCK_M, BLOCK_N):
        values = load_row(x_rows, lanes, x_stride2, None, float("-inf"))
        tl.store(pointers, tl.max(values, axis=1))
    else:
        mask = lanes < row_widths(rows, size0, size1, columns)[:, None]
        values = load_row(x_rows, lanes, x_stride2, mask, float("-inf"))
        tl.store(pointers, tl.max(values, axis=1), mask=rows < size0 * size1)


@tl.kernel(divisible=("x_stride0", "x_stride1"), unit=("x_stride2",))
def max_rows_looped(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the maximum of each row of `x` to `out`.

    Rows have any width; a program takes one.
    """
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    running = tl.full((BLOCK_N,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = load_row(x_row, lanes, x_stride2, lanes < columns, float("-inf"))
        running = tl.maximum(running, values)
    result = tl.max(running, axis=0)
    tl.store(out + row_offsets(row, size0, size1, out_stride0, out_stride1), result)
