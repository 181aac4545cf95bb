"""Rows in order, stable, of any length: tiles are sorted, then sorted runs merged two by two.

Elements become *keys*, signed integers in the same order: of 32 bits, or of 64 for types of 64. For
a falling order their bits are turned, so that equal elements keep their order there too. A key
travels with its *place*, the index that the element had along the row.

`prepare` makes keys of elements and `finish` elements of keys. `sort_pairs` makes runs of a tile's
width; with `keep` below that width it leaves only so many of each, which is how the first of a long
row are found. `merge` doubles runs: each element counts by bisection how many of the neighbouring
run come before it, and goes there.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import row_offsets

# The positive quiet NaN, for all of them: above the infinity.
NAN_32 = tl.constexpr(0x7FC00000)
NAN_64 = tl.constexpr(0x7FF8000000000000)
MOST_32 = tl.constexpr((1 << 31) - 1)
MOST_64 = tl.constexpr((1 << 63) - 1)
TOP_32 = tl.constexpr(1 << 31)
TOP_64 = tl.constexpr(1 << 63)


@tl.kernel
def most(keys):
    """Return the largest key."""
    return MOST_64 if keys.dtype == tl.int64 else MOST_32


@tl.kernel
def keys_of(values):
    """Return integers in the order of the elements: -inf, ..., -0.0, 0.0, ..., inf, NaN."""
    if values.dtype == tl.float64:
        bits = values.to(tl.int64, bitcast=True)
        return tl.where(values != values, NAN_64, tl.where(bits < 0, bits ^ MOST_64, bits))
    if values.dtype in (tl.float16, tl.bfloat16, tl.float32):
        wide = values.to(tl.float32)
        bits = wide.to(tl.int32, bitcast=True)
        return tl.where(wide != wide, NAN_32, tl.where(bits < 0, bits ^ MOST_32, bits))
    if values.dtype == tl.uint64:
        return (values ^ TOP_64).to(tl.int64)
    if values.dtype == tl.int64:
        return values
    if values.dtype == tl.uint32:
        return (values ^ TOP_32).to(tl.int32)
    return values.to(tl.int32)


@tl.kernel
def elements_of(keys, out):
    """Return the elements, of the type that `out` points to, whose keys these are."""
    if out.dtype.element_ty == tl.float64:
        return tl.where(keys < 0, keys ^ MOST_64, keys).to(tl.float64, bitcast=True)
    if out.dtype.element_ty in (tl.float16, tl.bfloat16, tl.float32):
        return tl.where(keys < 0, keys ^ MOST_32, keys).to(tl.float32, bitcast=True)
    if out.dtype.element_ty == tl.uint64:
        return keys.to(tl.uint64) ^ TOP_64
    if out.dtype.element_ty == tl.uint32:
        return keys.to(tl.uint32) ^ TOP_32
    return keys


@tl.kernel
def turned(keys, falling):
    """Return keys for a falling order, or of one back; for a rising order they stay."""
    return keys ^ tl.where(falling != 0, -1, 0).to(keys.dtype)


@tl.kernel
def prepare(
    x, keys, places,
    kept0, kept1, length, falling,
    x_kept0, x_kept1, x_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the keys of `x` `[kept0, kept1, length]` and their places, row by row."""
    blocks = tl.cdiv(length, BLOCK)
    row = tl.program_id(0) // blocks
    lanes = (tl.program_id(0) - row * blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = (lanes < length) & (row < kept0 * kept1)
    x_row = x + row_offsets(row, kept0, kept1, x_kept0, x_kept1)
    if x_stride == 1:
        values = tl.load(x_row + lanes, mask=mask)
    else:
        values = tl.load(x_row + lanes * x_stride, mask=mask)
    tl.store(keys + row * length + lanes, turned(keys_of(values), falling), mask=mask)
    tl.store(places + row * length + lanes, lanes, mask=mask)


@tl.kernel
def sort_pairs(
    from_keys, from_places, keys, places,
    total, length, tiles, keep, kept,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Sort each of the `tiles` tiles of BLOCK_N keys of the rows `[total, length]`, with places.

    A program takes BLOCK_M rows. Of each tile the first `keep` are left, in rows of `kept`, the
    last tile being filled up with largest keys.
    """
    block = tl.program_id(0) // tiles
    tile = tl.program_id(0) - block * tiles
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    start = tile * BLOCK_N
    lanes = tl.arange(0, BLOCK_N)[None, :]
    width = tl.minimum(length - start, BLOCK_N).to(tl.int32)
    mask = lanes < tl.where(rows < total, width, 0)[:, None]
    sources = (rows * length + start)[:, None] + lanes
    found = tl.load(from_keys + sources, mask=mask)
    # What is behind the end is no lower than any key, and comes after those that equal it.
    ordered, order = tl.sort(tl.where(mask, found, most(found)), dim=1, return_indices=True)
    moved = tl.gather(tl.load(from_places + sources, mask=mask), order, 1)
    targets = (rows * kept + tile * keep)[:, None] + lanes
    width = tl.minimum(kept - tile * keep, keep).to(tl.int32)
    mask = lanes < tl.where(rows < total, width, 0)[:, None]
    tl.store(keys + targets, ordered, mask=mask)
    tl.store(places + targets, moved, mask=mask)


@tl.kernel
def merge(
    from_keys, from_places, keys, places,
    length, run, steps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Merge neighbouring sorted runs of `run` elements of rows of `length`.

    `steps` is how often a run's length must be halved for a bisection. Elements of the left run
    come before equal ones of the right.
    """
    blocks = tl.cdiv(length, BLOCK)
    row = tl.program_id(0) // blocks
    first = (tl.program_id(0) - row * blocks) * BLOCK
    base = row * length
    # A tile is never wider than a run, and begins at a multiple of its width: it lies in one run.
    number = first // run
    is_right = number % 2
    begin = (number - is_right) * run
    left_end = tl.minimum(begin + run, length)
    other = tl.where(is_right != 0, begin, left_end)
    other_end = tl.where(is_right != 0, left_end, tl.minimum(begin + 2 * run, length))
    lanes = tl.arange(0, BLOCK)
    mask = lanes < tl.minimum(length - first, BLOCK).to(tl.int32)
    mine = tl.load(from_keys + base + first + lanes, mask=mask)
    low = tl.zeros((BLOCK,), tl.int32)
    high = low + (other_end - other).to(tl.int32)
    for _ in range(steps):
        middle = (low + high) // 2
        is_open = mask & (low < high)
        theirs = tl.load(from_keys + base + other + middle, mask=is_open)
        is_before = (theirs < mine) | ((theirs == mine) & (is_right != 0))
        low = tl.where(is_open & is_before, middle + 1, low)
        high = tl.where(is_open & ~is_before, middle, high)
    here = first - (begin + is_right * run)
    targets = base + begin + here + lanes + low
    tl.store(keys + targets, mine, mask=mask)
    tl.store(places + targets, tl.load(from_places + base + first + lanes, mask=mask), mask=mask)


@tl.kernel
def finish(
    keys, places, values, indices,
    total, length, count, falling,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the first `count` elements and places of rows `[total, length]`, row by row."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < total * count
    sources = lanes
    if count != length:
        rows = lanes // count
        sources = rows * length + (lanes - rows * count)
    found = turned(tl.load(keys + sources, mask=mask), falling)
    tl.store(values + lanes, elements_of(found, values), mask=mask)
    tl.store(indices + lanes, tl.load(places + sources, mask=mask), mask=mask)
