"""Sums, extrema, their places and variances over any axes.

An array is seen as kept axes `[kept0, kept1]` and reduced axes `[reduced0, reduced1]`. `inner`
takes tiles `[kept, reduced]` and wants the last reduced axis contiguous, `outer` takes tiles
`[reduced, kept]` with the last kept axis contiguous, so that both load whole vectors; strides that
only the launch knows are walked by the same code. OPERATION is "sum", "mean" (of integers), "max",
"arg" or "var". A tile is combined element by element along the reduced axes, and across itself
once, at the end.

Where few results would leave the device idle, grid axis 1 splits the reduced axes. Each program
then leaves what it found in a workspace `[kept, parts]`, and `combine` takes the parts of a result
together. The order of combination depends on the shape and the configuration alone, so equal inputs
give equal bits.

Floats below 64 bits are combined in f32, integers in i64 (f64 for their mean), and rounded once, at
the end.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import row_offsets

# The top bit, which orders unsigned numbers of 64 bits as signed ones.
TOP = tl.constexpr(1 << 63)
LOWEST_INTEGER = tl.constexpr(-(1 << 63))
NOWHERE = tl.constexpr((1 << 63) - 1)
LAST_OF_PART = tl.constexpr((1 << 31) - 1)


@tl.kernel
def widened(values):
    """Return numbers in the type that they are combined in."""
    if values.dtype in (tl.float32, tl.float64, tl.int64):
        return values
    if values.dtype in (tl.float16, tl.bfloat16):
        return values.to(tl.float32)
    return values.to(tl.int64)


@tl.kernel
def sign_of(is_min, values):
    """Return what turns the order for a minimum: a factor of floats, a mask of integers' bits."""
    if values.dtype in (tl.float32, tl.float64):
        return tl.where(is_min != 0, -1.0, 1.0).to(values.dtype)
    return tl.where(is_min != 0, -1, 0).to(tl.int64)


@tl.kernel
def as_sought(values, is_min):
    """Return numbers of which the largest is sought: in the opposite order for a minimum.

    Integers are turned by their complement, since the lowest one has no negative.
    """
    if values.dtype == tl.uint64:
        values = values ^ TOP
    wide = widened(values)
    if wide.dtype == tl.int64:
        return wide ^ sign_of(is_min, wide)
    return wide * sign_of(is_min, wide)


@tl.kernel
def as_found(wide, is_min, out):
    """Return what `as_sought` made of numbers of the type that `out` points to."""
    if wide.dtype != tl.int64:
        return wide * sign_of(is_min, wide)
    turned = wide ^ sign_of(is_min, wide)
    if out.dtype.element_ty == tl.uint64:
        return turned.to(tl.uint64) ^ TOP
    return turned


@tl.kernel
def as_lowest(wide):
    """Return a tile, of the shape and type of another, of what is below all numbers."""
    if wide.dtype == tl.int64:
        return tl.full(wide.shape, LOWEST_INTEGER, tl.int64)
    return tl.full(wide.shape, float("-inf"), wide.dtype)


@tl.kernel
def along(lanes, AXIS: tl.constexpr):
    """Return lanes as the reduced axis of a tile."""
    return lanes[None, :] if AXIS == 1 else lanes[:, None]


@tl.kernel
def across(lanes, AXIS: tl.constexpr):
    """Return lanes as the kept axis of a tile."""
    return lanes[:, None] if AXIS == 1 else lanes[None, :]


