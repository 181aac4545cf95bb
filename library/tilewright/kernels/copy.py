"""Matrices whose rows begin anywhere -> copies whose rows begin where hardware copies blocks.

A program copies one tile; grid axes 1 and 2 are the batch. Reading goes element by element, so it
is the way for what is read once, and multiplied often.
"""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel(
    divisible=("copy_batch0", "copy_batch1", "copy_row"),
    unit=("x_column",),
)
def copy_rows(
    x, copy, rows, columns,
    x_batch0, x_batch1, x_row, x_column,  # noqa: ARG001  # rows are contiguous
    copy_batch0, copy_batch1, copy_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Copy matrices `[rows, columns]`, contiguous along their rows."""
    batch0, batch1 = tl.program_id(2), tl.program_id(1)
    tiles_n = tl.cdiv(columns, BLOCK_N)
    row = tl.program_id(0) // tiles_n * BLOCK_M
    column = tl.program_id(0) % tiles_n * BLOCK_N
    down, along = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    inside_m = down < tl.minimum(rows - row, BLOCK_M).to(tl.int32)
    inside = inside_m[:, None] & (along < tl.minimum(columns - column, BLOCK_N).to(tl.int32))
    source = x + batch0 * x_batch0 + batch1 * x_batch1 + row * x_row + column
    tile = tl.load(source + (down[:, None] * x_row + along[None, :]), mask=inside)
    target = copy + batch0 * copy_batch0 + batch1 * copy_batch1 + row * copy_row + column
    tl.store(target + (down[:, None] * copy_row + along[None, :]), tile, mask=inside)
