"""What each 8-bit float stands for, and which is nearest: from the definition, in whole numbers.

An independent truth for the interpreter, the constants and the emitted conversions.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from helpers.tile_operation import Array
from tilewright.abi.dtypes import DType, float8e4nv, float8e5

# Digits after the point, bias, and the bits of the largest number.
FORMATS = {float8e4nv: (3, 7, 0x7E), float8e5: (2, 15, 0x7B)}
NAN = 0x7F


@cache
def value_of(bits: int, dtype: DType) -> float:
    """Return the number of that pattern."""
    digits, bias, largest = FORMATS[dtype]
    magnitude = bits & 0x7F
    sign = -1.0 if bits & 0x80 else 1.0
    if magnitude > largest:
        # E4M3 has a NaN alone above its largest number, E5M2 infinity and three NaN.
        is_infinite = dtype == float8e5 and magnitude == largest + 1
        return sign * math.inf if is_infinite else math.nan
    exponent, fraction = magnitude >> digits, magnitude & (1 << digits) - 1
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - digits)
    return sign * math.ldexp(fraction + (1 << digits), exponent - bias - digits)


def nearest(values: Array, dtype: DType) -> Array:
    """Return the patterns nearest to f64 values: ties to the even one, saturated, NaN 0x7f."""
    largest = FORMATS[dtype][2]
    ladder = np.array([value_of(bits, dtype) for bits in range(largest + 1)])
    # Between two neighbours lies the middle, exact in f64; on it the even pattern wins.
    middles = (ladder[1:] + ladder[:-1]) / 2
    magnitudes = np.abs(values)
    below = np.searchsorted(middles, magnitudes, side="left")
    above = np.searchsorted(middles, magnitudes, side="right")
    bits = np.where(below % 2 == 0, below, above)
    bits = np.where(np.signbit(values), bits | 0x80, bits)
    return np.where(np.isnan(values), NAN, bits).astype(np.uint8)
