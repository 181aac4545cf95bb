"""Cross entropy of a row of any width, chunk by chunk, with weights of classes in its smoothing.

The online recurrence of Milakov and Gimelshein (2018), kept for each thread: a chunk is folded so
that what a thread holds lies along one axis, whose maximum takes neither shuffles nor barriers.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.cross_entropy_parts import gradient_of, losses_of, smoothing_loss
from tilewright.kernels.rows import edge_of, load_chunk, load_row, working_dtype
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
    tl.store(dx_row + lanes, result, mask=mask)


@tl.kernel
def entropy_of_walked_row(
    x_row, dx_row, weight, lead, columns, place, loss_of_row, given, confidence,
    smoothing, mean, mass, z_loss, is_weighted, has_gradient,
    AXIS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write loss and gradient of a row chunk by chunk; all begin `lead` elements in front.

    Full chunks without a mask, each loaded while the one before it is worked on, then what is left
    of the body, and the edge. The way back begins with what the way there ended with.
    """
    working = working_dtype(x_row.dtype)
    # Neighbours that a thread loads at once.
    vector: tl.constexpr = 16 // x_row.dtype.element_ty.itemsize
    column = place - lead
    width = columns - lead
    body = width & -8
    full = width // BLOCK_N * BLOCK_N
    rest = full + tl.arange(0, BLOCK_N)
    edge_lanes, inside = edge_of(lead, body, width, 16)
    lowest = float("-inf")
    edge = tl.load(x_row + edge_lanes, mask=inside, other=lowest).to(working)
    chunk = load_chunk(x_row, 0, 1, full > 0, 0, BLOCK_N)
    held: tl.constexpr = chunk.numel // vector
    running_max = tl.full((held,), LOWEST_64 if working == tl.float64 else LOWEST, working)
    running_sum = tl.zeros((held,), working)
    for start in range(0, full, BLOCK_N):
        values = chunk
        following = start + BLOCK_N
        chunk = load_chunk(x_row, following, 1, following < full, values, BLOCK_N)
        rows = folded(values, AXIS, vector)
        running_max, running_sum = take_folded(running_max, running_sum, rows, AXIS)
    if full < body:
        values = load_row(x_row, rest, 1, rest < body, lowest)
        rows = folded(values, AXIS, vector)
        running_max, running_sum = take_folded(running_max, running_sum, rows, AXIS)
    highest = tl.maximum(tl.max(running_max, axis=0), tl.max(edge, axis=0))
    total = tl.sum(running_sum * tl.exp2((running_max - highest) * LOG2_E), axis=0)
    total = total + tl.sum(tl.exp2((edge - highest) * LOG2_E), axis=0)
    at_target = tl.load(x_row + column, mask=place >= 0, other=float("nan"))
    loss, factor = losses_of(highest, total, at_target.to(working), confidence, z_loss)
    if smoothing != 0:
        loss = loss + smoothing_loss(highest, total, smoothing, mean, mass)
        factor = factor + smoothing * mass
    tl.store(loss_of_row, loss)
    if has_gradient != 0:
        factor = given * factor / total
        share = given * (smoothing / columns)
        less = given * confidence
        store_walked(
            dx_row, weight, edge, edge_lanes, inside, highest, column,
            factor, share, less, is_weighted,
        )  # fmt: skip
        if full < body:
            values = load_row(x_row, rest, 1, rest < body, lowest)
            store_walked(
                dx_row, weight, values, rest, rest < body, highest, column,
                factor, share, less, is_weighted,
            )  # fmt: skip
        for passed in range(0, full, BLOCK_N):
            values = chunk
            start = full - BLOCK_N - passed
            chunk = load_chunk(x_row, start - BLOCK_N, 1, start > 0, values, BLOCK_N)
            store_walked(
                dx_row, weight, values, start + tl.arange(0, BLOCK_N), None, highest,
                column, factor, share, less, is_weighted,
            )  # fmt: skip


@tl.kernel
def zero_row(dx_row, columns, BLOCK_N: tl.constexpr):
    """Write the gradient of a row that does not count."""
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        tl.store(dx_row + lanes, tl.zeros((BLOCK_N,), tl.float32), mask=lanes < columns)
