"""Softmax over the last axis, in f32 whatever the narrower element type, in f64 for f64.

`softmax` holds whole rows in registers, `softmax_row` one long row in parts: one read of memory and
one write. `softmax_looped` takes rows of any width with the online recurrence (Milakov and
Gimelshein 2018) kept per lane, so that a chunk costs one exponential an element and no reduction;
it reads twice. A row of -inf alone, or with +inf or NaN in it, gives NaN, as the formula does.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import (
    are_alike,
    edge_of,
    in_f32,
    is_full,
    leading,
    load_chunk,
    load_part,
    load_parts,
    load_row,
    row_offsets,
    row_widths,
    store_part,
    store_row,
    working_dtype,
)

# The maximum is taken off before the factor: a large product would round away what matters.
LOG2_E = tl.constexpr(1.4426950408889634)
# Below it the rounding error of its product with the factor is at most 1, and cancels.
LARGE = tl.constexpr(1e7)
# Finite, so that the difference of two running maxima is never inf - inf.
LOWEST = tl.constexpr(-3.4028234663852886e38)
LOWEST_64 = tl.constexpr(-1.7976931348623157e308)
# From here on, rows of 2-byte elements are read again rather than kept in f32.
WIDE = tl.constexpr(16384)


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
    divisible=("columns", "x_stride0", "x_stride1", "out_stride0", "out_stride1"),
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


@tl.kernel
def softmax_of_row(x_row, out_row, lead, width, PART: tl.constexpr):
    """Write the softmax of a row of `lead` elements and of `width <= 4 * PART` from `x_row` on."""
    body = width & -8
    has_edge = (lead > 0) | (body < width)
    lanes, inside = edge_of(lead, body, width, 16)
    a, b, c, d, edge = load_parts(x_row, body, lanes, inside, float("-inf"), PART)
    a, b, c, d, edge = in_f32(a, b, c, d, edge)
    row_max = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)), axis=0)
    if has_edge:
        row_max = tl.maximum(row_max, tl.max(edge, axis=0))
    if tl.abs(row_max) < LARGE:
        # A multiply-add takes off what is for all elements the same rounded product: it cancels.
        top = row_max * LOG2_E
        a = tl.exp2(tl.fma(a, LOG2_E, -top))
        b = tl.exp2(tl.fma(b, LOG2_E, -top))
        c = tl.exp2(tl.fma(c, LOG2_E, -top))
        d = tl.exp2(tl.fma(d, LOG2_E, -top))
        edge = tl.exp2(tl.fma(edge, LOG2_E, -top))
    else:
        a = tl.exp2((a - row_max) * LOG2_E)
        b = tl.exp2((b - row_max) * LOG2_E)
        c = tl.exp2((c - row_max) * LOG2_E)
        d = tl.exp2((d - row_max) * LOG2_E)
        edge = tl.exp2((edge - row_max) * LOG2_E)
    total = tl.sum((a + b) + (c + d), axis=0)
    if has_edge:
        total = total + tl.sum(edge, axis=0)
    scale = 1.0 / total
    store_part(out_row, 0, PART, body, a * scale)
    store_part(out_row, PART, 2 * PART, body, b * scale)
    store_part(out_row, 2 * PART, 3 * PART, body, c * scale)
    store_part(out_row, 3 * PART, 4 * PART, body, d * scale)
    if has_edge:
        tl.store(out_row + lanes, edge * scale, mask=inside)


@tl.kernel
def exponential(values, row_max):
    """Return the exponentials of what lies below the maximum of a row."""
    return tl.exp2((values.to(tl.float32) - row_max) * LOG2_E)


@tl.kernel
def softmax_of_wide_row(x_row, out_row, lead, width, PART: tl.constexpr):
    """Write the softmax of a row of 2-byte elements whose f32 values would take all registers.

    It waits in its own type, and half of it is read again, from the L1 cache: two programs fit a
    multiprocessor, so that one loads while the other computes. A part is read before it is written.
    """
    body = width & -8
    has_edge = (lead > 0) | (body < width)
    lanes, inside = edge_of(lead, body, width, 16)
    lowest = float("-inf")
    a = load_part(x_row, 0, PART, body, lowest, "")
    b = load_part(x_row, PART, 2 * PART, body, lowest, "")
    c = load_part(x_row, 2 * PART, 3 * PART, body, lowest, "")
    d = load_part(x_row, 3 * PART, 4 * PART, body, lowest, "")
    edge = tl.load(x_row + lanes, mask=inside, other=lowest)
    row_max = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)), axis=0).to(tl.float32)
    if has_edge:
        row_max = tl.maximum(row_max, tl.max(edge.to(tl.float32), axis=0))
    a = exponential(a, row_max)
    b = exponential(b, row_max)
    edge = exponential(edge, row_max)
    total = tl.sum((a + b) + (exponential(c, row_max) + exponential(d, row_max)), axis=0)
    if has_edge:
        total = total + tl.sum(edge, axis=0)
    scale = 1.0 / total
    # Behind a store, which may have changed what is read: the compiler has to load it again.
    store_part(out_row, 0, PART, body, a * scale)
    c = load_part(x_row, 2 * PART, 3 * PART, body, lowest, "")
    store_part(out_row, PART, 2 * PART, body, b * scale)
    d = load_part(x_row, 3 * PART, 4 * PART, body, lowest, "")
    store_part(out_row, 2 * PART, 3 * PART, body, exponential(c, row_max) * scale)
    store_part(out_row, 3 * PART, 4 * PART, body, exponential(d, row_max) * scale)
    if has_edge:
        tl.store(out_row + lanes, edge * scale, mask=inside)


@tl.kernel
def softmax_of_walked_row(x_row, out_row, columns, x_stride, out_stride, BLOCK_N: tl.constexpr):
    """Write the softmax of a row of any width, chunk by chunk, twice."""
    working = working_dtype(x_row.dtype)
    running_max = tl.full((BLOCK_N,), LOWEST_64 if working == tl.float64 else LOWEST, working)
    running_sum = tl.zeros((BLOCK_N,), working)
    # Full chunks without a mask, then the rest of the row with one. Each is loaded while the one
    # before it is worked on. The way back begins with the chunk that the way there ended with.
    full = columns // BLOCK_N * BLOCK_N
    chunk = load_chunk(x_row, 0, x_stride, full > 0, 0, BLOCK_N)
    for start in range(0, full, BLOCK_N):
        values = chunk
        following = start + BLOCK_N
        chunk = load_chunk(x_row, following, x_stride, following < full, values, BLOCK_N)
        running_max, running_sum = take_chunk(running_max, running_sum, values.to(working))
    lanes = full + tl.arange(0, BLOCK_N)
    if full < columns:
        values = load_row(x_row, lanes, x_stride, lanes < columns, float("-inf"))
        running_max, running_sum = take_chunk(running_max, running_sum, values)
    row_max = tl.max(running_max, axis=0)
    scale = 1.0 / tl.sum(running_sum * tl.exp2((running_max - row_max) * LOG2_E), axis=0)
    if full < columns:
        values = load_row(x_row, lanes, x_stride, lanes < columns, float("-inf"))
        result = tl.exp2((values - row_max) * LOG2_E) * scale
        store_row(out_row, lanes, out_stride, result, lanes < columns)
    for passed in range(0, full, BLOCK_N):
        values = chunk
        start = full - BLOCK_N - passed
        chunk = load_chunk(x_row, start - BLOCK_N, x_stride, start > 0, values, BLOCK_N)
        result = tl.exp2((values.to(working) - row_max) * LOG2_E) * scale
        store_row(out_row, start + tl.arange(0, BLOCK_N), out_stride, result, None)


@tl.kernel(divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"))
def softmax_row(
    x, out,
    size0, size1, columns,
    x_stride0, x_stride1,
    out_stride0, out_stride1,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the softmax of each row of `x` to `out`, `columns <= BLOCK_N`; a program takes one."""
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    out_row = out + row_offsets(row, size0, size1, out_stride0, out_stride1)
    width = columns.to(tl.int32)
    lead = leading(x_row, 16)
    if are_alike(x_row, out_row, 16) & ((lead == 0) | (lead <= columns)):
        x_row = tl.multiple_of(x_row + lead, 16)
        out_row = tl.multiple_of(out_row + lead, 16)
        width = width - lead.to(tl.int32)
        if BLOCK_N >= WIDE and x.dtype != tl.float32:
            softmax_of_wide_row(x_row, out_row, lead.to(tl.int32), width, BLOCK_N // 4)
        else:
            softmax_of_row(x_row, out_row, lead.to(tl.int32), width, BLOCK_N // 4)
    elif BLOCK_N >= WIDE and x.dtype != tl.float32:
        # One element at a time: a whole row would take twice the registers.
        softmax_of_walked_row(x_row, out_row, columns, 1, 1, BLOCK_N // 8)
    else:
        softmax_of_row(x_row, out_row, 0, width, BLOCK_N // 4)


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
    softmax_of_walked_row(x_row, out_row, columns, x_stride2, out_stride2, BLOCK_N)
