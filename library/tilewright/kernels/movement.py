"""Copies of elements as bits: from any strides to any, and between arrays of crossed axes.

Elements are unsigned integers of 8 to 64 bits, so that one binary serves all types of a width.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.elements import map_elements


@tl.kernel
def same(a):
    """Return `a`."""
    return a


@tl.kernel(
    divisible=(
        "x_stride0", "x_stride1", "x_stride2",
        "out_stride0", "out_stride1", "out_stride2",
    ),
    unit=("x_stride3", "out_stride3"),
)  # fmt: skip
def copy(
    x, out,
    size0, size1, size2, size3,
    x_stride0, x_stride1, x_stride2, x_stride3,
    out_stride0, out_stride1, out_stride2, out_stride3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `x` to `out`; axes and grid are those of the elementwise kernels."""
    sources = ((x, x_stride0, x_stride1, x_stride2, x_stride3),)
    target = (out, out_stride0, out_stride1, out_stride2, out_stride3)
    sizes = (size0, size1, size2, size3)
    map_elements(same, sources, target, sizes, BLOCK_M, BLOCK_N, False)


@tl.kernel(
    divisible=("x_stride0", "x_stride1", "x_row", "out_stride0", "out_stride1", "out_column")
)
def transpose(
    x, out,
    size0, size1, rows, columns,
    x_stride0, x_stride1, x_row,
    out_stride0, out_stride1, out_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write `x` `[size0, size1, rows, columns]`, contiguous along columns, to `out`, along rows.

    A tile is read along columns and written along rows; between the two it goes through shared
    memory. Grid axis 0 counts tiles of a matrix, axis 1 strides over the matrices.
    """
    across = tl.cdiv(columns, BLOCK_N)
    row = tl.program_id(0) // across * BLOCK_M
    column = tl.program_id(0) % across * BLOCK_N
    along_m = tl.arange(0, BLOCK_M)
    along_n = tl.arange(0, BLOCK_N)
    height = tl.minimum(rows - row, BLOCK_M).to(tl.int32)
    width = tl.minimum(columns - column, BLOCK_N).to(tl.int32)
    for matrix in range(tl.program_id(1), size0 * size1, tl.num_programs(1)):
        x_offset, out_offset = matrix * x_stride1, matrix * out_stride1
        if size0 > 1:
            outer = matrix // size1
            inner = matrix - outer * size1
            x_offset = outer * x_stride0 + inner * x_stride1
            out_offset = outer * out_stride0 + inner * out_stride1
        x_tile = x + x_offset + row * x_row + column
        values = tl.load(
            x_tile + along_m[:, None] * x_row + along_n[None, :],
            mask=along_n[None, :] < tl.where(along_m < height, width, 0)[:, None],
        )  # [BLOCK_M, BLOCK_N]
        out_tile = out + out_offset + column * out_column + row
        tl.store(
            out_tile + along_n[:, None] * out_column + along_m[None, :],
            tl.trans(values),
            mask=along_m[None, :] < tl.where(along_n < width, height, 0)[:, None],
        )  # [BLOCK_N, BLOCK_M]
