"""Attention and what replaces it: flash, paged decoding, rotary embedding, delta rule, scans."""

from __future__ import annotations

import tilewright.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@tl.kernel
def flash_attention(
    q, k, v, out, logsums, length, scale, DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Causal attention of one head a program row, in one pass over the keys up to the diagonal."""
    head = tl.program_id(1) * length * DIM
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    query = tl.load(q + head + rows[:, None] * DIM + dims[None, :], mask=(rows < length)[:, None])
    largest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DIM], tl.float32)
    for start in range(0, tl.minimum((tl.program_id(0) + 1) * BLOCK_M, length), BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        is_key = keys < length
        places = keys[:, None] * DIM + dims[None, :]
        key = tl.load(k + head + places, mask=is_key[:, None])
        value = tl.load(v + head + places, mask=is_key[:, None])
        scores = tl.dot(query, key.T) * (scale * LOG2_E)
        is_seen = (rows[:, None] >= keys[None, :]) & is_key[None, :]
        scores = tl.where(is_seen, scores, -float("inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(largest - higher)
        total = total * kept + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(value.dtype), value, acc * kept[:, None])
        largest = higher
    result = acc / total[:, None]
    mask = rows < length
    tl.store(out + head + rows[:, None] * DIM + dims[None, :], result, mask=mask[:, None])
    logsum = largest / LOG2_E + tl.log(total)
    tl.store(logsums + tl.program_id(1) * length + rows, logsum, mask=mask)


@tl.kernel
def paged_attention(
    q, keys, values, out, tables, lengths, scale, max_pages, kv_heads,
    GROUP: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """One step of decoding: a query a sequence, keys and values in pages that a table lists.

    `GROUP` query heads share a head of keys; `keys` and `values` are `[pages, PAGE, heads, DIM]`.
    """
    sequence, kv_head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence)
    dims, inside, heads = tl.arange(0, DIM), tl.arange(0, PAGE), tl.arange(0, GROUP)
    head_places = (sequence * kv_heads + kv_head) * GROUP + heads
    query = tl.load(q + head_places[:, None] * DIM + dims[None, :]).to(tl.float32) * scale
    largest = tl.full([GROUP], -float("inf"), tl.float32)
    total = tl.zeros([GROUP], tl.float32)
    acc = tl.zeros([GROUP, DIM], tl.float32)
    for number in range(tl.cdiv(length, PAGE)):
        page = tl.load(tables + sequence * max_pages + number).to(tl.int64)
        places = ((page * PAGE + inside) * kv_heads + kv_head)[:, None] * DIM + dims[None, :]
        is_token = number * PAGE + inside < length
        key = tl.load(keys + places, mask=is_token[:, None]).to(tl.float32)
        value = tl.load(values + places, mask=is_token[:, None]).to(tl.float32)
        scores = tl.sum(query[:, None, :] * key[None, :, :], axis=2)
        scores = tl.where(is_token[None, :], scores, -float("inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=1))
        weights, kept = tl.exp(scores - higher[:, None]), tl.exp(largest - higher)
        total = total * kept + tl.sum(weights, axis=1)
        acc = acc * kept[:, None] + tl.sum(weights[:, :, None] * value[None, :, :], axis=1)
        largest = higher
    result = tl.where((total > 0)[:, None], acc / total[:, None], 0.0)
    tl.store(out + head_places[:, None] * DIM + dims[None, :], result)


@tl.kernel
def store_in_pages(fresh, pages, slots, width, BLOCK: tl.constexpr):
    """Copy a token's keys, `width` of them, to its slot in the cache; slot -1 is padding."""
    slot = tl.load(slots + tl.program_id(0)).to(tl.int64)
    if slot < 0:
        return
    for start in range(0, width, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        values = tl.load(fresh + tl.program_id(0) * width + lanes, mask=lanes < width)
        tl.store(pages + slot * width + lanes, values.to(pages.dtype), mask=lanes < width)


@tl.kernel
def rotary_embedding(x, cosines, sines, positions, heads, HALF: tl.constexpr):
    """Rotate the halves of every head of a token by its position's angles, in place."""
    token, head = tl.program_id(0), tl.program_id(1)
    lanes = tl.arange(0, HALF)
    angles = tl.load(positions + token) * HALF + lanes
    cosine, sine = tl.load(cosines + angles), tl.load(sines + angles)
    place = x + (token * heads + head) * (2 * HALF)
    first = tl.load(place + lanes).to(tl.float32)
    second = tl.load(place + HALF + lanes).to(tl.float32)
    tl.store(place + lanes, first * cosine - second * sine)
    tl.store(place + HALF + lanes, second * cosine + first * sine)


@tl.kernel
def delta_rule(
    q, k, v, betas, out, state, length, heads, scale,
    CHUNK: tl.constexpr, DIM_K: tl.constexpr, DIM_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Linear attention with the delta rule, a chunk of tokens at a time; `[length, heads, dim]`.

    Token t corrects the state, `s += beta k (v - s.T k).T`. In a chunk the corrections depend on
    those before them by a unit lower triangular matrix, which is inverted.
    """
    head = tl.program_id(0)
    inside = tl.arange(0, CHUNK)
    k_lanes, v_lanes = tl.arange(0, DIM_K), tl.arange(0, DIM_V)
    state_places = (head * DIM_K + k_lanes)[:, None] * DIM_V + v_lanes[None, :]
    memory = tl.load(state + state_places)  # [DIM_K, DIM_V]
    for start in range(0, length, CHUNK):
        tokens = start + inside
        mask = (tokens < length)[:, None]
        places = tokens * heads + head
        key = tl.load(k + places[:, None] * DIM_K + k_lanes[None, :], mask=mask)
        query = tl.load(q + places[:, None] * DIM_K + k_lanes[None, :], mask=mask) * scale
        value = tl.load(v + places[:, None] * DIM_V + v_lanes[None, :], mask=mask)
        beta = tl.load(betas + places, mask=tokens < length)
        weighted = key * beta[:, None]
        inverse = tl.solve_tril(
            tl.dot(weighted, key.T, input_precision=PRECISION), input_precision=PRECISION
        )
        expected = tl.dot(weighted, memory, input_precision=PRECISION)
        fresh = tl.dot(inverse, value * beta[:, None] - expected, input_precision=PRECISION)
        scores = tl.dot(query, key.T, input_precision=PRECISION)
        scores = tl.where(inside[:, None] >= inside[None, :], scores, 0.0)
        result = tl.dot(query, memory, input_precision=PRECISION)
        result = tl.dot(scores, fresh, result, input_precision=PRECISION)
        tl.store(out + places[:, None] * DIM_V + v_lanes[None, :], result, mask=mask)
        memory = tl.dot(key.T, fresh, memory, input_precision=PRECISION)
    tl.store(state + state_places, memory)


@tl.kernel
def after(decay, value, later_decay, later_value):
    """Compose two steps `s -> decay s + value`, the earlier one first."""
    return decay * later_decay, later_decay * value + later_value


@tl.kernel
def selective_scan(
    x, delta, a, b, c, d, out, length, channels,
    STATES: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """A state space whose matrices depend on the input: `s = exp(delta a) s + delta b x`.

    `x` and `delta` are `[length, channels]`, `a` `[channels, STATES]`, `b` and `c` `[length,
    STATES]`; `y = s c + d x`. Steps of a block are composed by a scan, blocks follow each other.
    """
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    is_channel = channel < channels
    states = tl.arange(0, STATES)
    rates = tl.load(
        a + channel[:, None] * STATES + states[None, :], mask=is_channel[:, None], other=0.0
    )
    skip = tl.load(d + channel, mask=is_channel)
    carried = tl.zeros((BLOCK_C, STATES), tl.float32)
    is_last = (tl.arange(0, BLOCK_T) == BLOCK_T - 1)[:, None, None]
    for start in range(0, length, BLOCK_T):
        time = start + tl.arange(0, BLOCK_T)
        mask = (time < length)[:, None] & is_channel[None, :]
        places = time[:, None] * channels + channel[None, :]
        inputs = tl.load(x + places, mask=mask)  # [BLOCK_T, BLOCK_C]
        steps = tl.load(delta + places, mask=mask)
        in_time = (time < length)[:, None]
        reads = tl.load(c + time[:, None] * STATES + states[None, :], mask=in_time)
        writes = tl.load(b + time[:, None] * STATES + states[None, :], mask=in_time)
        decay = tl.exp(steps[:, :, None] * rates[None, :, :])
        value = (steps * inputs)[:, :, None] * writes[:, None, :]
        decay, value = tl.associative_scan((decay, value), 0, after)
        memory = decay * carried[None, :, :] + value
        result = tl.sum(memory * reads[:, None, :], axis=2) + skip[None, :] * inputs
        tl.store(out + places, result, mask=mask)
        carried = tl.sum(tl.where(is_last, memory, 0.0), axis=0)
