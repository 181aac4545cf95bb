"""Arrays of random numbers, and dropout: functions of a seed and of an element's place alone.

Element i is made of word `i % 4` that Philox gives at counter `offset + i // 4`; one of 64 random
bits, an integer or an f64, of words `2 * (i % 2)` and the next at counter `offset + i // 2`. So the
same numbers come whatever the shape, the tile or the device.

Numbers of 64 bits are passed in three parts, of 31, 31 and 2 bits: the fast form takes no larger
integers, and a seed is usually one.
"""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def joined(low, middle, high):
    """Return the number of 64 bits whose parts these are."""
    return low | (middle << 31) | (high << 62)


@tl.kernel
def in_turn(a, b, c, d):
    """Return the elements of four tiles in turn."""
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@tl.kernel
def words_of(seed, counters):
    """Return four words for each counter, as one tile in the order of elements."""
    a, b, c, d = tl.randint4x(seed, counters)
    return in_turn(a, b, c, d)


@tl.kernel
def long_words_of(seed, counters):
    """Return two words of 64 bits for each counter; the first of two words is the lower half."""
    a, b, c, d = tl.randint4x(seed, counters)
    first = a.to(tl.uint64) | (b.to(tl.uint64) << 32)
    second = c.to(tl.uint64) | (d.to(tl.uint64) << 32)
    return tl.interleave(first, second)


@tl.kernel
def uniform_of(seed, counters, out):
    """Return numbers in [0, 1) that the type of `out` holds exactly, so that none becomes 1."""
    if out.dtype.element_ty == tl.float64:
        return (long_words_of(seed, counters) >> 11).to(tl.float64) * 2.0**-53
    words = words_of(seed, counters)
    if out.dtype.element_ty == tl.float16:
        return (words >> 21).to(tl.float32) * 2.0**-11
    if out.dtype.element_ty == tl.bfloat16:
        return (words >> 24).to(tl.float32) * 2.0**-8
    return tl.uint_to_uniform_float(words)


@tl.kernel
def fill(
    out, count,
    seed0, seed1, seed2, offset0, offset1, offset2, low0, low1, low2, span0, span1, span2,
    KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill `out` `[count]` with numbers of a KIND: "uniform", "normal" or "integers".

    Integers are `low` and the `span - 1` that follow; a span of 0 stands for 2 ** 64.
    """
    first = tl.program_id(0) * BLOCK
    seed = joined(seed0, seed1, seed2)
    counters = joined(offset0, offset1, offset2) + first + tl.arange(0, BLOCK)
    if KIND == "uniform":
        values = uniform_of(seed, counters, out)
    elif KIND == "normal":
        a, b, c, d = tl.randn4x(seed, counters)
        values = in_turn(a, b, c, d)
    else:
        words = long_words_of(seed, counters)
        span = joined(span0, span1, span2)
        if span != 0:
            words = tl.umulhi(words, span.to(tl.uint64))
        values = joined(low0, low1, low2) + words.to(tl.int64)
    start = first * (values.numel // BLOCK)
    lanes = tl.arange(0, values.numel)
    left = tl.minimum(count - start, values.numel).to(tl.int32)
    tl.store(out + start + lanes, values, mask=lanes < left)


@tl.kernel
def dropout(
    x, out, count,
    seed0, seed1, seed2, offset0, offset1, offset2, threshold, drops_all, scale,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `x * scale` to `out` where the upper 31 bits of a word reach `threshold`, else 0."""
    first = tl.program_id(0) * BLOCK
    counters = joined(offset0, offset1, offset2) + first + tl.arange(0, BLOCK)
    words = words_of(joined(seed0, seed1, seed2), counters)
    lanes = tl.arange(0, words.numel)
    left = tl.minimum(count - first * 4, words.numel).to(tl.int32)
    values = tl.load(x + first * 4 + lanes, mask=lanes < left)
    wide = values if values.dtype == tl.float64 else values.to(tl.float32)
    is_kept = ((words >> 1) >= threshold.to(tl.uint32)) & (drops_all == 0)
    kept = tl.where(is_kept, wide * scale.to(wide.dtype), 0)
    tl.store(out + first * 4 + lanes, kept, mask=lanes < left)
