"""Layer normalisation over the last axis, in f32 whatever the element type.

`layer_norm` holds whole rows in registers and takes the variance of the centred values. `layer_norm_looped`
takes rows of any width: each lane keeps a running mean and sum of squared deviations (Welford 1962), merged
at the end (Chan, Golub and LeVeque 1983), so that a large mean costs no digits. Weight and bias are
run-time flags: a kernel without them would double the bundle for two loads a column.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import row_offsets


@tl.kernel
def affine(values, weight, bias, lanes, mask, has_weight, has_bias):
    """Return `values * weight + bias` along the lanes, leaving out what its flag says is absent."""
    if has_weight != 0:
        values = values * tl.load(weight + lanes, mask=mask, other=0).to(tl.float32)
    if has_bias != 0:
        values = values + tl.load(bias + lanes, mask=mask, other=0).to(tl.float32)
    return values


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
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    inside = (lanes < columns)[None, :]  # [1, BLOCK_N]
    mask = (rows < size0 * size1)[:, None] & inside  # [BLOCK_M, BLOCK_N]
    x_rows = row_offsets(rows, size0, size1, x_stride0, x_stride1)
    out_rows = row_offsets(rows, size0, size1, out_stride0, out_stride1)
    values = tl.load(x + x_rows[:, None] + (lanes * x_stride2)[None, :], mask=mask, other=0).to(tl.float32)
    count = columns.to(tl.float32)
    mean = tl.sum(values, axis=1) / count
    centred = tl.where(mask, values - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / count
    normalised = centred * (1.0 / tl.sqrt(variance + eps))[:, None]
    result = affine(normalised, weight, bias, lanes[None, :], inside, has_weight, has_bias)
    tl.store(out + out_rows[:, None] + (lanes * out_stride2)[None, :], result, mask=mask)


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
    lane_count = tl.zeros((BLOCK_N,), tl.float32)
    chunks = 0.0
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        mask = lanes < columns
        chunks = chunks + 1.0
        values = tl.load(x_row + lanes * x_stride2, mask=mask, other=0).to(tl.float32)
        difference = tl.where(mask, values - lane_mean, 0.0)
        lane_mean = lane_mean + difference * (1.0 / chunks)
        lane_squares = lane_squares + difference * tl.where(mask, values - lane_mean, 0.0)
        lane_count = lane_count + mask.to(tl.float32)
    count = columns.to(tl.float32)
    mean = tl.sum(lane_mean * lane_count, axis=0) / count
    apart = lane_mean - mean
    variance = tl.sum(lane_squares + lane_count * apart * apart, axis=0) / count
    scale = 1.0 / tl.sqrt(variance + eps)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        mask = lanes < columns
        values = tl.load(x_row + lanes * x_stride2, mask=mask, other=0).to(tl.float32)
        normalised = (values - mean) * scale
        result = affine(normalised, weight, bias, lanes, mask, has_weight, has_bias)
        tl.store(out_row + lanes * out_stride2, result, mask=mask)
