"""PTX arithmetic with the rounding modes rz, rm and rp: exact fractions, cut to the digits.

The digits are found by whole-number division and not by stepping from the nearest float, so that
nothing is shared with the interpreter that this is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_DIGITS = {np.dtype(np.float32): (24, -149, 128), np.dtype(np.float64): (53, -1074, 1024)}


def directed(name: str, mode: str, operands: Sequence[Array]) -> Array:
    """Return add, sub, mul, div, rcp, sqrt or fma of arrays, rounded by rz, rm or rp."""
    plain = _PLAIN[name](*operands)
    result = plain.copy()
    for place in np.ndindex(plain.shape):
        values = [float(array[place]) for array in operands]
        if all(map(math.isfinite, values)) and not np.isnan(plain[place]):
            result[place] = _one(name, mode, values, plain[place])
    return np.asarray(result)


def _one(name: str, mode: str, values: list[float], plain: Any) -> Any:
    if name in ("div", "rcp") and values[-1] == 0:
        return plain
    exact = [Fraction(value) for value in values]
    if name == "sqrt":
        return plain if values[0] == 0 else _root(exact[0], mode, plain.dtype)
    result = _EXACT[name](*exact)
    if result == 0:
        signs = [math.copysign(1, value) for value in values]
        if name == "fma":
            signs = [signs[0] * signs[1], signs[2]]
        if name == "sub":
            signs[1] = -signs[1]
        is_sum_of_equals = name in ("add", "sub", "fma") and signs[0] != signs[1]
        return -abs(plain) if is_sum_of_equals and mode == "rm" else plain
    return _cut(result, mode, plain.dtype)


def _cut(exact: Fraction, mode: str, dtype: np.dtype[Any], *, more: bool = False) -> Any:
    """Cut a fraction to the digits of a dtype; `more` says that a little more is behind it."""
    digits, lowest, highest = _DIGITS[dtype]
    size, is_negative = abs(exact), exact < 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length() - digits
    while size >= Fraction(2) ** (exponent + digits):
        exponent += 1
    exponent = max(exponent, lowest)
    unit = Fraction(2) ** exponent
    count = size // unit
    is_away = mode == ("rm" if is_negative else "rp")
    if is_away and (more or count * unit != size):
        count += 1
    if count.bit_length() + exponent > highest:
        limit = np.inf if is_away else float(np.finfo(dtype).max)
        return dtype.type(-limit if is_negative else limit)
    return dtype.type(math.ldexp(-count if is_negative else count, exponent))


def _root(exact: Fraction, mode: str, dtype: np.dtype[Any]) -> Any:
    shift = 2 * 1200  # whole numbers with far more digits than any dtype has
    scaled = (exact.numerator << shift) // exact.denominator
    root = math.isqrt(scaled)
    is_whole = Fraction(root, 1 << shift // 2) ** 2 == exact
    return _cut(Fraction(root, 1 << shift // 2), mode, dtype, more=not is_whole)


_PLAIN: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "fma": lambda a, b, c: a * b + c,
    "sqrt": np.sqrt,
}
_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
}
