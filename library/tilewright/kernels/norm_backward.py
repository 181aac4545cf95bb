"""Gradients of the norms over the last axis, in f32 whatever the narrower type, in f64 for f64.

Of a row let `h = (x - mean) * r` be what is normalised, `r = 1 / sqrt(variance + eps)`, and
`g = dy * weight`. Then `dx = r * (g - mean(g) - h * mean(g * h))`, and summed over all rows
`dweight = dy * h` and `dbias = dy`. RMS norm takes off no mean of x and none of g; l2 norm has
`share` 1 where the others divide by the columns. Flags choose, as in the kernels forward.

`norm_backward` holds whole rows in registers and reads x and dy once. Its programs walk over the
rows and keep their sums for `dweight` and `dbias`, which each writes as one row of partial sums;
`sum_partials` adds these. Rows of any width and stride take `norm_backward_walked`, which reads
twice, and `parameters_backward`, which reads again, down the columns. The order of all sums depends
on shapes and on the GPU's multiprocessors alone: equal inputs give equal bits, without atomics.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.norm_parts import as_words, halves, is_fine, parameter, without_rest
from tilewright.kernels.rows import load_row, row_offsets, store_row, working_dtype

# From this width on, a row and sums for its columns leave no registers for the next `dy`.
FULL = tl.constexpr(8192)
# So many elements tell about where a row lies; a lane has one of them.
HEAD = tl.constexpr(32)
# Tiles of partial sums that are on their way at once: no GPU of today has more rows of them.
AT_ONCE = tl.constexpr(5)


@tl.kernel
def load_rows(pointer, rows, rows_total, lanes, columns, stride):
    """Load a tile of rows in its own type, 0 outside; rows past the last are empty."""
    mask = lanes < tl.where(rows < rows_total, columns, 0)[:, None]
    return tl.load(pointer + (rows * stride)[:, None] + lanes, mask=mask, other=0)


@tl.kernel
def first_of_rows(pointer, rows, rows_total, stride):
    """Load the first elements of rows, 0 past the last row."""
    return tl.load(pointer + rows * stride, mask=rows < rows_total, other=0)


@tl.kernel
def kept(values):
    """Return what a loop keeps of values: pairs of 2 bytes as words, which take no rearranging."""
    if is_fine(values.dtype):
        return values
    return as_words(values)


@tl.kernel
def taken(keeps, dtype: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return a tile that `kept` keeps, in f32."""
    if is_fine(dtype):
        return keeps
    low, high = halves(keeps, dtype)
    return tl.reshape(tl.interleave(low, high), (BLOCK_M, BLOCK_N))


