"""Where the rows of a tile lie, and their loads and stores, for the families that take rows.

Rows form an index space `[size0, size1]`, to which the caller has collapsed the leading axes of its
array. A tile of whole rows is *full* when it has neither columns nor rows to mask: kernels take
that case in a branch of its own, which halves the instructions of a memory-bound kernel.

A program that holds one long row divides it in three: the *body* begins at an aligned address and
ends after a multiple of 8 elements, so that whole vectors are in or out, whatever the row's width
and wherever it begins; up to 7 elements before it, the *lead*, and up to 7 behind it make a tile of
their own, the *edge*. The body is held in four *parts*, so that what is loaded late, such as a
weight, needs registers for a part alone.
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
def working_dtype(dtype):
    """Return what kernels compute in: f64 for f64, f32 for the narrower."""
    if dtype == tl.float64:
        return tl.float64
    return tl.float32


@tl.kernel
def widened(values):
    """Return values in the type that kernels compute in."""
    return values.to(working_dtype(values.dtype))


@tl.kernel
def load_row(pointers, lanes, stride, mask, other):
    """Load a row, or rows, widened; lanes lie `stride` apart; `mask` is None for a full tile.

    A stride of 1 that only the launch knows gets a branch: it spares a multiplication an element.
    """
    fill = None if mask is None else other
    if stride == 1:
        values = tl.load(pointers + lanes, mask=mask, other=fill)
    else:
        values = tl.load(pointers + lanes * stride, mask=mask, other=fill)
    return widened(values)


@tl.kernel
def store_row(pointers, lanes, stride, values, mask):
    """Store what `load_row` would load."""
    if stride == 1:
        tl.store(pointers + lanes, values, mask=mask)
    else:
        tl.store(pointers + lanes * stride, values, mask=mask)


@tl.kernel
def load_chunk(row, start, stride, more, otherwise, BLOCK_N: tl.constexpr):
    """Load the full chunk from `start` on, `otherwise` without `more`; a chunk keeps its type."""
    lanes = start + tl.arange(0, BLOCK_N)
    if stride == 1:
        values = tl.load(row + lanes, mask=more, other=otherwise)
    else:
        values = tl.load(row + lanes * stride, mask=more, other=otherwise)
    return values


@tl.kernel
def leading(row, alignment: tl.constexpr):
    """Return how many elements of a row lie before its first multiple of `alignment` bytes."""
    if row.dtype == tl.float32:
        return (-row.to(tl.int64) & (alignment - 1)) >> 2
    return (-row.to(tl.int64) & (alignment - 1)) >> 1


@tl.kernel
def are_alike(x_row, out_row, alignment: tl.constexpr):
    """Return whether both rows begin equally far from a multiple of `alignment` bytes."""
    return ((x_row.to(tl.int64) ^ out_row.to(tl.int64)) & (alignment - 1)) == 0


@tl.kernel
def edge_of(lead, body, width, PLACES: tl.constexpr):
    """Return the lanes of an edge, counted from the body's first, and which are in the row.

    Of its 16 or more places 8 lie before the body and the others behind it; `width` counts from the
    body's first.
    """
    places = tl.arange(0, PLACES)
    lanes = tl.where(places < 8, places - 8, places - 8 + body)
    return lanes, (places >= 8 - lead) & (places < 8 + width - body)


@tl.kernel
def load_part(row, start: tl.constexpr, end: tl.constexpr, body, other, cache: tl.constexpr):
    """Load the elements from `start` to `end`, `other` from the end of the body on."""
    lanes = tl.arange(start, end)
    return tl.load(row + lanes, mask=lanes < body, other=other, cache_modifier=cache)


@tl.kernel
def store_part(row, start: tl.constexpr, end: tl.constexpr, body, values):
    """Store what `load_part` would load."""
    lanes = tl.arange(start, end)
    tl.store(row + lanes, values, mask=lanes < body)


@tl.kernel
def load_parts(row, body, lanes, inside, other, PART: tl.constexpr):
    """Load a row as four parts and an edge, in its own type: all are on their way at once.

    Converted one by one, each would be waited for before the next is asked for. A row is read once:
    it leaves the L1 cache to what all rows share.
    """
    a = load_part(row, 0, PART, body, other, ".cg")
    b = load_part(row, PART, 2 * PART, body, other, ".cg")
    c = load_part(row, 2 * PART, 3 * PART, body, other, ".cg")
    d = load_part(row, 3 * PART, 4 * PART, body, other, ".cg")
    return a, b, c, d, tl.load(row + lanes, mask=inside, other=other)


@tl.kernel
def in_f32(a, b, c, d, edge):
    """Convert the parts of a row and its edge."""
    return (
        a.to(tl.float32),
        b.to(tl.float32),
        c.to(tl.float32),
        d.to(tl.float32),
        edge.to(tl.float32),
    )


@tl.kernel
def joined(parts, part):
    """Return parts and one more."""
    return (*parts, part)
