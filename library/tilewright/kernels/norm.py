"""Layer normalisation over the last axis, in f32 whatever the element type.

`layer_norm` holds whole rows in registers and takes the variance of the centred values.
`layer_norm_looped` takes rows of any width: each lane keeps a running mean and sum of squared
deviations (Welford 1962), merged at the end (Chan, Golub and LeVeque 1983), so that a large mean
costs no digits. Weight and bias are run-time flags: a kernel without them would double the bundle
for two loads a column.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import is_full, load_row, row_offsets, row_widths, store_row


@tl.kernel
def parameter(pointer, lanes, mask, is_given, otherwise):
    """Load weight or bias, `otherwise` where it is not given; a mask spares the branch.

    In its own type: converted where it is used, it waits in half the registers.
    """
    given = is_given != 0
    if mask is not None:
        given = mask & given
    return tl.load(pointer + lanes, mask=given, other=otherwise)


@tl.kernel
def layer_norm_tile(
    x_rows, weight, bias, out_rows,
    lanes, columns, x_stride, out_stride, has_weight, has_bias, eps, mask, inside,
):  # fmt: skip
    """Normalise the rows of one tile `[BLOCK_M, BLOCK_N]`; `inside` masks its columns alone."""
    values = load_row(x_rows, lanes, x_stride, mask, 0)
    # All loads before the first reduction: they overlap.
    scale = parameter(weight, lanes, inside, has_weight, 1)
    shift = parameter(bias, lanes, inside, has_bias, 0)
    count = columns.to(tl.float32)
    mean = tl.sum(values, axis=1) / count
    centred = values - mean[:, None]
    if mask is not None:
        centred = tl.where(mask, centred, 0.0)
    variance = tl.sum(centred * centred, axis=1) / count
    normalised = centred * (1.0 / tl.sqrt(variance + eps))[:, None]
    result = normalised * scale.to(tl.float32) + shift.to(tl.float32)
    store_row(out_rows, lanes, out_stride, result, mask)


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"),
    unit=("x_stride2", "out_stride2"),
)
def layer_norm(
    x, weight, bias, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1, out_stride2,
    has_weight, has_bias, eps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Normalise each row of `x` into `out`; `columns <= BLOCK_N`, a program takes BLOCK_M rows."""
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    x_rows = x + row_offsets(rows, size0, size1, x_stride0, x_stride1)[:, None]
    out_rows = out + row_offsets(rows, size0, size1, out_stride0, out_stride1)[:, None]
    if is_full(first, size0, size1, columns, BLOCK_M, BLOCK_N):
        layer_norm_tile(
            x_rows, weight, bias, out_rows,
            lanes, columns, x_stride2, out_stride2, has_weight, has_bias, eps, None, None,
        )  # fmt: skip
    else:
        inside = lanes < columns.to(tl.int32)
        mask = lanes < row_widths(rows, size0, size1, columns)[:, None]
        layer_norm_tile(
            x_rows, weight, bias, out_rows,
            lanes, columns, x_stride2, out_stride2, has_weight, has_bias, eps, mask, inside,
        )  # fmt: skip


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "out_stride0", "out_stride1"),
    unit=("x_stride2", "out_stride2"),
)
def layer_norm_looped(
    x, weight, bias, out,
    size0, size1, columns,
    x_stride0, x_stride1, x_stride2,
    out_stride0, out_stride1, out_stride2,
    has_weight, has_bias, eps,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Normalise each row of `x` into `out`, rows of any width; a program takes one row."""
    row = tl.program_id(0)
    x_row = x + row_offsets(row, size0, size1, x_stride0, x_stride1)
    out_row = out + row_offsets(row, size0, size1, out_stride0, out_stride1)
    lane_mean = tl.zeros((BLOCK_N,), tl.float32)
    lane_squares = tl.zeros((BLOCK_N,), tl.float32)
    chunks = 0.0
    # Full chunks without a mask, then the rest of the row with one.
    full = columns // BLOCK_N * BLOCK_N
    for start in range(0, full, BLOCK_N):
        values = load_row(x_row, start + tl.arange(0, BLOCK_N), x_stride2, None, 0)
        chunks = chunks + 1.0
        difference = values - lane_mean
        lane_mean = lane_mean + difference * (1.0 / chunks)
        lane_squares = lane_squares + difference * (values - lane_mean)
    lanes = full + tl.arange(0, BLOCK_N)
    mask = lanes < columns
    lane_count = chunks + mask.to(tl.float32)
    if full < columns:
        values = load_row(x_row, lanes, x_stride2, mask, 0)
        difference = tl.where(mask, values - lane_mean, 0.0)
        lane_mean = lane_mean + difference * (1.0 / (chunks + 1.0))
        lane_squares = lane_squares + difference * tl.where(mask, values - lane_mean, 0.0)
    count = columns.to(tl.float32)
    mean = tl.sum(lane_mean * lane_count, axis=0) / count
    apart = lane_mean - mean
    variance = tl.sum(lane_squares + lane_count * apart * apart, axis=0) / count
    deviation = 1.0 / tl.sqrt(variance + eps)
    if full < columns:
        values = load_row(x_row, lanes, x_stride2, mask, 0)
        scale = parameter(weight, lanes, mask, has_weight, 1).to(tl.float32)
        shift = parameter(bias, lanes, mask, has_bias, 0).to(tl.float32)
        result = (values - mean) * deviation * scale + shift
        store_row(out_row, lanes, out_stride2, result, mask)
    for start in range(0, full, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = load_row(x_row, lanes, x_stride2, None, 0)
        scale = parameter(weight, lanes, None, has_weight, 1).to(tl.float32)
        shift = parameter(bias, lanes, None, has_bias, 0).to(tl.float32)
        result = (values - mean) * deviation * scale + shift
        store_row(out_row, lanes, out_stride2, result, None)
