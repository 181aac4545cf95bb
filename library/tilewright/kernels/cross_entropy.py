"""Cross entropy of rows of logits, and its gradient in the same pass.

In f32 whatever the narrower element type, in f64 for f64. `place_targets` makes of each target the
column that it names and counts the rows that are kept; then a program takes a row, or a few narrow
ones, and writes their losses and, if asked, their gradients, of `count` rows for each place along
the grid's second axis: `entropy` holds narrow rows in tiles,
`entropy_row` one long row in parts, both with one read of memory and one write. `entropy_walked`
takes rows of any width chunk by chunk, and reads twice for a gradient. `sum_losses` adds up, in an
order that the number of rows fixes.

With `p = softmax(x)`, the confidence `c`, that is `1 - smoothing` times the weight of the target,
and the share `s = smoothing / columns` of every class, the loss of a row is
`c * (lse - x[target]) + sum(s * weight * (lse - x)) + z_loss * lse ** 2`, and its gradient
`p * (c + sum(s * weight) + 2 * z_loss * lse) - s * weight`, less `c` at the target (Szegedy et al.
2016; for the last term Chowdhery et al. 2022).
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.cross_entropy_held import entropy_of_held_row
from tilewright.kernels.cross_entropy_parts import (
    IGNORED,
    OUTSIDE,
    counts_of,
    entropy_of_row,
    entropy_of_wide_row,
    given_to,
    gradient_of,
    losses_of,
    means_of_row,
    smoothing_loss,
    store_zeros,
    upstream,
    weight_of,
)
from tilewright.kernels.cross_entropy_walk import walk_back, walk_there
from tilewright.kernels.index import report
from tilewright.kernels.rows import are_alike, leading, load_row, store_row
from tilewright.kernels.softmax import LOG2_E, WIDE


@tl.kernel
def place_targets(
    target, weight, places, counts, outside,
    count, classes, ignore_index,
    has_weight, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the column of each of `count` targets, and for each program what its rows weigh.

    A target that is neither `ignore_index` nor a class is reported, and weighs 1.
    """
    program = tl.program_id(0)
    weighed = tl.zeros((BLOCK,), counts.dtype)
    for start in range(program * BLOCK, count, tl.num_programs(0) * BLOCK):
        rows = start + tl.arange(0, BLOCK)
        mask = rows < count
        targets = tl.load(target + rows, mask=mask, other=0).to(tl.int64)
        is_kept = mask & (targets != ignore_index)
        is_class = (targets >= 0) & (targets < classes)
        report(outside, is_kept & ~is_class)
        columns = tl.where(is_class, targets, OUTSIDE)
        tl.store(places + rows, tl.where(is_kept, columns, IGNORED), mask=mask)
        weights = tl.load(weight + targets, mask=is_kept & is_class & (has_weight != 0), other=1)
        weighed = weighed + tl.where(is_kept, weights, 0)
    tl.store(counts + program, tl.sum(weighed, axis=0))


@tl.kernel
def sum_losses(losses, counts, out, count, parts, is_mean, BLOCK: tl.constexpr):
    """Write for each program the sum of its share of `count` losses.

    With `is_mean` it is divided by the sum of what `parts` programs have counted.
    """
    program = tl.program_id(0)
    running = tl.zeros((BLOCK,), losses.dtype)
    for start in range(program * BLOCK, count, tl.num_programs(0) * BLOCK):
        rows = start + tl.arange(0, BLOCK)
        running = running + tl.load(losses + rows, mask=rows < count, other=0)
    total = tl.sum(running, axis=0)
    if is_mean != 0:
        total = total / tl.sum(counts_of(counts, parts), axis=0)
    tl.store(out + program, total)


