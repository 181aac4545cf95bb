"""What cross entropy is made of: its terms, and one long row held in parts, see `kernels.rows`."""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import (
    edge_of,
    in_f32,
    load_part,
    load_parts,
    working_dtype,
)
from tilewright.kernels.softmax import LOG2_E, exponential

# What stands for a column: a row that does not count, and a target that names no class.
IGNORED = tl.constexpr(-1)
OUTSIDE = tl.constexpr(-2)
# The most programs that share the targets, or the losses.
MOST_PARTS = tl.constexpr(32)


@tl.kernel
def counts_of(counts, parts):
    """Load what programs left; no more than MOST_PARTS did."""
    places = tl.arange(0, MOST_PARTS)
    return tl.load(counts + places, mask=places < parts, other=0)


@tl.kernel
def given_to(rows, is_row, dloss, dloss_stride, has_dloss):
    """Load the gradient of each row's loss, 1 where none is given."""
    return tl.load(dloss + rows * dloss_stride, mask=is_row & (has_dloss != 0), other=1)


@tl.kernel
def upstream(given, counted, place, is_mean):
    """Return the gradient of each row's loss before the reduction, NaN without a class."""
    if is_mean != 0:
        given = given / tl.sum(counted, axis=0)
    return tl.where(place == OUTSIDE, float("nan"), given)


@tl.kernel
def weight_of(weight, place, has_weight):
    """Return the weight of each target."""
    return tl.load(weight + place, mask=(place >= 0) & (has_weight != 0), other=1)


@tl.kernel
def losses_of(highest, total, at_target, confidence, z_loss):
    """Return each row's loss without smoothing, and what its probabilities are multiplied with.

    `highest` and `total` are the largest logit and the sum of exponentials relative to it. A term
    without a factor is left out: it may be infinite.
    """
    log_total = tl.log(total)
    loss = confidence * ((highest - at_target) + log_total)
    factor = confidence
    if z_loss != 0:
        lse = highest + log_total
        loss = loss + z_loss * (lse * lse)
        factor = factor + 2 * z_loss * lse
    return loss, factor


@tl.kernel
def smoothing_loss(highest, total, smoothing, mean, mass):
    """Return what smoothing adds; `mean` and `mass` are those of logits and weights of all classes.

    The mean is one of logits times weights.
    """
    return smoothing * ((highest * mass - mean) + tl.log(total) * mass)


@tl.kernel
def gradient_of(exponentials, lanes, place, factor, share, confidence):
    """Return gradients from exponentials; `place` counts as `lanes` do."""
    values = exponentials * factor - share
    return tl.where(lanes == place, values - confidence, values)


@tl.kernel
def means_of_row(x_row, weight, columns, is_weighted, BLOCK_N: tl.constexpr):
    """Return the means of logits times weights of their classes, and of the weights."""
    working = working_dtype(x_row.dtype)
    logits = tl.zeros((BLOCK_N,), working)
    weights = tl.zeros((BLOCK_N,), working)
    for start in range(0, columns, BLOCK_N):
        lanes = start + tl.arange(0, BLOCK_N)
        mask = lanes < columns
        given = tl.load(weight + lanes, mask=mask & (is_weighted != 0), other=1)
        logits = logits + given * tl.load(x_row + lanes, mask=mask, other=0).to(working)
        weights = weights + tl.where(mask, given, 0)
    return tl.sum(logits, axis=0) / columns, tl.sum(weights, axis=0) / columns


@tl.kernel
def store_zeros(dx_row, lead, columns, BLOCK_N: tl.constexpr):
    """Write the gradient of a row that does not count and begins `lead` elements in front."""
    width = columns - lead
    body = width & -8
    lanes, inside = edge_of(lead, body, width, 16)
    tl.store(dx_row + lanes, tl.zeros(lanes.shape, tl.float32), mask=inside)
    for start in range(0, body, BLOCK_N):
        places = start + tl.arange(0, BLOCK_N)
        tl.store(dx_row + places, tl.zeros((BLOCK_N,), tl.float32), mask=places < body)


@tl.kernel
def store_gradients(
    dx_row, exponentials, start: tl.constexpr, end: tl.constexpr, body, place,
    factor, share, confidence,
):  # fmt: skip
    """Write the gradient of a part."""
    lanes = tl.arange(start, end)
    values = gradient_of(exponentials, lanes, place, factor, share, confidence)
    tl.store(dx_row + lanes, values, mask=lanes < body)


