"""Where the rows of a tile lie, and their loads and stores, for the families that take rows.

Rows form an index space `[size0, size1]`, to which the caller has collapsed the leading axes of its
array. A tile of whole rows is *full* when it has neither columns nor rows to mask: kernels take
that case in a branch of its own, which halves the instructions of a memory-bound kernel.
"""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def row_offsets(rows, size0, size1, stride0, stride1):
    """Return the element offset of the start of each row; `rows` counts over `[size0, size1]`."""
    offsets = rows * stride1
    if size0 > 1:  # 64-bit division is slow, and most arrays collapse to one leading axis
        offsets = rows // size1 * stride0 + rows % size1 * stride1
    return offsets


@tl.kernel
def is_full(first, size0, size1, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return whether the tile of BLOCK_M rows from `first` on lies inside."""
    return (columns == BLOCK_N) & (first + BLOCK_M <= size0 * size1)


@tl.kernel
def row_widths(rows, size0, size1, columns):
    """Return how many elements of each row a tile of whole rows takes: none past the last row.

    One comparison with it masks rows and columns together, one instruction an element.
    """
    return tl.where(rows < size0 * size1, columns.to(tl.int32), 0)


@tl.kernel
def load_row(pointers, lanes, stride, mask, other):
    """Load a row, or rows, in f32; lanes lie `stride` apart; `mask` is None for a full tile.

    A stride of 1 that only the launch knows gets a branch: it spares a multiplication an element.
    """
    fill = None if mask is None else other
    if stride == 1:
        values = tl.load(pointers + lanes, mask=mask, other=fill)
    else:
        values = tl.load(pointers + lanes * stride, mask=mask, other=fill)
    return values.to(tl.float32)


@tl.kernel
def store_row(pointers, lanes, stride, values, mask):
    """Store what `load_row` would load."""
    if stride == 1:
        tl.store(pointers + lanes, values, mask=mask)
    else:
        tl.store(pointers + lanes * stride, values, mask=mask)