@tl.kernel
def in_lanes(values, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr):
    """Return sums of what a thread holds of each row, a vector or several, by its first vector.

    `tl.reduce` would leave a thread's vectors apart until all neighbours have met. Of a single row
    a thread holds 16 elements; of several rows each lies in one warp.
    """
    if BLOCK_M == 1:
        return of_vectors(values, 1, 16 // VECTOR, BLOCK_N // 16, VECTOR)
    if BLOCK_N > 32 * VECTOR:
        return of_vectors(values, BLOCK_M, BLOCK_N // (32 * VECTOR), 32, VECTOR)
    return of_vectors(values, BLOCK_M, 1, BLOCK_N // VECTOR, VECTOR)


@tl.kernel
def of_vectors(
    values, BLOCK_M: tl.constexpr, COUNT: tl.constexpr, PLACES: tl.constexpr, VECTOR: tl.constexpr
):  # fmt: skip
    """Return the sums of COUNT vectors for each of PLACES, which lie side by side."""
    return tl.sum(tl.sum(tl.reshape(values, (BLOCK_M, COUNT, PLACES, VECTOR)), axis=3), axis=1)


@tl.kernel
def weights_of(keeps, block, dtype: tl.constexpr):
    """Return what `kept` keeps, in f32.

    No array has 2**62 rows, which the compiler cannot know: it would convert 2-byte weights ahead
    of the loop, and keep them in twice the registers.
    """
    if is_fine(dtype):
        return keeps
    low, high = halves(keeps ^ (block >> 62).to(tl.uint32), dtype)
    return tl.interleave(low, high)


@tl.kernel
def add_four(a, b, c, d, e, f, g, h):
    """Add four and four numbers."""
    return a + e, b + f, c + g, d + h


@tl.kernel
def four_sums(
    values, weighted, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr
):  # fmt: skip
    """Return the sums of rows, in one reduction: of squares, of products, of both factors."""
    return tl.reduce(
        (
            in_lanes(values * values, BLOCK_M, BLOCK_N, VECTOR),
            in_lanes(weighted * values, BLOCK_M, BLOCK_N, VECTOR),
            in_lanes(weighted, BLOCK_M, BLOCK_N, VECTOR),
            in_lanes(values, BLOCK_M, BLOCK_N, VECTOR),
        ),
        1,
        add_four,
    )


@tl.kernel(divisible=("columns", "x_stride", "dy_stride", "dx_stride", "bias_start"))
def norm_backward(
    x, weight, dy, dx, partials,
    rows_total, columns, x_stride, dy_stride, dx_stride, bias_start,
    has_weight, has_bias, is_centred, share, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, RESIDENT: tl.constexpr,
):  # fmt: skip
    """Write `dx`, and for each program a row of sums for `dweight` and one for `dbias`.

    `x`, `dy` and `dx` are `[rows_total, columns]`, `columns <= BLOCK_N`, with columns side by side;
    `partials` is `[programs, columns]`, and again from `bias_start` on. Each tile is loaded while
    the one before it is worked on, that of `dy` in f32 as soon as it leaves registers for it, and
    of wide rows into shared memory.
    """
    tl.resident(RESIDENT)
    vector: tl.constexpr = 16 // x.dtype.element_ty.itemsize
    first = tl.program_id(0)
    step = tl.num_programs(0)
    blocks = tl.cdiv(rows_total, BLOCK_M)
    width = columns.to(tl.int32)
    column_lanes = tl.arange(0, BLOCK_N)
    lanes = column_lanes[None, :]
    inside = column_lanes < width
    weights = kept(parameter(weight, column_lanes, inside, has_weight, 1))
    weight_sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    bias_sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    mean_share = tl.where(is_centred != 0, share, 0.0)
    rows = first * BLOCK_M + tl.arange(0, BLOCK_M)
    x_next = kept(load_rows(x, rows, rows_total, lanes, width, x_stride))
    if BLOCK_N < FULL:
        dy_next = kept(load_rows(dy, rows, rows_total, lanes, width, dy_stride))
    heads = tl.arange(0, HEAD)[None, :]
    head_share = 1.0 / tl.minimum(width, HEAD).to(tl.float32)
    if not is_fine(x.dtype):
        first_next = first_of_rows(x, rows, rows_total, x_stride)
    elif BLOCK_N >= FULL:
        head_next = load_rows(x, rows, rows_total, heads, width, x_stride)
    for block in tl.range(first, blocks, step, num_stages=2):
        rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
        following = rows + step * BLOCK_M
        mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]
        values = taken(x_next, x.dtype, BLOCK_M, BLOCK_N)
        if BLOCK_N < FULL:
            gradient = taken(dy_next, x.dtype, BLOCK_M, BLOCK_N)
            if not is_fine(dy.dtype):
                dy_next = kept(load_rows(dy, following, rows_total, lanes, width, dy_stride))
        x_next = kept(load_rows(x, following, rows_total, lanes, width, x_stride))
        # What is taken off first is the mean, of 16-bit elements a row's first one, of wide rows
        # that of their heads: that leaves a rest of the mean to take off, but threads that share a
        # row meet once for all sums.
        if is_centred != 0:
            if not is_fine(x.dtype):
                pivot = first_next.to(tl.float32)
                first_next = first_of_rows(x, following, rows_total, x_stride)
            elif BLOCK_N >= FULL:
                pivot = tl.sum(head_next * head_share, axis=1)
                head_next = load_rows(x, following, rows_total, heads, width, x_stride)
            else:
                pivot = tl.sum(values * share, axis=1)
            values = values - pivot[:, None]
            if columns < BLOCK_N:
                values = tl.where(inside[None, :], values, 0.0)
        if BLOCK_N >= FULL:  # of rows that are written, in place, after they are read
            dy_rows = dy + (rows * dy_stride)[:, None]
            gradient = tl.async_copy(dy_rows + lanes, mask=mask, other=0).to(tl.float32)
        weighted = gradient * weights_of(weights, block, weight.dtype)[None, :]
        variance, along, level, rest = four_sums(values, weighted, BLOCK_M, BLOCK_N, vector)
        rest = rest * mean_share
        variance = tl.maximum(without_rest(variance * share, rest), 0.0)
        along = along - rest * level
        factor = tl.rsqrt(variance + eps)
        if BLOCK_M > 1:  # past the last row it is infinite where eps is 0
            factor = tl.where(rows < rows_total, factor, 0.0)
        values = values * factor[:, None]
        values = values - (rest * factor)[:, None]
        weight_sums = weight_sums + gradient * values
        bias_sums = bias_sums + gradient
        slope = along * factor * share
        level = level * mean_share
        if is_fine(x.dtype):
            result = weighted - level[:, None] - values * slope[:, None]
            result = result * factor[:, None]
        else:  # an instruction less, a register more
            result = weighted * factor[:, None] - (level * factor)[:, None]
            result = result - values * (slope * factor)[:, None]
        dx_rows = dx + (rows * dx_stride)[:, None]
        tl.store(dx_rows + lanes, result, mask=mask)
        if BLOCK_N < FULL and is_fine(dy.dtype):
            dy_next = load_rows(dy, following, rows_total, lanes, width, dy_stride)
    sums = partials + first * columns
    if has_weight != 0:
        tl.store(sums + column_lanes, tl.sum(weight_sums, axis=0), mask=inside)
    if has_bias != 0:
        tl.store(sums + bias_start + column_lanes, tl.sum(bias_sums, axis=0), mask=inside)


@tl.kernel
def sum_partials(
    partials, dweight, dbias, programs, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Add the rows of `partials` `[2, programs, columns]`: those of `dweight`, or of `dbias`.

    A program takes BLOCK_N columns; the second axis of the grid chooses what it adds.
    """
    lanes = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = lanes < columns
    start = partials + tl.program_id(1) * programs * columns
    sums = tl.zeros((BLOCK_M, BLOCK_N), partials.dtype)
    for first in range(0, programs, AT_ONCE * BLOCK_M):
        for i in tl.static_range(AT_ONCE):
            rows = first + i * BLOCK_M + tl.arange(0, BLOCK_M)
            pointers = start + (rows * columns)[:, None] + lanes[None, :]
            mask = (rows < programs)[:, None] & inside[None, :]
            sums = sums + tl.load(pointers, mask=mask, other=0)
    result = tl.sum(sums, axis=0)
    if tl.program_id(1) == 0:
        tl.store(dweight + lanes, result, mask=inside)
    else:
        tl.store(dbias + lanes, result, mask=inside)


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "dy_stride0", "dy_stride1", "dx_stride0", "dx_stride1"),
    unit=("x_stride2", "dy_stride2", "dx_stride2"),
)
def norm_backward_walked(
    x, weight, dy, dx, statistics,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    dy_stride0, dy_stride1, dy_stride2,
    dx_stride0, dx_stride1, dx_stride2,
    has_weight, is_centred, share, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `dx` for rows of any width, and of each row what normalises it; a program takes one.

    `statistics` is `[3, rows]`: a mean, what it lacks, the inverse of the deviation. Sums are taken
    about the mean of a row's first elements, so that a large mean costs no digits.
    """
    row = tl.program_id(0)
    working = working_dtype(x.dtype)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    dy_row = dy + row_offsets(row, size0, size1, dy_stride0, dy_stride1)
    dx_row = dx + row_offsets(row, size0, size1, dx_stride0, dx_stride1)
    mean_share = tl.where(is_centred != 0, share, 0.0)
    head_lanes = tl.arange(0, BLOCK_N)
    head = load_row(x_row, head_lanes, x_stride2, head_lanes < columns, 0)
    pivot = tl.sum(head * (1.0 / tl.minimum(columns, BLOCK_N).to(working)), axis=0)
    pivot = tl.where(is_centred != 0, pivot, 0.0)
    total = tl.zeros((BLOCK_N,), working)
    squares = tl.zeros((BLOCK_N,), working)
    levels = tl.zeros((BLOCK_N,), working)
    alongs = tl.zeros((BLOCK_N,), working)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        mask = lanes < columns
        values = tl.where(mask, load_row(x_row, lanes, x_stride2, mask, 0) - pivot, 0.0)
        weights = parameter(weight, lanes, mask, has_weight, 1).to(working)
        weighted = load_row(dy_row, lanes, dy_stride2, mask, 0) * weights
        total = total + values * mean_share
        squares = squares + values * values
        levels = levels + weighted
        alongs = alongs + weighted * values
    rest = tl.sum(total, axis=0)
    variance = without_rest(tl.sum(squares, axis=0) * share, rest)
    level = tl.sum(levels, axis=0)
    factor = 1.0 / tl.sqrt(variance + eps)
    slope = (tl.sum(alongs, axis=0) - rest * level) * factor * share
    level = level * mean_share
    rows = size0 * size1
    tl.store(statistics + row, pivot)
    tl.store(statistics + rows + row, rest)
    tl.store(statistics + 2 * rows + row, factor)
    rest = rest * factor
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        mask = lanes < columns
        values = load_row(x_row, lanes, x_stride2, mask, 0)
        values = (values - pivot) * factor - rest
        weights = parameter(weight, lanes, mask, has_weight, 1).to(working)
        weighted = load_row(dy_row, lanes, dy_stride2, mask, 0) * weights
        result = (weighted - level - values * slope) * factor
        store_row(dx_row, lanes, dx_stride2, result, mask)


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "dy_stride0", "dy_stride1"),
    unit=("x_stride2", "dy_stride2"),
)
def parameters_backward(
    x, dy, statistics, partials,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    dy_stride0, dy_stride1, dy_stride2,
    bias_start, has_weight, has_bias,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write to `partials` `[programs, columns]` sums over rows for `dweight`.

    From `bias_start` on there are as many again for `dbias`. The grid's first axis counts blocks of
    columns, its second the programs that share the rows.
    """
    working = working_dtype(x.dtype)
    lanes = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = lanes < columns
    rows_total = size0 * size1
    step = tl.num_programs(1)
    weight_sums = tl.zeros((BLOCK_M, BLOCK_N), working)
    bias_sums = tl.zeros((BLOCK_M, BLOCK_N), working)
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, step * BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        is_row = rows < rows_total
        mask = is_row[:, None] & inside[None, :]
        x_rows = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None]
        dy_rows = dy + row_offsets(rows, size0, size1, dy_stride0, dy_stride1)[:, None]
        mean = tl.load(statistics + rows, mask=is_row, other=0)
        rest = tl.load(statistics + rows_total + rows, mask=is_row, other=0)
        factor = tl.load(statistics + 2 * rows_total + rows, mask=is_row, other=0)
        values = load_row(x_rows, lanes[None, :], x_stride2, mask, 0)
        values = (values - mean[:, None]) * factor[:, None] - (rest * factor)[:, None]
        gradient = load_row(dy_rows, lanes[None, :], dy_stride2, mask, 0)
        weight_sums = weight_sums + gradient * values
        bias_sums = bias_sums + gradient
    sums = partials + tl.program_id(1) * columns + lanes
    if has_weight != 0:
        tl.store(sums, tl.sum(weight_sums, axis=0), mask=inside)
    if has_bias != 0:
        tl.store(sums + bias_start, tl.sum(bias_sums, axis=0), mask=inside)
