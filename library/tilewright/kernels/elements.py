"""The walk over elements that elementwise kernels and copies share, on any strides.

The index space is `[size0, size1, size2, size3]`, to which the caller has collapsed its shape; a
broadcast axis has stride 0. The three outer axes are the rows of a tile, the inner axis its
columns. Program axis 0 counts blocks of columns and axis 1 strides over blocks of rows, because a
grid may be 2^31 - 1 wide but only 65,535 high, and because this order needs no division in the
common case of one contiguous row.

An array is a tuple of its pointer and its four strides, and rows of it are a tuple of pointers and
the stride of their elements.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import joined, store_row


@tl.kernel
def row_pointers(base, rows, column, size0, size1, size2, stride0, stride1, stride2, stride3):
    """Return pointers to element `column` of each row; `rows` counts over the three outer axes."""
    offsets = rows * stride2
    if size0 * size1 > 1:  # 64-bit division is slow, and most launches have one outer axis
        index2 = rows % size2
        index1 = rows // size2 % size1
        index0 = rows // (size1 * size2)
        offsets = index0 * stride0 + index1 * stride1 + index2 * stride2
    return base + (offsets + column * stride3)[:, None]


@tl.kernel
def load_tile(pointers, lanes, stride, mask):
    """Load a tile of rows; a stride of 1 that only the launch knows spares the multiplications."""
    if stride == 1:
        values = tl.load(pointers + lanes, mask=mask)
    else:
        values = tl.load(pointers + lanes * stride, mask=mask)
    return values


@tl.kernel
def store_values(function, sources, target, lanes, mask):
    """Store what a function gives of one tile of each source; `mask` is None for full ones."""
    values = ()
    for i in tl.static_range(len(sources)):
        pointers, stride = sources[i]
        values = joined(values, load_tile(pointers, lanes, stride, mask))
    pointers, stride = target
    store_row(pointers, lanes, stride, function(*values), mask)


@tl.kernel
def map_elements(
    function, sources, target, sizes,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HAS_FULL: tl.constexpr,
):  # fmt: skip
    """Write to the target what a function gives of the sources, by tiles `[BLOCK_M, BLOCK_N]`.

    With HAS_FULL a tile that lies inside has a branch without masks, which twice as much code pays
    for where instructions count.
    """
    size0, size1, size2, size3 = sizes
    rows_total = size0 * size1 * size2
    column = tl.program_id(0) * BLOCK_N
    lanes = tl.arange(0, BLOCK_N)[None, :]
    width = tl.minimum(size3 - column, BLOCK_N).to(tl.int32)
    step = tl.num_programs(1) * BLOCK_M
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, step):
        rows = first + tl.arange(0, BLOCK_M)
        source_rows = ()
        for i in tl.static_range(len(sources)):
            source_rows = joined(
                source_rows, rows_of(sources[i], rows, column, size0, size1, size2)
            )
        target_rows = rows_of(target, rows, column, size0, size1, size2)
        if HAS_FULL and (width == BLOCK_N) & (first + BLOCK_M <= rows_total):
            store_values(function, source_rows, target_rows, lanes, None)
        else:
            mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
            store_values(function, source_rows, target_rows, lanes, mask)


@tl.kernel
def rows_of(array, rows, column, size0, size1, size2):
    """Return pointers to element `column` of each row of an array, and its inner stride."""
    base, stride0, stride1, stride2, stride3 = array
    pointers = row_pointers(
        base, rows, column, size0, size1, size2, stride0, stride1, stride2, stride3
    )
    return pointers, stride3
