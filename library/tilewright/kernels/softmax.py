"""Softmax over the last axis, in f32 whatever the element type.

`softmax` holds whole rows in registers: one read and one write. `softmax_looped` takes rows of any width with
the online recurrence (Milakov and Gimelshein 2018) kept per lane, so that a chunk costs one exponential an
element and no reduction; it reads twice. A row of -inf alone, or with +inf or NaN in it, gives NaN, as
the formula does.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import row_offsets

# Finite, so that the difference of two running maxima is never inf - inf.
LOWEST = tl.constexpr(-3.4028234663852886e38)


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"),
    unit=("x_stride2", "out_stride2"),
)
def softmax(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1, out_stride2,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the softmax of each row of `x` to `out`; `columns <= BLOCK_N`, a program takes BLOCK_M rows."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    mask = (rows < size0 * size1)[:, None] & (lanes < columns)[None, :]  # [BLOCK_M, BLOCK_N]
    x_rows = row_offsets(rows, size0, size1, x_stride0, x_stride1)
    out_rows = row_offsets(rows, size0, size1, out_stride0, out_stride1)
    pointers = x + x_rows[:, None] + (lanes * x_stride2)[None, :]
    values = tl.load(pointers, mask=mask, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp(values - tl.max(values, axis=1)[:, None])
    scale = 1.0 / tl.sum(exponentials, axis=1)
    pointers = out + out_rows[:, None] + (lanes * out_stride2)[None, :]
    tl.store(pointers, exponentials * scale[:, None], mask=mask)


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"),
    unit=("x_stride2", "out_stride2"),
)
def softmax_looped(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1, out_stride2,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the softmax of each row of `x` to `out`, rows of any width; a program takes one row."""
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    out_row = out + row_offsets(row, size0, size1, out_stride0, out_stride1)
    running_max = tl.full((BLOCK_N,), LOWEST, tl.float32)
    running_sum = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = tl.load(x_row + lanes * x_stride2, mask=lanes < columns, other=float("-inf"))
        difference = values.to(tl.float32) - running_max
        decay = tl.exp(-tl.abs(difference))  # the larger of old and new maximum has weight 1
        running_sum = tl.where(difference > 0, running_sum * decay + 1.0, running_sum + decay)
        running_max = tl.maximum(running_max, values.to(tl.float32))
    row_max = tl.max(running_max, axis=0)
    scale = 1.0 / tl.sum(running_sum * tl.exp(running_max - row_max), axis=0)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = tl.load(x_row + lanes * x_stride2, mask=lanes < columns, other=float("-inf"))
        result = tl.exp(values.to(tl.float32) - row_max) * scale
        tl.store(out_row + lanes * out_stride2, result, mask=lanes < columns)