@tl.kernel
def finished_loss(
    highest, total, at_target, confidence, place, x_row, columns, smoothing, z_loss, loss_of_row,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the loss of a row; return what its probabilities are multiplied with.

    Its mean takes the row once more, from a cache: few ask, and registers are scarce.
    """
    loss, factor = losses_of(highest, total, at_target, confidence, z_loss)
    if smoothing != 0:
        mean, _ = means_of_row(x_row, loss_of_row, columns, 0, BLOCK_N)
        loss = loss + smoothing_loss(highest, total, smoothing, mean, 1)
        factor = factor + smoothing
    tl.store(loss_of_row, tl.where(place == IGNORED, 0, loss))
    return factor


@tl.kernel
def entropy_of_row(
    x_row, dx_row, lead, columns, place, weight, has_weight, loss_of_row, given, counted, is_mean,
    smoothing, z_loss, has_gradient, PART: tl.constexpr,
):  # fmt: skip
    """Write loss and gradient of a row held in parts; rows begin `lead` elements in front.

    A row that does not count is read too: which it is comes too late to wait for.
    """
    width = columns - lead
    body = width & -8
    lanes, inside = edge_of(lead, body, width, 16)
    a, b, c, d, edge = load_parts(x_row, body, lanes, inside, float("-inf"), PART)
    column = place - lead
    at_target = tl.load(x_row + column, mask=place >= 0, other=float("nan")).to(tl.float32)
    confidence = weight_of(weight, place, has_weight) * (1 - smoothing)
    a, b, c, d, edge = in_f32(a, b, c, d, edge)
    highest = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)), axis=0)
    highest = tl.maximum(highest, tl.max(edge, axis=0))
    a = tl.exp2((a - highest) * LOG2_E)
    b = tl.exp2((b - highest) * LOG2_E)
    c = tl.exp2((c - highest) * LOG2_E)
    d = tl.exp2((d - highest) * LOG2_E)
    edge = tl.exp2((edge - highest) * LOG2_E)
    total = tl.sum((a + b) + (c + d), axis=0) + tl.sum(edge, axis=0)
    factor = finished_loss(
        highest, total, at_target, confidence, place, x_row - lead, columns, smoothing, z_loss,
        loss_of_row, PART // 8,
    )  # fmt: skip
    if has_gradient != 0:
        if place == IGNORED:
            store_zeros(dx_row, lead, columns, PART)
        else:
            given = upstream(given, counted, place, is_mean)
            factor = given * factor / total
            share = given * (smoothing / columns)
            less = given * confidence
            store_gradients(dx_row, a, 0, PART, body, column, factor, share, less)
            store_gradients(dx_row, b, PART, 2 * PART, body, column, factor, share, less)
            store_gradients(dx_row, c, 2 * PART, 3 * PART, body, column, factor, share, less)
            store_gradients(dx_row, d, 3 * PART, 4 * PART, body, column, factor, share, less)
            values = gradient_of(edge, lanes, column, factor, share, less)
            tl.store(dx_row + lanes, values, mask=inside)


@tl.kernel
def entropy_of_wide_row(
    x_row, dx_row, lead, columns, place, weight, has_weight, loss_of_row, given, counted, is_mean,
    smoothing, z_loss, has_gradient, PART: tl.constexpr,
):  # fmt: skip
    """Do so where the f32 values would take all registers: the row is read again, from a cache.

    Of 2-byte elements two programs fit a multiprocessor: one loads while the other computes.
    """
    if PART <= 8192 and x_row.dtype != tl.float32:
        tl.resident(2)
    width = columns - lead
    body = width & -8
    lanes, inside = edge_of(lead, body, width, 16)
    lowest = float("-inf")
    a = load_part(x_row, 0, PART, body, lowest, "")
    b = load_part(x_row, PART, 2 * PART, body, lowest, "")
    c = load_part(x_row, 2 * PART, 3 * PART, body, lowest, "")
    d = load_part(x_row, 3 * PART, 4 * PART, body, lowest, "")
    edge = tl.load(x_row + lanes, mask=inside, other=lowest)
    column = place - lead
    at_target = tl.load(x_row + column, mask=place >= 0, other=float("nan")).to(tl.float32)
    confidence = weight_of(weight, place, has_weight) * (1 - smoothing)
    highest = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)), axis=0).to(tl.float32)
    highest = tl.maximum(highest, tl.max(edge.to(tl.float32), axis=0))
    edge = exponential(edge, highest)
    running = (exponential(a, highest) + exponential(b, highest)) + (
        exponential(c, highest) + exponential(d, highest)
    )
    total = tl.sum(running, axis=0) + tl.sum(edge, axis=0)
    factor = finished_loss(
        highest, total, at_target, confidence, place, x_row - lead, columns, smoothing, z_loss,
        loss_of_row, PART // 8,
    )  # fmt: skip
    if has_gradient != 0:
        if place == IGNORED:
            store_zeros(dx_row, lead, columns, PART)
        else:
            given = upstream(given, counted, place, is_mean)
            factor = given * factor / total
            share = given * (smoothing / columns)
            less = given * confidence
            values = gradient_of(edge, lanes, column, factor, share, less)
            tl.store(dx_row + lanes, values, mask=inside)
            for start in range(0, body, PART):
                places = start + tl.arange(0, PART)
                part = tl.load(x_row + places, mask=places < body, other=lowest)
                result = exponential(part, highest)
                result = gradient_of(result, places, column, factor, share, less)
                tl.store(dx_row + places, result, mask=places < body, eviction_policy="evict_first")
