"""The gradient of softmax over the last axis, `dx = y * (dy - sum(dy * y))`, from its result `y`.

In f32 whatever the narrower element type, in f64 for f64. `softmax_backward` holds whole rows in
registers; `softmax_backward_walked` takes rows of any width and stride, and reads twice.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import load_row, row_offsets, row_widths, store_row, working_dtype


@tl.kernel(
    divisible=(
        "columns", "y_stride0", "y_stride1", "dy_stride0", "dy_stride1", "dx_stride0", "dx_stride1",
    ),
    unit=("y_stride2", "dy_stride2", "dx_stride2"),
)  # fmt: skip
def softmax_backward(
    y, dy, dx,
    size0, size1, columns,
    y_stride0, y_stride1, y_stride2,
    dy_stride0, dy_stride1, dy_stride2,
    dx_stride0, dx_stride1, dx_stride2,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `dx`; `columns <= BLOCK_N`, a program takes BLOCK_M rows."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    mask = lanes < row_widths(rows, size0, size1, columns)[:, None]  # [BLOCK_M, BLOCK_N]
    y_rows = y + row_offsets(rows, size0, size1, y_stride0, y_stride1)[:, None]
    dy_rows = dy + row_offsets(rows, size0, size1, dy_stride0, dy_stride1)[:, None]
    dx_rows = dx + row_offsets(rows, size0, size1, dx_stride0, dx_stride1)[:, None]
    values = load_row(y_rows, lanes, y_stride2, mask, 0)
    gradient = load_row(dy_rows, lanes, dy_stride2, mask, 0)
    level = tl.sum(values * gradient, axis=1)
    store_row(dx_rows, lanes, dx_stride2, values * (gradient - level[:, None]), mask)


@tl.kernel(
    divisible=("y_stride0", "y_stride1", "dy_stride0", "dy_stride1", "dx_stride0", "dx_stride1"),
    unit=("y_stride2", "dy_stride2", "dx_stride2"),
)
def softmax_backward_walked(
    y, dy, dx,
    size0, size1, columns,
    y_stride0, y_stride1, y_stride2,
    dy_stride0, dy_stride1, dy_stride2,
    dx_stride0, dx_stride1, dx_stride2,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `dx` for rows of any width, there and back; a program takes one row."""
    row = tl.program_id(0)
    y_row = y + row_offsets(row, size0, size1, y_stride0, y_stride1)
    dy_row = dy + row_offsets(row, size0, size1, dy_stride0, dy_stride1)
    dx_row = dx + row_offsets(row, size0, size1, dx_stride0, dx_stride1)
    running = tl.zeros((BLOCK_N,), working_dtype(y.dtype))
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        values = load_row(y_row, lanes, y_stride2, lanes < columns, 0)
        running = running + values * load_row(dy_row, lanes, dy_stride2, lanes < columns, 0)
    level = tl.sum(running, axis=0)
    last = (columns - 1) // BLOCK_N * BLOCK_N
    for passed in range(0, columns, BLOCK_N):  # what was read last is still in the caches
        lanes = last - passed + tl.arange(0, BLOCK_N)
        values = load_row(y_row, lanes, y_stride2, lanes < columns, 0)
        gradient = load_row(dy_row, lanes, dy_stride2, lanes < columns, 0)
        store_row(dx_row, lanes, dx_stride2, values * (gradient - level), lanes < columns)
