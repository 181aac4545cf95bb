"""Sum and maximum over the last axis, in f32 whatever the element type and rounded once at the end.

The order of combination depends on the width and the configuration alone, so equal inputs give equal bits.
A maximum is NaN if any element is; the sum of an empty row is 0, its maximum -inf.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import row_offsets


@tl.kernel(divisible=("x_stride0", "x_stride1"), unit=("x_stride2",))
def sum_rows(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the sum of each row of `x` to `out`; `columns <= BLOCK_N`, a program takes BLOCK_M rows."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    inside = rows < size0 * size1
    mask = inside[:, None] & (lanes < columns)[None, :]  # [BLOCK_M, BLOCK_N]
    pointers = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None] + (lanes * x_stride2)[None, :]
    values = tl.load(pointers, mask=mask, other=0).to(tl.float32)
    result = tl.sum(values, axis=1)
    tl.store(out + row_offsets(rows, size0, size1, out_stride0, out_stride1), result, mask=inside)


@tl.kernel(divisible=("x_stride0", "x_stride1"), unit=("x_stride2",))
def sum_rows_looped(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the sum of each row of `x` to `out`, rows of any width; a program takes one row."""
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    running = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = tl.load(x_row + lanes * x_stride2, mask=lanes < columns, other=0).to(tl.float32)
        running = running + values
    result = tl.sum(running, axis=0)
    tl.store(out + row_offsets(row, size0, size1, out_stride0, out_stride1), result)


@tl.kernel(divisible=("x_stride0", "x_stride1"), unit=("x_stride2",))
def max_rows(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the maximum of each row of `x` to `out`; `columns <= BLOCK_N`, a program takes BLOCK_M rows."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    inside = rows < size0 * size1
    mask = inside[:, None] & (lanes < columns)[None, :]  # [BLOCK_M, BLOCK_N]
    pointers = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None] + (lanes * x_stride2)[None, :]
    values = tl.load(pointers, mask=mask, other=float("-inf")).to(tl.float32)
    result = tl.max(values, axis=1)
    tl.store(out + row_offsets(rows, size0, size1, out_stride0, out_stride1), result, mask=inside)


@tl.kernel(divisible=("x_stride0", "x_stride1"), unit=("x_stride2",))
def max_rows_looped(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the maximum of each row of `x` to `out`, rows of any width; a program takes one row."""
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    running = tl.full((BLOCK_N,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = tl.load(x_row + lanes * x_stride2, mask=lanes < columns, other=float("-inf")).to(tl.float32)
        running = tl.maximum(running, values)
    result = tl.max(running, axis=0)
    tl.store(out + row_offsets(row, size0, size1, out_stride0, out_stride1), result)