@tl.kernel
def filled(x_rows, is_lowest: tl.constexpr, AXIS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return a tile of zeros, or of what is below all, of the type elements are combined in."""
    shape = (x_rows.shape[0], BLOCK_K) if AXIS == 1 else (BLOCK_K, x_rows.shape[1])
    zeros = widened(tl.zeros(shape, x_rows.dtype.element_ty))
    return as_lowest(zeros) if is_lowest else zeros


@tl.kernel
def place_of(chunk, reduced0, reduced1, BLOCK_K: tl.constexpr):
    """Return the index along reduced axis 0 of a chunk, and its first one along axis 1."""
    row = chunk * 0
    start = chunk * BLOCK_K
    if reduced0 > 1:  # 64-bit division is slow, and most reductions have one axis
        chunks = tl.cdiv(reduced1, BLOCK_K)
        row = chunk // chunks
        start = (chunk - row * chunks) * BLOCK_K
    return row, start


@tl.kernel
def elements_before(chunk, reduced0, reduced1, BLOCK_K: tl.constexpr):
    """Return how many elements of a result lie in chunks before this one."""
    row, start = place_of(chunk, reduced0, reduced1, BLOCK_K)
    return row * reduced1 + tl.minimum(start, reduced1)


@tl.kernel
def load_chunk(x_rows, inside, chunk, sizes, strides, AXIS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return a chunk, 0 outside, and which of it is inside."""
    row, start = place_of(chunk, sizes[0], sizes[1], BLOCK_K)
    lanes = along(tl.arange(0, BLOCK_K), AXIS)
    left = tl.minimum(sizes[1] - start, BLOCK_K).to(tl.int32)
    mask = lanes < tl.where(inside, left, 0) if AXIS == 1 else (lanes < left) & inside
    base = x_rows + row * strides[0] + start * strides[1]
    if AXIS == 0:
        values = tl.load(base + lanes * strides[1], mask=mask, other=0)
    elif strides[1] == 1:  # known to the launch alone, it spares a multiplication an element
        values = tl.load(base + lanes, mask=mask, other=0)
    else:
        values = tl.load(base + lanes * strides[1], mask=mask, other=0)
    return values, mask


@tl.kernel
def sum_of(
    x_rows, inside, span, sizes, strides,
    IN_F64: tl.constexpr, AXIS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return the sums of the chunks from `span[0]` to `span[1]`."""
    running = filled(x_rows, False, AXIS, BLOCK_K)
    if IN_F64:
        running = running.to(tl.float64)
    for chunk in range(span[0], span[1]):
        values, _ = load_chunk(x_rows, inside, chunk, sizes, strides, AXIS, BLOCK_K)
        running += values.to(tl.float64) if IN_F64 else widened(values)
    return tl.sum(running, axis=AXIS)


@tl.kernel
def max_of(x_rows, inside, span, sizes, strides, is_min, AXIS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return what is sought of the chunks, in the order of `as_sought`."""
    below = filled(x_rows, True, AXIS, BLOCK_K)
    running = below
    for chunk in range(span[0], span[1]):
        values, mask = load_chunk(x_rows, inside, chunk, sizes, strides, AXIS, BLOCK_K)
        running = tl.maximum(running, tl.where(mask, as_sought(values, is_min), below))
    return tl.max(running, axis=AXIS)


@tl.kernel
def first_of(best, top, places, last: tl.constexpr, AXIS: tl.constexpr):
    """Return the lowest of the places whose element is the top one, a NaN if that is NaN."""
    is_top = (best == top) | ((best != best) & (top != top))
    return tl.min(tl.where(is_top, places, last), axis=AXIS)


@tl.kernel
def place_of_max(
    x_rows, inside, span, sizes, strides, is_min, AXIS: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Return what is sought of the chunks and its place among all elements of a result."""
    below = filled(x_rows, True, AXIS, BLOCK_K)
    best = below
    # Places count from the part's first chunk, which 32 bits hold. What lies outside equals the
    # lowest number, but is never the first that does.
    places = along(tl.arange(0, BLOCK_K), AXIS) + tl.zeros(best.shape, tl.int32)
    for chunk in range(span[0], span[1]):
        values, mask = load_chunk(x_rows, inside, chunk, sizes, strides, AXIS, BLOCK_K)
        values = tl.where(mask, as_sought(values, is_min), below)
        is_better = (values > best) | ((values != values) & (best == best))
        best = tl.where(is_better, values, best)
        here = ((chunk - span[0]) * BLOCK_K).to(tl.int32) + along(tl.arange(0, BLOCK_K), AXIS)
        places = tl.where(is_better, here, places)
    top = tl.max(best, axis=AXIS)
    place = first_of(best, across(top, AXIS), places, LAST_OF_PART, AXIS)
    row, start = place_of(span[0] + place // BLOCK_K, sizes[0], sizes[1], BLOCK_K)
    return top, row * sizes[1] + start + place % BLOCK_K


@tl.kernel
def spread_of(x_rows, inside, span, sizes, strides, AXIS: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return of the chunks the means, the sums of squares about them, and how many elements.

    Sums are taken of differences from the mean of the first chunk, so that no digits cancel where
    the mean is large; and that mean of quotients, which cannot overflow.
    """
    before = elements_before(span[0], sizes[0], sizes[1], BLOCK_K)
    first = elements_before(span[0] + 1, sizes[0], sizes[1], BLOCK_K) - before
    values, mask = load_chunk(x_rows, inside, span[0], sizes, strides, AXIS, BLOCK_K)
    wide = widened(values)
    share = 1.0 / tl.maximum(first, 1).to(wide.dtype)
    pivot = tl.sum(tl.where(mask, wide * share, 0.0), axis=AXIS)
    difference = tl.where(mask, wide - across(pivot, AXIS), 0.0)
    sums = difference
    squares = difference * difference
    for chunk in range(span[0] + 1, span[1]):
        values, mask = load_chunk(x_rows, inside, chunk, sizes, strides, AXIS, BLOCK_K)
        difference = tl.where(mask, widened(values) - across(pivot, AXIS), 0.0)
        sums += difference
        squares += difference * difference
    count = (elements_before(span[1], sizes[0], sizes[1], BLOCK_K) - before).to(wide.dtype)
    total = tl.sum(sums, axis=AXIS)
    shift = total / count
    return pivot + shift, tl.maximum(tl.sum(squares, axis=AXIS) - total * shift, 0.0), count


@tl.kernel
def store_result(out_rows, inside, found, divisor, flag, OPERATION: tl.constexpr):
    """Store results: sums and squares over the divisor, extrema in their own order, places."""
    if OPERATION == "max":
        tl.store(out_rows, as_found(found, flag, out_rows), mask=inside)
    elif OPERATION == "arg" or found.dtype == tl.int64:
        tl.store(out_rows, found, mask=inside)
    else:
        result = found / divisor.to(found.dtype)
        if OPERATION == "var":
            result = tl.where(flag != 0, tl.sqrt(result), result)
        tl.store(out_rows, result, mask=inside)


@tl.kernel
def reduce_program(
    x_rows, out_rows, workspace, rows, inside, results, sizes, strides, part, divisor, flag,
    OPERATION: tl.constexpr, AXIS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Combine a program's part of the reduced axes; a part that is all of them is the result."""
    parts = tl.num_programs(1)
    first = tl.program_id(1) * part
    span = (first, tl.minimum(first + part, sizes[0] * tl.cdiv(sizes[1], BLOCK_K)))
    pointers, held = across(x_rows, AXIS), across(inside, AXIS)
    place = workspace + rows * parts + tl.program_id(1)
    plane = results * parts
    if OPERATION == "max":
        found = max_of(pointers, held, span, sizes, strides, flag, AXIS, BLOCK_K)
    elif OPERATION == "arg":
        top, found = place_of_max(pointers, held, span, sizes, strides, flag, AXIS, BLOCK_K)
        if parts > 1:
            tl.store(place + plane, top, mask=inside)
    elif OPERATION == "var":
        mean, found, count = spread_of(pointers, held, span, sizes, strides, AXIS, BLOCK_K)
        if parts > 1:
            tl.store(place + plane, mean, mask=inside)
            tl.store(place + 2 * plane, count, mask=inside)
    else:
        found = sum_of(pointers, held, span, sizes, strides, OPERATION == "mean", AXIS, BLOCK_K)
    if parts > 1:
        tl.store(place, found, mask=inside)
    else:
        store_result(out_rows, inside, found, divisor, flag, OPERATION)


@tl.kernel
def combine(
    workspace, out,
    kept0, kept1, parts, elements, divisor, flag, out_kept0, out_kept1,
    OPERATION: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Write to `out` what OPERATION makes of the parts that `inner` or `outer` left.

    A program takes one result, of at most BLOCK_P parts and of `elements` elements in all.
    """
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK_P)
    mask = lanes < parts
    plane = kept0 * kept1 * parts
    place = workspace + row * parts + lanes
    values = tl.load(place, mask=mask, other=0)
    if OPERATION == "max":
        found = tl.max(tl.where(mask, values, as_lowest(values)), axis=0)
    elif OPERATION == "arg":
        tops = tl.load(place + plane, mask=mask, other=0)
        places = tl.where(mask, values.to(tl.int64), NOWHERE)
        tops = tl.where(mask, tops, as_lowest(tops))
        found = first_of(tops, tl.max(tops, axis=0), places, NOWHERE, 0)
    elif OPERATION == "var":
        means = tl.load(place + plane, mask=mask, other=0)
        counts = tl.load(place + 2 * plane, mask=mask, other=0)
        mean = tl.sum(means * (counts / elements.to(means.dtype)), axis=0)
        distance = tl.where(mask, means - mean, 0.0)
        found = tl.sum(values + counts * distance * distance, axis=0)
    else:
        found = tl.sum(values, axis=0)
    out_rows = out + row_offsets(row, kept0, kept1, out_kept0, out_kept1)
    store_result(out_rows, None, found, divisor, flag, OPERATION)


@tl.kernel(divisible=("x_kept0", "x_kept1", "x_reduced0"), unit=("x_reduced1",))
def inner(
    x, out, workspace,
    kept0, kept1, reduced0, reduced1, part, divisor, flag,
    x_kept0, x_kept1, x_reduced0, x_reduced1,
    out_kept0, out_kept1,
    OPERATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write to `out` what OPERATION makes of the reduced axes of `x`.

    A program takes BLOCK_M results and `part` chunks of BLOCK_K of the last reduced axis; sums are
    divided by `divisor`; `flag` says that a minimum is sought, or the root of a variance.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    x_rows = x + row_offsets(rows, kept0, kept1, x_kept0, x_kept1)
    out_rows = out + row_offsets(rows, kept0, kept1, out_kept0, out_kept1)
    reduce_program(
        x_rows, out_rows, workspace, rows, rows < kept0 * kept1, kept0 * kept1,
        (reduced0, reduced1), (x_reduced0, x_reduced1), part, divisor, flag,
        OPERATION, 1, BLOCK_K,
    )  # fmt: skip


@tl.kernel(divisible=("x_kept0", "x_reduced0", "x_reduced1"), unit=("x_kept1",))
def outer(
    x, out, workspace,
    kept0, kept1, reduced0, reduced1, part, divisor, flag,
    x_kept0, x_kept1, x_reduced0, x_reduced1,
    out_kept0, out_kept1,
    OPERATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write to `out` what OPERATION makes of the reduced axes of `x`.

    A program takes BLOCK_M results along `kept1` and `part` chunks of BLOCK_K of the last reduced
    axis; the rest is as for `inner`.
    """
    blocks = tl.cdiv(kept1, BLOCK_M)
    row = tl.program_id(0) // blocks
    column = (tl.program_id(0) - row * blocks) * BLOCK_M
    lanes = tl.arange(0, BLOCK_M)
    inside = lanes < tl.minimum(kept1 - column, BLOCK_M).to(tl.int32)
    x_rows = x + (row * x_kept0 + column * x_kept1) + lanes * x_kept1
    out_rows = out + (row * out_kept0 + column * out_kept1) + lanes * out_kept1
    reduce_program(
        x_rows, out_rows, workspace, row * kept1 + column + lanes, inside, kept0 * kept1,
        (reduced0, reduced1), (x_reduced0, x_reduced1), part, divisor, flag,
        OPERATION, 0, BLOCK_K,
    )  # fmt: skip
