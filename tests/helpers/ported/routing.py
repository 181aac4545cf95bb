"""Kernels that count, sort and gather: experts, histograms, bags and rows of different lengths."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def gate_top_k(logits, weights, chosen, experts, K: tl.constexpr, BLOCK: tl.constexpr):
    """The K best experts of a token, with their softmax over those K."""
    token = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    scores = tl.load(logits + token * experts + lanes, mask=lanes < experts, other=-float("inf"))
    best, places = tl.topk(scores.to(tl.float32), K, return_indices=True)
    tl.store(weights + token * K + tl.arange(0, K), tl.softmax(best, 0))
    tl.store(chosen + token * K + tl.arange(0, K), places)


@tl.kernel
def align_tokens(
    chosen, order, starts, counts, n, padding,
    EXPERTS: tl.constexpr, BLOCK: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """Sort assignments by expert, each expert's part rounded up to `ROUND` places, in one program.

    What is left over in `order` becomes `padding`. Equal experts keep their order.
    """
    bins = tl.arange(0, EXPERTS)
    found = tl.zeros([EXPERTS], tl.int32)
    for start in range(0, n, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        experts = tl.load(chosen + lanes, mask=lanes < n, other=-1)
        found += tl.histogram(experts, EXPERTS)
    rounded = tl.cdiv(found, ROUND) * ROUND
    first = tl.cumsum(rounded, 0) - rounded
    tl.store(starts + bins, first)
    tl.store(counts + bins, found)
    for start in range(0, tl.sum(rounded, 0), BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        tl.store(order + lanes, padding, mask=lanes < tl.sum(rounded, 0))
    for start in range(0, n, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        experts = tl.load(chosen + lanes, mask=lanes < n, other=-1)
        is_of = (experts[:, None] == bins[None, :]).to(tl.int32)
        rank = tl.cumsum(is_of, 0) - is_of + first[None, :]
        place = tl.sum(tl.where(is_of == 1, rank, 0), axis=1)
        tl.store(order + place, lanes, mask=lanes < n)
        first += tl.sum(is_of, axis=0)


@tl.kernel
def histogram(x, counts, n, low, width, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Count floats in bins of one width: by block in registers, then added in memory."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    bins = tl.floor((tl.load(x + lanes, mask=mask) - low) / width).to(tl.int32)
    found = tl.histogram(bins, BINS, mask=mask)
    tl.atomic_add(counts + tl.arange(0, BINS), found, mask=found > 0, sem="relaxed")


@tl.kernel
def embedding_bag(
    table, indices, offsets, out, width, MODE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The sum or mean of the rows of a table that each bag names; an empty bag gives 0."""
    bag = tl.program_id(0)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < width
    first, last = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    total = tl.zeros([BLOCK], tl.float32)
    for place in range(first, last):
        row = tl.load(indices + place).to(tl.int64)
        total += tl.load(table + row * width + lanes, mask=mask).to(tl.float32)
    if MODE == "mean":
        total /= tl.maximum(last - first, 1)
    tl.store(out + bag * width + lanes, total, mask=mask)


@tl.kernel
def embedding_bag_backward(grad, indices, offsets, grad_table, width, BLOCK: tl.constexpr):
    """Add a bag's gradient to every row that it names."""
    bag = tl.program_id(0)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < width
    values = tl.load(grad + bag * width + lanes, mask=mask)
    for place in range(tl.load(offsets + bag), tl.load(offsets + bag + 1)):
        row = tl.load(indices + place).to(tl.int64)
        tl.atomic_add(grad_table + row * width + lanes, values, mask=mask, sem="relaxed")


@tl.kernel
def jagged_mean(
    values, offsets, out, width, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """The mean over the rows of each ragged part, NaN for a part without rows."""
    part = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    first, last = tl.load(offsets + part), tl.load(offsets + part + 1)
    total = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    for start in range(first, last, BLOCK_R):
        rows = start + tl.arange(0, BLOCK_R)
        mask = (rows < last)[:, None] & (columns < width)[None, :]
        total += tl.load(values + rows[:, None] * width + columns[None, :], mask=mask, other=0.0)
    mean = tl.sum(total, axis=0) / (last - first)
    tl.store(out + part * width + columns, mean, mask=columns < width)


@tl.kernel
def running_sum(x, out, tickets, states, n, BLOCK: tl.constexpr):
    """A cumulative sum of the whole array in one pass, by looking back at earlier programs.

    A program takes a ticket, so that those it waits for have begun. `states` holds a flag and a
    sum for each: 1 with what the block adds up to, 2 with all up to its end.
    """
    block = tl.atomic_add(tickets, 1).to(tl.int64)
    lanes = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + lanes, mask=lanes < n, other=0)
    local = tl.sum(values, axis=0)
    # The flag and the sum travel in one word.
    tl.atomic_xchg(states + block, (local.to(tl.int64) << 2) | 1, sem="release")
    before = tl.zeros_like(local)
    earlier = block - 1
    while earlier >= 0:
        state = tl.atomic_add(states + earlier, 0, sem="acquire")
        flag = state & 3
        if flag != 0:
            before += (state >> 2).to(before.dtype)
            earlier = tl.where(flag == 2, -1, earlier - 1)
    everything = (before + local).to(tl.int64)
    tl.atomic_xchg(states + block, (everything << 2) | 2, sem="release")
    tl.store(out + lanes, tl.cumsum(values, 0) + before, mask=lanes < n)
