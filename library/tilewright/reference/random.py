"""Random numbers as functions of a seed and a place: Philox 4x32-10 (Salmon et al., 2011).

Element i of an array is made of word `i % 4` at counter `offset + i // 4` under the key `seed`; one
of 64 random bits (an integer, an f64 of `rand`) of words `2 * (i % 2)` and the next, the lower half
first, at counter `offset + i // 2`. An array of n elements so takes `ceil(n / 4)` counters, or
`ceil(n / 2)`: who adds that to the offset draws what no earlier call drew.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64, int64
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.reference.precision import Array, widened

Shape = tuple[int, ...]

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_WORD = 2**32
# The largest signed word times it is below 1.
_SCALE = np.float32(4.6566127342e-10)


def words(count: int, *, seed: int, offset: int = 0) -> Array:
    """Return the first `count` words from counter `offset` on, u32."""
    counters = np.arange(-(-count // 4), dtype=np.uint64) + np.uint64(offset % 2**64)
    return words_at(counters, seed=seed).reshape(-1)[:count]


def words_at(counters: Array, *, seed: int) -> Array:
    """Return the four words of each counter, u32 `[..., 4]`; counters are u64."""
    key = seed % 2**64
    keys = key % _WORD, key // _WORD
    zero = np.zeros_like(counters)
    a, b, c, d = counters & _LOW, counters >> _SHIFT, zero, zero
    for turn in range(10):
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        left, right = (np.uint64((keys[i] + turn * _WEYL[i]) % _WORD) for i in (0, 1))
        a, b = (second >> _SHIFT) ^ b ^ left, second & _LOW
        c, d = (first >> _SHIFT) ^ d ^ right, first & _LOW
    return np.stack((a, b, c, d), axis=-1).astype(np.uint32)


def rand(shape: Shape, *, seed: int, offset: int = 0, dtype: DType = float32) -> Array:
    """Return uniform numbers in [0, 1), never 1.

    f32 takes the word as signed, its complement if negative, times 4.6566127342e-10, as Triton
    does; f16 11 bits of it and bf16 8, which they hold exactly; f64 53 bits of two words.
    """
    count = math.prod(shape)
    if dtype == float64:
        long = _long_words(count, seed=seed, offset=offset)
        return ((long >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)
    word = words(count, seed=seed, offset=offset)
    if dtype in (float16, bfloat16):
        bits = 11 if dtype == float16 else 8
        values = (word >> np.uint32(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)
    else:
        values = _uniform(word)
    return values.astype(to_numpy(dtype)).reshape(shape)


def randn(shape: Shape, *, seed: int, offset: int = 0, dtype: DType = float32) -> Array:
    """Return normal numbers of mean 0 and variance 1, by Box and Muller, within 5.68.

    Words `2 j` and `2 j + 1` give uniform `u` and `v`, and these elements `2 j` and `2 j + 1`:
    `sqrt(-2 log(max(u, 1e-7)))` times the cosine and the sine of `2 pi v`.
    """
    count = math.prod(shape)
    u, v = _uniform(words(count + count % 2, seed=seed, offset=offset)).reshape(-1, 2).T
    radius = np.sqrt(-2 * np.log(np.maximum(u, np.float32(1e-7)), dtype=np.float32))
    angle = np.float32(2 * math.pi) * v
    pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
    return pairs.reshape(-1)[:count].astype(to_numpy(dtype)).reshape(shape)


def randint(
    low: int, high: int, *, shape: Shape, seed: int, offset: int = 0, dtype: DType = int64
) -> Array:
    """Return integers from `low` to `high - 1`: `low` plus the upper half of `span * word`.

    The word has 64 bits, so that no integer is likelier than another by more than `span / 2^64`.
    """
    long = _long_words(math.prod(shape), seed=seed, offset=offset)
    span = high - low
    upper = [(span * int(word)) >> 64 for word in long.tolist()]
    values = np.array([(low + value + 2**63) % 2**64 - 2**63 for value in upper], np.int64)
    return values.astype(to_numpy(dtype)).reshape(shape)


@np.errstate(all="ignore")
def dropout(x: Array, p: float, *, seed: int, offset: int = 0) -> Array:
    """Return `x / (1 - p)`, or 0 where half the element's word is below `p * 2^31`; 0 for p = 1."""
    wide = widened(x, operation="dropout")
    if p == 1:
        return np.zeros_like(x)
    threshold = min(round(p * 2**31), 2**31 - 1)
    halves = words(x.size, seed=seed, offset=offset) >> np.uint32(1)
    is_kept = halves.reshape(x.shape) >= threshold
    scaled: Array = np.where(is_kept, wide * wide.dtype.type(1 / (1 - p)), 0)
    return scaled.astype(to_numpy(from_numpy(x.dtype)))


def _uniform(word: Array) -> Array:
    signed = word.view(np.int32)
    return np.where(signed < 0, ~signed, signed).astype(np.float32) * _SCALE


def _long_words(count: int, *, seed: int, offset: int) -> Array:
    pairs = words(2 * count, seed=seed, offset=offset).reshape(-1, 2).astype(np.uint64)
    long: Array = pairs[:, 0] | (pairs[:, 1] << _SHIFT)
    return long
