"""What norms are made of: parameters, their arithmetic, and one long row held in parts.

A row of f32 values is four parts, of 2-byte elements that would take all registers so eight parts
of words: pairs of elements as they were loaded, which are converted where they are used.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.rows import edge_of, in_f32, joined, load_part, load_parts, store_part

# From this part on, all registers hold the row.
WIDEST = tl.constexpr(8192)
LARGEST = tl.constexpr(3.4028234663852886e38)


@tl.kernel
def parameter(pointer, lanes, mask, is_given, otherwise):
    """Load weight or bias, `otherwise` where it is not given; a mask spares the branch.

    In its own type: converted where it is used, it waits in half the registers.
    """
    given = is_given != 0
    if mask is not None:
        given = mask & given
    return tl.load(pointer + lanes, mask=given, other=otherwise)


@tl.kernel
def is_fine(dtype):
    """Return whether elements are finer than the rounding of a mean: then its rest is taken off.

    Between 16-bit elements there are larger steps than that.
    """
    return dtype == tl.float32 or dtype == tl.float64


@tl.kernel
def without_rest(variance, rest):
    """Return the variance about the mean from that about the rounded mean, `rest` away from it.

    A variance that overflowed stays infinite, so that the row becomes zeros and not NaN.
    """
    return variance - tl.minimum(rest * rest, LARGEST)


@tl.kernel
def masked_part(values, start: tl.constexpr, end: tl.constexpr, body):
    """Return a part with 0 behind the body."""
    return tl.where(tl.arange(start, end) < body, values, 0.0)


@tl.kernel
def normalised_parts(
    a, b, c, d, edge, inside, has_edge, body, is_centred, share, eps, PART: tl.constexpr
):  # fmt: skip
    """Return a row, held in parts, less its mean and over its deviation."""
    dtype = a.dtype
    a, b, c, d, edge = in_f32(a, b, c, d, edge)
    mean = 0.0 * share
    if is_centred != 0:
        # The sum of all alone may exceed all numbers.
        mean = tl.sum((a * share + b * share) + (c * share + d * share), axis=0)
        if has_edge:
            mean = mean + tl.sum(edge * share, axis=0)
        a = a - mean
        b = b - mean
        c = c - mean
        d = d - mean
        if body < 4 * PART:
            a = masked_part(a, 0, PART, body)
            b = masked_part(b, PART, 2 * PART, body)
            c = masked_part(c, 2 * PART, 3 * PART, body)
            d = masked_part(d, 3 * PART, 4 * PART, body)
        edge = tl.where(inside, edge - mean, 0.0)
    squares = (a * a + b * b) + (c * c + d * d)
    variance = tl.sum(squares, axis=0) * share
    if has_edge:
        variance = variance + tl.sum(edge * edge, axis=0) * share
    # What rounding left in a mean that is large: the widest rows leave no registers for it.
    if is_fine(dtype) and PART < WIDEST and mean * mean > 16 * variance:
        rest = tl.sum((a * share + b * share) + (c * share + d * share), axis=0)
        if has_edge:
            rest = rest + tl.sum(edge * share, axis=0)
        variance = without_rest(variance, rest)
        a = a - rest
        b = b - rest
        c = c - rest
        d = d - rest
        edge = edge - rest
    factor = tl.rsqrt(variance + eps)
    return a * factor, b * factor, c * factor, d * factor, edge * factor


@tl.kernel
def parameter_part(pointer, start: tl.constexpr, end: tl.constexpr, body, is_given, otherwise):
    """Load the weight or bias of a part."""
    lanes = tl.arange(start, end)
    return parameter(pointer, lanes, lanes < body, is_given, otherwise)


@tl.kernel
def normalise_row(
    x_row, weight, bias, out_row, columns,
    has_weight, has_bias, is_centred, share, eps, PART: tl.constexpr,
):  # fmt: skip
    """Normalise a row of up to 4 * PART elements.

    Weight and bias of the later parts are loaded before the part ahead of them is stored: by then
    earlier parts have left their registers.
    """
    width = columns.to(tl.int32)
    body = width & -8
    has_edge = body < width
    lanes, inside = edge_of(0, body, width, 16)
    a, b, c, d, edge = load_parts(x_row, body, lanes, inside, 0, PART)
    a, b, c, d, edge = normalised_parts(
        a, b, c, d, edge, inside, has_edge, body, is_centred, share, eps, PART
    )
    scale = parameter_part(weight, 0, PART, body, has_weight, 1)
    shift = parameter_part(bias, 0, PART, body, has_bias, 0)
    a = a * scale.to(tl.float32) + shift.to(tl.float32)
    store_part(out_row, 0, PART, body, a)
    scale = parameter_part(weight, PART, 2 * PART, body, has_weight, 1)
    shift = parameter_part(bias, PART, 2 * PART, body, has_bias, 0)
    b = b * scale.to(tl.float32) + shift.to(tl.float32)
    scale = parameter_part(weight, 2 * PART, 3 * PART, body, has_weight, 1)
    shift = parameter_part(bias, 2 * PART, 3 * PART, body, has_bias, 0)
    store_part(out_row, PART, 2 * PART, body, b)
    c = c * scale.to(tl.float32) + shift.to(tl.float32)
    scale = parameter_part(weight, 3 * PART, 4 * PART, body, has_weight, 1)
    shift = parameter_part(bias, 3 * PART, 4 * PART, body, has_bias, 0)
    store_part(out_row, 2 * PART, 3 * PART, body, c)
    d = d * scale.to(tl.float32) + shift.to(tl.float32)
    store_part(out_row, 3 * PART, 4 * PART, body, d)
    if has_edge:
        edge_scale = parameter(weight, lanes, inside, has_weight, 1).to(tl.float32)
        edge_shift = parameter(bias, lanes, inside, has_bias, 0).to(tl.float32)
        tl.store(out_row + lanes, edge * edge_scale + edge_shift, mask=inside)


@tl.kernel
def packed(scale, shift):
    """Return weight and bias, of 2 bytes each, as one word."""
    upper = scale.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
    return upper | shift.to(tl.uint16, bitcast=True).to(tl.uint32)


@tl.kernel
def as_words(values):
    """Return pairs of neighbours of 2 bytes each as words."""
    low, high = tl.split(tl.reshape(values, (values.numel // 2, 2)))
    return packed(high, low)


@tl.kernel
def held_back(words, result):
    """Return words as they are, or else a NaN `result` makes the row NaN whatever they are.

    What a word holds is converted anew behind a reduction, of which `result` comes. The compiler
    would convert it once and keep it across, in twice the registers.
    """
    return words ^ tl.where(result != result, 0x80008000, 0).to(tl.uint32)


@tl.kernel
def halves(words, dtype: tl.constexpr):
    """Return the lower and the upper of the two elements of each word."""
    low = (words & 0xFFFF).to(tl.uint16).to(dtype, bitcast=True).to(tl.float32)
    high = (words >> 16).to(tl.uint16).to(dtype, bitcast=True).to(tl.float32)
    return low, high


@tl.kernel
def lanes_between(start: tl.constexpr, end: tl.constexpr):
    """Return the numbers from `start` to `end`."""
    return tl.arange(start, end)


@tl.kernel
def sum_of_words(parts, mean, share, body, dtype: tl.constexpr, SQUARED: tl.constexpr):
    """Return the sum of what lies in words, or of its squares about the mean, times `share`."""
    half: tl.constexpr = parts[0].numel
    total = tl.zeros((half,), tl.float32)
    for i in tl.static_range(len(parts)):
        low, high = halves(parts[i], dtype)
        if SQUARED:
            low = low - mean
            high = high - mean
            if body < 2 * half * (i + 1):
                inside = 2 * lanes_between(i * half, (i + 1) * half) < body
                low = tl.where(inside, low, 0.0)
                high = tl.where(inside, high, 0.0)
            total = total + (low * low + high * high)
        else:
            total = total + (low * share + high * share)
    return tl.sum(total, axis=0)


@tl.kernel
def normalise_wide_row(
    x_row, weight, bias, out_row, columns,
    has_weight, has_bias, is_centred, share, eps, PART: tl.constexpr,
):  # fmt: skip
    """Normalise a row of up to 8 * PART elements of 2 bytes, whose f32 values would fill a GPU.

    They wait as they were loaded and are converted three times: two programs fit a multiprocessor,
    so that one loads while the other computes.
    """
    if PART >= 4096:
        tl.resident(2)
    dtype: tl.constexpr = x_row.dtype
    width = columns.to(tl.int32)
    body = width & -8
    has_edge = body < width
    lanes, inside = edge_of(0, body, width, 16)
    parts = ()
    for i in tl.static_range(8):
        part = load_part(x_row, i * PART, (i + 1) * PART, body, 0, ".cg")
        parts = joined(parts, as_words(part))
    edge = tl.load(x_row + lanes, mask=inside, other=0).to(tl.float32)
    mean = 0.0
    if is_centred != 0:
        mean = sum_of_words(parts, 0.0, share, body, dtype, False)
        if has_edge:
            mean = mean + tl.sum(edge * share, axis=0)
        edge = tl.where(inside, edge - mean, 0.0)
    again = ()
    for i in tl.static_range(8):
        again = joined(again, held_back(parts[i], mean))
    variance = sum_of_words(again, mean, share, body, dtype, True) * share
    if has_edge:
        variance = variance + tl.sum(edge * edge, axis=0) * share
    factor = tl.rsqrt(variance + eps)
    for i in tl.static_range(8):
        scale = parameter_part(weight, i * PART, (i + 1) * PART, body, has_weight, 1)
        shift = parameter_part(bias, i * PART, (i + 1) * PART, body, has_bias, 0)
        low, high = halves(held_back(again[i], factor), dtype)
        values = (tl.interleave(low, high) - mean) * factor
        result = values * scale.to(tl.float32) + shift.to(tl.float32)
        store_part(out_row, i * PART, (i + 1) * PART, body, result)
    if has_edge:
        edge_scale = parameter(weight, lanes, inside, has_weight, 1).to(tl.float32)
        edge_shift = parameter(bias, lanes, inside, has_bias, 0).to(tl.float32)
        tl.store(out_row + lanes, edge * factor * edge_scale + edge_shift, mask=inside)
