"""Normalisation over the last axis, in f32 whatever the narrower element type, in f64 for f64.

One kernel serves three operations: with `is_centred` it is layer norm, without RMS norm, and l2
norm where `share`, the factor of the sum of squares, is 1 and not 1 / columns. Each would be
48 entries of the bundle for one reduction that is left out.

`layer_norm` holds whole rows in registers, `layer_norm_row` one long row in parts, as does
`layer_norm_rows`, which keeps weight and bias for many rows; they take the variance of the centred
values. `layer_norm_looped` takes rows of any width: each lane keeps a running mean and sum of
squared deviations (Welford 1962), merged at the end (Chan, Golub and LeVeque 1983), so that a large
mean costs no digits. Weight and bias are run-time flags: a kernel without them would double the
bundle for two loads a column.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.norm_parts import (
    is_fine,
    masked_part,
    normalise_row,
    normalise_wide_row,
    packed,
    parameter,
    parameter_part,
    without_rest,
)
from tilewright.kernels.rows import (
    are_alike,
    edge_of,
    is_full,
    leading,
    load_chunk,
    load_part,
    load_row,
    row_offsets,
    row_widths,
    store_part,
    store_row,
    working_dtype,
)

# From here on, rows of 2-byte elements are kept as they are, and converted where they are used.
WIDE = tl.constexpr(16384)


@tl.kernel
def layer_norm_tile(
    x_rows, weight, bias, out_rows,
    lanes, x_stride, out_stride, has_weight, has_bias, is_centred, share, eps, mask, inside,
):  # fmt: skip
    """Normalise the rows of one tile `[BLOCK_M, BLOCK_N]`; `inside` masks its columns alone."""
    values = load_row(x_rows, lanes, x_stride, mask, 0)
    # All loads before the first reduction: they overlap.
    scale = parameter(weight, lanes, inside, has_weight, 1)
    shift = parameter(bias, lanes, inside, has_bias, 0)
    centred = values
    if is_centred != 0:
        mean = tl.sum(values * share, axis=1)  # the sum alone may exceed all numbers
        centred = values - mean[:, None]
        if mask is not None:
            centred = tl.where(mask, centred, 0.0)
    variance = tl.sum(centred * centred, axis=1) * share
    if is_fine(x_rows.dtype):
        rest = tl.where(is_centred != 0, tl.sum(centred * share, axis=1), 0.0)
        variance = without_rest(variance, rest)
        centred = centred - rest[:, None]
        factor = 1.0 / tl.sqrt(variance + eps)
    else:  # two units in the last place of f32, at a tenth of the instructions
        factor = tl.rsqrt(variance + eps)
    normalised = centred * factor[:, None]
    result = normalised * scale.to(tl.float32) + shift.to(tl.float32)
    store_row(out_rows, lanes, out_stride, result, mask)


@tl.kernel(
    divisible=("columns", "x_stride0", "x_stride1", "out_stride0", "out_stride1"),
    unit=("x_stride2", "out_stride2"),
)
def layer_norm(
    x, weight, bias, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1, out_stride2,
    has_weight, has_bias, is_centred, share, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Normalise each row of `x` into `out`; `columns <= BLOCK_N`, a program takes BLOCK_M rows."""
    if not is_fine(x.dtype):
        tl.resident(18)  # of two warps each: 56 registers, which cost no instruction
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    x_rows = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None]
    out_rows = out + row_offsets(rows, size0, size1, out_stride0, out_stride1)[:, None]
    if is_full(first, size0, size1, columns, BLOCK_M, BLOCK_N):
        layer_norm_tile(
            x_rows, weight, bias, out_rows,
            lanes, x_stride2, out_stride2,
            has_weight, has_bias, is_centred, share, eps, None, None,
        )  # fmt: skip
    else:
        inside = lanes < columns.to(tl.int32)
        mask = lanes < row_widths(rows, size0, size1, columns)[:, None]
        layer_norm_tile(
            x_rows, weight, bias, out_rows,
            lanes, x_stride2, out_stride2,
            has_weight, has_bias, is_centred, share, eps, mask, inside,
        )  # fmt: skip


