"""Elements by index: read, added to, and counted.

An index counts from 0 to the extent less 1. Of any other one a read gives 0 and an addition does
nothing, so no kernel leaves its arrays; what was found is reported in `outside`, one i32 that the
launch sets to 0. Elements that are only moved are unsigned integers of their width.

Additions come in two forms. `add_at` adds atomically, in any order. In a fixed order, destinations
are sorted first (`kernels.sort`, stable), and then sums of equal ones are taken in the order of
their places: `sum_runs` tile by tile, `sum_spans` for those that reach from tile to tile, and
`add_rows` for whole rows.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.elements import row_pointers
from tilewright.kernels.reduction import LOWEST_INTEGER, widened


@tl.kernel
def report(outside, is_outside):
    """Say that there are indices outside."""
    pointers = outside + tl.zeros(is_outside.shape, tl.int32)
    tl.atomic_max(pointers, 1, mask=is_outside, sem="relaxed")


@tl.kernel(
    divisible=(
        "x_stride0", "x_stride1", "x_stride2",
        "index_stride0", "index_stride1", "index_stride2",
        "out_stride0", "out_stride1", "out_stride2",
    ),
    unit=("index_stride3", "out_stride3"),
)  # fmt: skip
def gather(
    x, index, out, outside,
    size0, size1, size2, size3, extent, x_axis,
    x_stride0, x_stride1, x_stride2, x_stride3,
    index_stride0, index_stride1, index_stride2, index_stride3,
    out_stride0, out_stride1, out_stride2, out_stride3,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write to `out` the elements of `x` that `index` names along an axis of `extent` elements.

    `x_axis` is the stride of that axis; the axes of the index space are those of the elementwise
    kernels, and `x` has stride 0 along the one that is indexed.
    """
    rows_total = size0 * size1 * size2
    column = tl.program_id(0) * BLOCK_N
    lanes = tl.arange(0, BLOCK_N)[None, :]
    width = tl.minimum(size3 - column, BLOCK_N).to(tl.int32)
    for first in range(tl.program_id(1) * BLOCK_M, rows_total, tl.num_programs(1) * BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        mask = lanes < tl.where(rows < rows_total, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
        index_rows = row_pointers(
            index, rows, column, size0, size1, size2,
            index_stride0, index_stride1, index_stride2, index_stride3,
        )  # fmt: skip
        x_rows = row_pointers(
            x, rows, column, size0, size1, size2, x_stride0, x_stride1, x_stride2, x_stride3
        )
        out_rows = row_pointers(
            out, rows, column, size0, size1, size2,
            out_stride0, out_stride1, out_stride2, out_stride3,
        )  # fmt: skip
        places = tl.load(index_rows + lanes * index_stride3, mask=mask).to(tl.int64)
        is_inside = (places >= 0) & (places < extent)
        report(outside, mask & ~is_inside)
        pointers = x_rows + lanes * x_stride3 + places * x_axis
        values = tl.load(pointers, mask=mask & is_inside, other=0)
        tl.store(out_rows + lanes * out_stride3, values, mask=mask)


@tl.kernel(divisible=("x_outer", "x_axis", "out_outer", "out_row"))
def take(
    x, index, out, outside,
    count, columns, extent,
    x_outer, x_axis, index_stride, out_outer, out_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write to `out` `[outer, count, columns]` the rows of `x` that `index` `[count]` names.

    `x` is `[outer, extent, columns]`, and both are contiguous along the columns. Grid axis 1 counts
    the outer axis.
    """
    blocks = tl.cdiv(columns, BLOCK_N)
    block = tl.program_id(0) // blocks
    column = (tl.program_id(0) - block * blocks) * BLOCK_N
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    width = tl.minimum(columns - column, BLOCK_N).to(tl.int32)
    is_row = rows < count
    places = tl.load(index + rows * index_stride, mask=is_row).to(tl.int64)
    is_inside = (places >= 0) & (places < extent)
    report(outside, is_row & ~is_inside)
    x_rows = (x + tl.program_id(1) * x_outer + column) + (places * x_axis)[:, None]
    out_rows = (out + tl.program_id(1) * out_outer + column) + (rows * out_row)[:, None]
    found = lanes < tl.where(is_row & is_inside, width, 0)[:, None]
    written = lanes < tl.where(is_row, width, 0)[:, None]
    tl.store(out_rows + lanes, tl.load(x_rows + lanes, mask=found, other=0), mask=written)


@tl.kernel
def destinations(
    index, out, outside,
    count, columns, axis_columns, extent, out_outer, out_axis,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write where in a row-major array each index of `[outer, axis, columns]` points, or -1.

    `count` is their number in all, `axis_columns` that of an outer row. The array has `out_axis`
    elements for each index and `out_outer` for each outer row; its last axes are no shorter than
    `columns`, and element for element the same.
    """
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < count
    places = tl.load(index + lanes, mask=mask).to(tl.int64)
    is_inside = (places >= 0) & (places < extent)
    report(outside, mask & ~is_inside)
    outer = lanes // axis_columns
    targets = outer * out_outer + places * out_axis + lanes % columns
    tl.store(out + lanes, tl.where(is_inside, targets, -1), mask=mask)


@tl.kernel
def convert(x, out, count, BLOCK: tl.constexpr):
    """Write `x` `[count]` in the type of `out`."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + lanes, tl.load(x + lanes, mask=lanes < count), mask=lanes < count)


@tl.kernel
def add_at(targets, source, total, count, BLOCK: tl.constexpr):
    """Add each element of `source` `[count]` to the element of `total` at its target, if not -1."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < count
    places = tl.load(targets + lanes, mask=mask, other=-1)
    values = tl.load(source + lanes, mask=mask).to(total.dtype.element_ty)
    tl.atomic_add(total + places, values, mask=mask & (places >= 0), sem="relaxed")


@tl.kernel
def add_rows_at(
    targets, source, total, count, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Add rows of `source` `[count, columns]` to the rows of `total` at targets, if not -1."""
    blocks = tl.cdiv(columns, BLOCK_N)
    block = tl.program_id(0) // blocks
    column = (tl.program_id(0) - block * blocks) * BLOCK_N
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)[None, :]
    width = tl.minimum(columns - column, BLOCK_N).to(tl.int32)
    places = tl.load(targets + rows, mask=rows < count, other=-1).to(tl.int64)
    mask = lanes < tl.where(places >= 0, width, 0)[:, None]
    values = tl.load(source + (rows * columns + column)[:, None] + lanes, mask=mask)
    pointers = total + (places * columns + column)[:, None] + lanes
    tl.atomic_add(pointers, values.to(total.dtype.element_ty), mask=mask, sem="relaxed")


@tl.kernel
def add_in_run(starts, total, later_starts, later):
    """Combine sums of neighbours: a later one that starts a run forgets what came before."""
    return starts | later_starts, tl.where(later_starts != 0, later, total + later)


@tl.kernel
def sum_runs(keys, places, source, total, heads, tails, states, count, BLOCK: tl.constexpr):
    """Add the elements of `source` to `total`, those of equal keys in the order of the tile.

    Keys `[count]` are in order and name elements of `total`; below 0 they name none. A run that
    begins and ends in a tile is done with. One that comes from the tile before leaves its sum in
    `heads`, one that begins here and goes on in `tails`. `states` says of a tile: 1, a run begins
    that goes on; 2, a run comes and goes on.
    """
    start = tl.program_id(0) * BLOCK
    lanes = tl.arange(0, BLOCK)
    left = tl.minimum(count - start, BLOCK).to(tl.int32)
    mask = lanes < left
    key = tl.load(keys + start + lanes, mask=mask, other=-1)
    before = tl.load(keys + start + lanes - 1, mask=mask & (start + lanes > 0), other=-2)
    after = tl.load(keys + start + lanes + 1, mask=start + lanes + 1 < count, other=-2)
    place = tl.load(places + start + lanes, mask=mask)
    value = tl.load(source + place, mask=mask, other=0).to(total.dtype.element_ty)
    begins = mask & (key != before)
    _, sums = tl.associative_scan(((begins | (lanes == 0)).to(tl.int32), value), 0, add_in_run)
    ends = mask & (key != after)
    # Runs are numbered by how many begin up to here: what came from the tile before has number 0.
    number = tl.cumsum(begins.to(tl.int32), 0)
    is_whole = ends & (number > 0) & (key >= 0)
    old = tl.load(total + key, mask=is_whole, other=0)
    tl.store(total + key, old + sums, mask=is_whole)
    is_last = lanes == left - 1
    goes_on = is_last & mask & (key == after)
    comes = mask & (number == 0)
    of_head = comes & (ends | is_last)
    tile = tl.program_id(0)
    tl.store(heads + tile, tl.sum(tl.where(of_head, sums, 0), axis=0))
    tl.store(tails + tile, tl.sum(tl.where(goes_on & (number > 0), sums, 0), axis=0))
    state = tl.where(goes_on & (number > 0), 1, 0) + tl.where(goes_on & comes, 2, 0)
    tl.store(states + tile, tl.max(state, axis=0))


@tl.kernel
def sum_spans(keys, total, heads, tails, states, tiles, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Add to `total` the runs that `sum_runs` left, each in the order of its tiles."""
    tile = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begins = (tl.load(states + tile, mask=tile < tiles, other=0) & 1) != 0
    key = tl.load(keys + tile * TILE + TILE - 1, mask=begins, other=-1)
    begins = begins & (key >= 0)
    found = tl.load(tails + tile, mask=begins, other=0)
    follows = begins
    step = 1
    while tl.max(follows.to(tl.int32), axis=0) != 0:
        found += tl.load(heads + tile + step, mask=follows, other=0)
        follows = follows & ((tl.load(states + tile + step, mask=follows, other=0) & 2) != 0)
        step += 1
    old = tl.load(total + key, mask=begins, other=0)
    tl.store(total + key, old + found, mask=begins)


@tl.kernel
def add_rows(
    keys, places, source, total, count, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Add rows of `source` `[count, columns]` to those of `total` that sorted `keys` name.

    The program of the first of equal keys takes all their rows, BLOCK_M at a time, in their order.
    """
    blocks = tl.cdiv(columns, BLOCK_N)
    first = tl.program_id(0) // blocks
    column = (tl.program_id(0) - first * blocks) * BLOCK_N
    key = tl.load(keys + first)
    before = tl.load(keys + first - 1, mask=first > 0, other=-2)
    if (key != before) & (key >= 0):
        rows = tl.arange(0, BLOCK_M)
        lanes = tl.arange(0, BLOCK_N)[None, :]
        width = tl.minimum(columns - column, BLOCK_N).to(tl.int32)
        found = widened(tl.zeros((BLOCK_N,), source.dtype.element_ty))
        start = first
        goes_on = key >= 0
        while goes_on:
            mask = tl.load(keys + start + rows, mask=start + rows < count, other=-1) == key
            place = tl.load(places + start + rows, mask=mask).to(tl.int64)
            pointers = source + (place * columns)[:, None] + column + lanes
            values = tl.load(pointers, mask=lanes < tl.where(mask, width, 0)[:, None], other=0)
            found += tl.sum(widened(values), axis=0)
            start += BLOCK_M
            goes_on = tl.min(mask.to(tl.int32), axis=0) != 0
        target = total + key.to(tl.int64) * columns + column + tl.arange(0, BLOCK_N)
        is_column = tl.arange(0, BLOCK_N) < width
        tl.store(target, tl.load(target, mask=is_column, other=0) + found, mask=is_column)


@tl.kernel
def bounds(x, found, count, BLOCK: tl.constexpr):
    """Raise `found` to the largest of integers `[count]` and to the complement of the smallest."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < count
    values = tl.load(x + lanes, mask=mask).to(tl.int64)
    tl.atomic_max(found, tl.max(tl.where(mask, values, LOWEST_INTEGER), axis=0), sem="relaxed")
    turned = tl.where(mask, ~values, LOWEST_INTEGER)
    tl.atomic_max(found + 1, tl.max(turned, axis=0), sem="relaxed")


@tl.kernel
def bin_of(values, bins, low, high, scale):
    """Return which of `bins` equal parts of `[low, high]` holds each number, -1 if none does.

    Computed in f32, in f64 for f64; integers are their own bins. The last part holds `high` too.
    """
    if values.dtype in (tl.float16, tl.bfloat16, tl.float32, tl.float64):
        wide = widened(values)
        bottom, top = low.to(wide.dtype), high.to(wide.dtype)
        number = tl.floor((wide - bottom) * scale.to(wide.dtype)).to(tl.int64)
        is_inside = (wide >= bottom) & (wide <= top)
        return tl.where(is_inside, tl.minimum(number, bins - 1), -1)
    number = values.to(tl.int64)
    return tl.where((number >= 0) & (number < bins), number, -1)


@tl.kernel
def count(x, counts, total, bins, low, high, scale, FEW: tl.constexpr, BLOCK: tl.constexpr):
    """Add to `counts` `[bins]` how many of `x` `[total]` lie in each bin.

    With up to FEW bins a program counts in shared memory and adds once, at its end; FEW of 0 adds
    each element to memory.
    """
    lanes = tl.arange(0, BLOCK)
    if FEW > 0:
        found = tl.zeros((FEW,), tl.int32)
        for start in range(tl.program_id(0) * BLOCK, total, tl.num_programs(0) * BLOCK):
            mask = start + lanes < total
            values = tl.load(x + start + lanes, mask=mask)
            number = bin_of(values, bins, low, high, scale).to(tl.int32)
            found += tl.histogram(number, FEW, mask=mask)
        numbers = tl.arange(0, FEW)
        is_found = (found > 0) & (numbers < bins)
        tl.atomic_add(counts + numbers, found.to(tl.int64), mask=is_found, sem="relaxed")
    else:
        for start in range(tl.program_id(0) * BLOCK, total, tl.num_programs(0) * BLOCK):
            mask = start + lanes < total
            values = tl.load(x + start + lanes, mask=mask)
            number = bin_of(values, bins, low, high, scale)
            ones = tl.full((BLOCK,), 1, tl.int64)
            tl.atomic_add(counts + number, ones, mask=mask & (number >= 0), sem="relaxed")
