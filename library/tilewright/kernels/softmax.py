"""Softmax over the last axis, in f32 whatever the element type.

`softmax` holds whole rows in registers: one read and one write. `softmax_looped` takes rows of any
width with the online recurrence (Milakov and Gimelshein 2018) kept per lane, so that a chunk costs
one exponential an element and no reduction; it reads twice. A row of -inf alone, or with +inf or
NaN in it, gives NaN, as the formula does.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import is_full, load_row, row_offsets, row_widths, store_row

# The maximum is taken off before the factor: a large product would round away what matters.
LOG2_E = tl.constexpr(1.4426950408889634)
# Finite, so that the difference of two running maxima is never inf - inf.
LOWEST = tl.constexpr(-3.4028234663852886e38)


@tl.kernel
def take_chunk(running_max, running_sum, values):
    """Take a chunk into each lane's maximum and its sum of exponentials relative to that."""
    difference = values - running_max
    decay = tl.exp2(-tl.abs(difference) * LOG2_E)  # of old and new maximum the larger weighs 1
    running_sum = tl.where(difference > 0, running_sum * decay + 1.0, running_sum + decay)
    return tl.maximum(running_max, values), running_sum


@tl.kernel
def softmax_tile(x_rows, out_rows, lanes, x_stride, out_stride, mask):
    """Write the softmax of the rows of one tile `[BLOCK_M, BLOCK_N]`."""
    values = load_row(x_rows, lanes, x_stride, mask, float("-inf"))
    exponentials = tl.exp2((values - tl.max(values, axis=1)[:, None]) * LOG2_E)
    scale = 1.0 / tl.sum(exponentials, axis=1)
    store_row(out_rows, lanes, out_stride, exponentials * scale[:, None], mask)


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
    """Write the softmax of each row of `x` to `out`.

    `columns <= BLOCK_N`; a program takes BLOCK_M rows.
    """
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    x_rows = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None]
    out_rows = out + row_offsets(rows, size0, size1, out_stride0, out_stride1)[:, None]
    if is_full(first, size0, size1, columns, BLOCK_M, BLOCK_N):
        softmax_tile(x_rows, out_rows, lanes, x_stride2, out_stride2, None)
    else:
        mask = lanes < row_widths(rows, size0, size1, columns)[:, None]
        softmax_tile(x_rows, out_rows, lanes, x_stride2, out_stride2, mask)


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
    # Full chunks without a mask, then the rest of the row with one.
    full = columns // BLOCK_N * BLOCK_N
    for start in range(0, full, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = load_row(x_row, lanes, x_stride2, None, LOWEST)
        running_max, running_sum = take_chunk(running_max, running_sum, values)
    lanes = full + tl.arange(0, BLOCK_N)
    if full < columns:
        values = load_row(x_row, lanes, x_stride2, lanes < columns, float("-inf"))
        running_max, running_sum = take_chunk(running_max, running_sum, values)
    row_max = tl.max(running_max, axis=0)
    scale = 1.0 / tl.sum(running_sum * tl.exp2((running_max - row_max) * LOG2_E), axis=0)
    if full < columns:
        values = load_row(x_row, lanes, x_stride2, lanes < columns, float("-inf"))
        result = tl.exp2((values - row_max) * LOG2_E) * scale
        store_row(out_row, lanes, out_stride2, result, lanes < columns)
    for start in range(0, full, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = load_row(x_row, lanes, x_stride2, None, LOWEST)
        result = tl.exp2((values - row_max) * LOG2_E) * scale
        store_row(out_row, lanes, out_stride2, result, None)