@tl.kernel(divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"))
def layer_norm_row(
    x, weight, bias, out,
    size0, size1, columns,
    x_stride0, x_stride1,
    out_stride0, out_stride1,
    has_weight, has_bias, is_centred, share, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Normalise each row of `x` into `out`; `columns <= BLOCK_N`, a program takes one row.

    It is fast for rows that begin at multiples of 16 bytes, and right for others.
    """
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    out_row = out + row_offsets(row, size0, size1, out_stride0, out_stride1)
    if BLOCK_N >= WIDE and not is_fine(x.dtype):
        normalise_wide_row(
            x_row, weight, bias, out_row, columns,
            has_weight, has_bias, is_centred, share, eps, BLOCK_N // 8,
        )  # fmt: skip
    else:
        normalise_row(
            x_row, weight, bias, out_row, columns,
            has_weight, has_bias, is_centred, share, eps, BLOCK_N // 4,
        )  # fmt: skip


@tl.kernel
def row_total(values, edge, PLACES: tl.constexpr):
    """Return the sum of a row; its edge has a place for each 32 elements, which is a lane's share.

    So the edge joins a lane's sum, and takes no reduction of its own.
    """
    lane_sums = tl.sum(tl.sum(tl.reshape(values, (4, PLACES, 8)), axis=2), axis=0)
    return tl.sum(lane_sums + edge, axis=0)


@tl.kernel
def held(words, row):
    """Return the words as they are, for no array has 2**62 rows, which the compiler cannot know.

    It would take what a loop makes of them out of the loop, and keep twice the registers.
    """
    return words ^ (row >> 62).to(tl.uint32)


@tl.kernel
def scaled(values, words, dtype: tl.constexpr):
    """Return values times weight plus bias, which `packed` made one word."""
    scale = (words >> 16).to(tl.uint16).to(dtype, bitcast=True).to(tl.float32)
    shift = (words & 0xFFFF).to(tl.uint16).to(dtype, bitcast=True).to(tl.float32)
    return values * scale + shift


@tl.kernel
def normalise_rows(
    x, weight, bias, out,
    lead, size0, size1, columns, x_stride0, x_stride1, out_stride0, out_stride1,
    has_weight, has_bias, is_centred, share, eps, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Normalise this program's rows, whose first `lead` elements lie before a multiple of 16 bytes.

    Each row is loaded while the one before it is worked on, the first while the weights are loaded.
    """
    first = tl.program_id(0)
    step = tl.num_programs(0)
    rows = size0 * size1
    width = (columns - lead).to(tl.int32)
    body = width & -8
    lanes, inside = edge_of(lead.to(tl.int32), body, width, BLOCK_N // 32)
    x_row = x + lead + row_offsets(first, size0, size1, x_stride0, x_stride1)
    x_row = tl.multiple_of(x_row, 16)
    chunk = load_part(x_row, 0, BLOCK_N, tl.where(first < rows, body, 0), 0, ".cg")
    chunk_edge = tl.load(x_row + lanes, mask=inside & (first < rows), other=0)
    words = packed(
        parameter_part(weight + lead, 0, BLOCK_N, body, has_weight, 1),
        parameter_part(bias + lead, 0, BLOCK_N, body, has_bias, 0),
    )
    edge_scale = parameter(weight + lead, lanes, inside, has_weight, 1).to(tl.float32)
    edge_shift = parameter(bias + lead, lanes, inside, has_bias, 0).to(tl.float32)
    for row in range(first, rows, step):
        values = chunk.to(tl.float32)
        edge = chunk_edge.to(tl.float32)
        following = row + step
        x_row = x + lead + row_offsets(following, size0, size1, x_stride0, x_stride1)
        x_row = tl.multiple_of(x_row, 16)
        chunk = load_part(x_row, 0, BLOCK_N, tl.where(following < rows, body, 0), 0, ".cg")
        chunk_edge = tl.load(x_row + lanes, mask=inside & (following < rows), other=0)
        if is_centred != 0:
            mean = row_total(values * share, edge * share, BLOCK_N // 32)
            values = masked_part(values - mean, 0, BLOCK_N, body)
            edge = tl.where(inside, edge - mean, 0.0)
        squares = row_total(values * values, edge * edge, BLOCK_N // 32)
        factor = tl.rsqrt(squares * share + eps)
        out_row = out + lead + row_offsets(row, size0, size1, out_stride0, out_stride1)
        out_row = tl.multiple_of(out_row, 16)
        result = scaled(values * factor, held(words, row), weight.dtype)
        store_part(out_row, 0, BLOCK_N, body, result)
        tl.store(out_row + lanes, edge * factor * edge_scale + edge_shift, mask=inside)


@tl.kernel(divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"))
def layer_norm_rows(
    x, weight, bias, out,
    size0, size1, columns,
    x_stride0, x_stride1,
    out_stride0, out_stride1,
    has_weight, has_bias, is_centred, share, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Normalise each row of `x` into `out`; `columns <= BLOCK_N`.

    Unlike a row, its weights cannot be read by vectors where the row begins unaligned. A program
    takes every num_programs-th row and reads them once. It is fast if all its rows begin alike,
    which they do with a multiple of 8 programs, and right if they do not.
    """
    step = tl.num_programs(0)
    x_row = x + tl.program_id(0) * x_stride1
    out_row = out + tl.program_id(0) * out_stride1
    is_alike = are_alike(x_row, out_row, 16)
    is_alike = is_alike & are_alike(x_row, x_row + step * x_stride1, 16)
    is_alike = is_alike & are_alike(out_row, out_row + step * out_stride1, 16)
    if size0 > 1:  # where the second index begins anew, a program's rows are not `step` apart
        is_alike = is_alike & are_alike(x, x + x_stride0, 16) & are_alike(x, x + x_stride1, 16)
        is_alike = is_alike & are_alike(out, out + out_stride0, 16)
        is_alike = is_alike & are_alike(out, out + out_stride1, 16)
    lead = leading(x_row, 16)
    if is_alike & ((lead == 0) | (lead <= columns)):
        normalise_rows(
            x, weight, bias, out, lead, size0, size1, columns, x_stride0, x_stride1,
            out_stride0, out_stride1, has_weight, has_bias, is_centred, share, eps, BLOCK_N,
        )  # fmt: skip
    else:
        for row in range(tl.program_id(0), size0 * size1, step):
            normalise_row(
                x + row_offsets(row, size0, size1, x_stride0, x_stride1), weight, bias,
                out + row_offsets(row, size0, size1, out_stride0, out_stride1),
                columns, has_weight, has_bias, is_centred, share, eps, BLOCK_N // 4,
            )  # fmt: skip


@tl.kernel
def step_of_mean(difference, earlier, is_centred):
    """Return by how much a value moves the mean of its lane after `earlier` ones: by 0 where none
    is taken off, also if the value is infinite.
    """
    return tl.where(is_centred != 0, difference * (1.0 / (earlier + 1).to(difference.dtype)), 0.0)


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"),
    unit=("x_stride2", "out_stride2"),
)
def layer_norm_looped(
    x, weight, bias, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1, out_stride2,
    has_weight, has_bias, is_centred, share, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Normalise each row of `x` into `out`, rows of any width; a program takes one row."""
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    out_row = out + row_offsets(row, size0, size1, out_stride0, out_stride1)
    working = working_dtype(x.dtype)
    lane_mean = tl.zeros((BLOCK_N,), working)
    lane_squares = tl.zeros((BLOCK_N,), working)
    # Full chunks without a mask, then the rest of the row with one. Each is loaded while the one
    # before it is worked on. The way back begins with the chunk that the way there ended with.
    chunks = columns // BLOCK_N
    full = chunks * BLOCK_N
    chunk = load_chunk(x_row, 0, x_stride2, full > 0, 0, BLOCK_N)
    for start in range(0, full, BLOCK_N):
        values = chunk.to(working)
        following = start + BLOCK_N
        chunk = load_chunk(x_row, following, x_stride2, following < full, chunk, BLOCK_N)
        difference = values - lane_mean
        lane_mean = lane_mean + step_of_mean(difference, start // BLOCK_N, is_centred)
        lane_squares = lane_squares + difference * (values - lane_mean)
    lanes = full + tl.arange(0, BLOCK_N)
    mask = lanes < columns
    lane_count = chunks.to(working) + mask.to(working)
    if full < columns:
        values = load_row(x_row, lanes, x_stride2, mask, 0)
        difference = tl.where(mask, values - lane_mean, 0.0)
        lane_mean = lane_mean + step_of_mean(difference, chunks, is_centred)
        lane_squares = lane_squares + difference * tl.where(mask, values - lane_mean, 0.0)
    mean = tl.sum(lane_mean * (lane_count * share), axis=0)
    apart = lane_mean - mean
    rest = tl.sum(apart * (lane_count * share), axis=0)  # what rounding left in the mean
    apart = apart - rest
    variance = tl.sum(lane_squares + lane_count * apart * apart, axis=0) * share
    deviation = 1.0 / tl.sqrt(variance + eps)
    rest = rest * deviation
    if full < columns:
        values = load_row(x_row, lanes, x_stride2, mask, 0)
        scale = parameter(weight, lanes, mask, has_weight, 1).to(working)
        shift = parameter(bias, lanes, mask, has_bias, 0).to(working)
        result = ((values - mean) * deviation - rest) * scale + shift
        store_row(out_row, lanes, out_stride2, result, mask)
    for passed in range(0, full, BLOCK_N):
        start = full - BLOCK_N - passed
        lanes = start + tl.arange(0, BLOCK_N)
        scale = parameter(weight, lanes, None, has_weight, 1)
        shift = parameter(bias, lanes, None, has_bias, 0)
        values = chunk
        chunk = load_chunk(x_row, start - BLOCK_N, x_stride2, start > 0, values, BLOCK_N)
        normalised = (values.to(working) - mean) * deviation - rest
        result = normalised * scale.to(working) + shift.to(working)
        store_row(out_row, lanes, out_stride2, result, None)