@tl.kernel(divisible=("columns", "x_stride0", "x_stride1", "dx_stride0", "dx_stride1"))
def entropy(
    x, places, weight, counts, dloss, losses, dx,
    count, columns,
    x_stride0, x_stride1,
    dx_stride0, dx_stride1,
    dloss_stride, parts,
    smoothing, z_loss,
    has_weight, has_dloss, is_mean, has_gradient,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write losses, and gradients if asked; `columns <= BLOCK_N`, a program takes BLOCK_M rows."""
    outer = tl.program_id(1)
    inner = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = outer * count + inner
    is_row = inner < count
    lanes = tl.arange(0, BLOCK_N)[None, :]
    width = tl.where(is_row, columns.to(tl.int32), 0)
    place = tl.load(places + rows, mask=is_row, other=IGNORED)
    is_kept = place != IGNORED
    x_rows = x + outer * x_stride0 + inner * x_stride1
    dx_rows = dx + outer * dx_stride0 + inner * dx_stride1
    mask = lanes < tl.where(is_kept, width, 0)[:, None]  # [BLOCK_M, BLOCK_N]
    values = load_row(x_rows[:, None], lanes, 1, mask, float("-inf"))
    at_target = tl.load(x_rows + place, mask=place >= 0, other=float("nan"))
    at_target = at_target.to(values.dtype)
    highest = tl.max(values, axis=1)
    exponentials = tl.exp2((values - highest[:, None]) * LOG2_E)
    total = tl.sum(exponentials, axis=1)
    confidence = weight_of(weight, place, has_weight) * (1 - smoothing)
    loss, factor = losses_of(highest, total, at_target, confidence, z_loss)
    if smoothing != 0:
        mean = tl.sum(tl.where(mask, values, 0), axis=1) / columns
        loss = loss + smoothing_loss(highest, total, smoothing, mean, 1)
        factor = factor + smoothing
    tl.store(losses + rows, tl.where(is_kept, loss, 0), mask=is_row)
    if has_gradient != 0:
        given = given_to(rows, is_row, dloss, dloss_stride, has_dloss)
        given = upstream(given, counts_of(counts, parts), place, is_mean)
        result = gradient_of(
            exponentials,
            lanes,
            place[:, None],
            (given * factor / total)[:, None],
            (given * (smoothing / columns))[:, None],
            (given * confidence)[:, None],
        )
        result = tl.where(is_kept[:, None], result, 0)
        store_row(dx_rows[:, None], lanes, 1, result, lanes < width[:, None])


@tl.kernel
def entropy_row(
    x, places, weight, counts, dloss, losses, dx,
    count, columns,
    x_stride0, x_stride1,
    dx_stride0, dx_stride1,
    dloss_stride, parts,
    smoothing, z_loss,
    has_weight, has_dloss, is_mean, has_gradient,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the loss of each row of `columns` contiguous elements, and its gradient if asked.

    A program takes a row; `x` and `dx` lie equally far from a multiple of 16 bytes in each. There
    are at least 8 columns, and no more than BLOCK_N unless that is more than 32,768.
    """
    outer, inner = tl.program_id(1), tl.program_id(0)
    row = outer * count + inner
    x_row = x + outer * x_stride0 + inner * x_stride1
    dx_row = dx + outer * dx_stride0 + inner * dx_stride1
    # All that does not depend on another load is asked for first.
    place = tl.load(places + row)
    given = given_to(row, True, dloss, dloss_stride, has_dloss)
    counted = counts_of(counts, parts)
    width = columns.to(tl.int32)
    lead = leading(x_row, 16).to(tl.int32)
    x_row = tl.multiple_of(x_row + lead, 16)
    dx_row = tl.multiple_of(dx_row + lead, 16)
    if BLOCK_N > 2 * WIDE:
        entropy_of_held_row(
            x_row, dx_row, lead, width, place, weight, has_weight, losses + row, given, counted,
            is_mean, smoothing, z_loss, has_gradient, BLOCK_N // 8, 6, BLOCK_N // 16,
        )  # fmt: skip
    elif BLOCK_N >= WIDE:
        entropy_of_wide_row(
            x_row, dx_row, lead, width, place, weight, has_weight, losses + row, given, counted,
            is_mean, smoothing, z_loss, has_gradient, BLOCK_N // 4,
        )  # fmt: skip
    else:
        entropy_of_row(
            x_row, dx_row, lead, width, place, weight, has_weight, losses + row, given, counted,
            is_mean, smoothing, z_loss, has_gradient, BLOCK_N // 4,
        )  # fmt: skip


@tl.kernel
def entropy_walked(
    x, places, weight, counts, dloss, losses, dx,
    count, columns,
    x_stride0, x_stride1,
    dx_stride0, dx_stride1,
    dloss_stride, parts,
    smoothing, z_loss,
    has_weight, has_dloss, is_mean, has_gradient,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the loss of each row, and its gradient if asked, rows of any width and beginning.

    A program takes a row. Where `x` and `dx` lie differently there, it is accessed by elements.
    """
    tl.resident(2)
    outer, inner = tl.program_id(1), tl.program_id(0)
    row = outer * count + inner
    x_row = x + outer * x_stride0 + inner * x_stride1
    dx_row = dx + outer * dx_stride0 + inner * dx_stride1
    place = tl.load(places + row)
    width = columns.to(tl.int32)
    lead = leading(x_row, 16).to(tl.int32)
    is_alike = (x.dtype != tl.float64) & (lead + 8 <= width) & are_alike(x_row, dx_row, 16)
    if is_alike:
        highest, total = walk_there(tl.multiple_of(x_row + lead, 16), lead, width, 1, 4, BLOCK_N)
    else:
        highest, total = walk_there(x_row, 0, width, 0, 1, BLOCK_N)
    at_target = tl.load(x_row + place, mask=place >= 0, other=float("nan")).to(highest.dtype)
    confidence = weight_of(weight, place, has_weight) * (1 - smoothing)
    loss, factor = losses_of(highest, total, at_target, confidence, z_loss)
    if smoothing != 0:
        mean, mass = means_of_row(x_row, weight, width, has_weight, BLOCK_N)
        loss = loss + smoothing_loss(highest, total, smoothing, mean, mass)
        factor = factor + smoothing * mass
    tl.store(losses + row, tl.where(place == IGNORED, 0, loss))
    if has_gradient != 0:
        if place == IGNORED:
            if (x.dtype == tl.float64) | (width < 8):
                store_zeros(dx_row, 0, width, BLOCK_N)
            else:
                lead = leading(dx_row, 16).to(tl.int32)
                store_zeros(tl.multiple_of(dx_row + lead, 16), lead, width, BLOCK_N)
        else:
            given = given_to(row, True, dloss, dloss_stride, has_dloss)
            given = upstream(given, counts_of(counts, parts), place, is_mean)
            factor = given * factor / total
            share = given * (smoothing / columns)
            less = given * confidence
            if is_alike:
                walk_back(
                    tl.multiple_of(x_row + lead, 16), tl.multiple_of(dx_row + lead, 16),
                    weight + lead, lead, width, place - lead, highest,
                    factor, share, less, has_weight, 4, BLOCK_N,
                )  # fmt: skip
            else:
                walk_back(
                    x_row, dx_row, weight, 0, width, place, highest,
                    factor, share, less, has_weight, 1, BLOCK_N,
                )  # fmt: skip
