"""Cross entropy of a row of any width, chunk by chunk: there for the loss, back for the gradient.

The online recurrence of Milakov and Gimelshein (2018), kept for each thread: a chunk is folded so
that what a thread holds lies along one axis, whose maximum takes neither shuffles nor barriers.
Chunks are copied ahead, and what is read or written for the last time makes way first: so that the
rows that all programs are at stay in the L2 cache until they are read again.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.cross_entropy_parts import gradient_of
from tilewright.kernels.rows import edge_of, load_row, working_dtype
from tilewright.kernels.softmax import LOG2_E, LOWEST, LOWEST_64


@tl.kernel
def folded(values, AXIS: tl.constexpr, VECTOR: tl.constexpr):
    """Return a chunk in the working type as a matrix, along whose AXIS lies what a thread holds.

    Neighbours where it loads vectors, else what is a whole chunk's threads apart.
    """
    wide = values.to(working_dtype(values.dtype))
    rest: tl.constexpr = values.numel // VECTOR
    if AXIS == 1:
        return tl.reshape(wide, (rest, VECTOR))
    return tl.reshape(wide, (VECTOR, rest))


@tl.kernel
def take_folded(running_max, running_sum, values, AXIS: tl.constexpr):
    """Take what each thread holds into its maximum and sum of exponentials relative to that."""
    highest = tl.maximum(running_max, tl.max(values, axis=AXIS))
    exponentials = tl.exp2((values - tl.expand_dims(highest, AXIS)) * LOG2_E)
    decay = tl.exp2((running_max - highest) * LOG2_E)
    return highest, running_sum * decay + tl.sum(exponentials, axis=AXIS)


@tl.kernel
def walk_there(
    x_row, lead, columns, AXIS: tl.constexpr, STAGES: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Return the largest logit of a row and the sum of exponentials relative to it.

    The row begins `lead` elements in front. Full chunks without a mask, then what is left of the
    body, and the edge, see `kernels.rows`. STAGES chunks are there or on their way.
    """
    working = working_dtype(x_row.dtype)
    # Neighbours that a thread loads at once.
    vector: tl.constexpr = 16 // x_row.dtype.element_ty.itemsize
    width = columns - lead
    body = width & -8
    full = width // BLOCK_N * BLOCK_N
    rest = full + tl.arange(0, BLOCK_N)
    held: tl.constexpr = rest.numel // vector
    running_max = tl.full((held,), LOWEST_64 if working == tl.float64 else LOWEST, working)
    running_sum = tl.zeros((held,), working)
    lanes, inside = edge_of(lead, body, width, 16)
    edge = tl.load(x_row + lanes, mask=inside, other=float("-inf")).to(working)
    for start in tl.range(0, full, BLOCK_N, num_stages=STAGES):
        values = tl.async_copy(x_row + start + tl.arange(0, BLOCK_N), cache_modifier=".cg")
        rows = folded(values, AXIS, vector)
        running_max, running_sum = take_folded(running_max, running_sum, rows, AXIS)
    if full < body:
        rows = folded(load_row(x_row, rest, 1, rest < body, float("-inf")), AXIS, vector)
        running_max, running_sum = take_folded(running_max, running_sum, rows, AXIS)
    highest = tl.maximum(tl.max(running_max, axis=0), tl.max(edge, axis=0))
    total = tl.sum(running_sum * tl.exp2((running_max - highest) * LOG2_E), axis=0)
    return highest, total + tl.sum(tl.exp2((edge - highest) * LOG2_E), axis=0)


@tl.kernel
def store_walked(
    dx_row, weight, values, lanes, mask, highest, place,
    factor, share, confidence, is_weighted,
):  # fmt: skip
    """Write the gradient of a chunk."""
    exponentials = tl.exp2((values.to(highest.dtype) - highest) * LOG2_E)
    if is_weighted != 0:
        shares = share * tl.load(weight + lanes, mask=mask)
        result = gradient_of(exponentials, lanes, place, factor, shares, confidence)
    else:
        result = gradient_of(exponentials, lanes, place, factor, share, confidence)
    tl.store(dx_row + lanes, result, mask=mask, eviction_policy="evict_first")


@tl.kernel
def walk_back(
    x_row, dx_row, weight, lead, columns, place, highest,
    factor, share, confidence, is_weighted, STAGES: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a row; all begin `lead` elements in front, as does `place`.

    The way back begins with what the way there ended with.
    """
    width = columns - lead
    body = width & -8
    full = width // BLOCK_N * BLOCK_N
    lanes, inside = edge_of(lead, body, width, 16)
    edge = tl.load(x_row + lanes, mask=inside)
    store_walked(
        dx_row, weight, edge, lanes, inside, highest, place,
        factor, share, confidence, is_weighted,
    )  # fmt: skip
    if full < body:
        rest = full + tl.arange(0, BLOCK_N)
        values = tl.load(x_row + rest, mask=rest < body)
        store_walked(
            dx_row, weight, values, rest, rest < body, highest, place,
            factor, share, confidence, is_weighted,
        )  # fmt: skip
    for passed in tl.range(0, full, BLOCK_N, num_stages=STAGES):
        chunk = full - BLOCK_N - passed + tl.arange(0, BLOCK_N)
        # In place too nothing is copied after it was written: each chunk writes where it was read.
        values = tl.async_copy(x_row + chunk, cache_modifier=".cg")
        store_walked(
            dx_row, weight, values, chunk, None, highest, place,
            factor, share, confidence, is_weighted,
        )  # fmt: skip
