"""Arithmetic on f32 and f64 arrays, rounded as asked: from the nearest float to the right side.

The exact result is a fraction, and says on which side of it a float lies.
Element by element and slow: for functions that a kernel calls seldom, and that must be exact. Where
an operand or the result is infinite or NaN the rounding does not matter, but for what overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.abi.numpy_types import from_numpy
from tilewright_compiler.interpret.numerics import Array, fma


def rounded(name: str, operands: tuple[Array, ...], mode: str) -> Array:
    """Return `add sub mul div rcp sqrt fma` of arrays of one dtype, rounded by `mode`."""
    arrays = np.broadcast_arrays(*operands)
    result = np.array(_NEAREST[name](*arrays), arrays[0].dtype)
    if mode == "rn":
        return result
    for place in np.ndindex(result.shape):
        values = [float(array[place]) for array in arrays]
        if all(map(math.isfinite, values)) and not np.isnan(result[place]):
            result[place] = _element(name, values, result[place], mode)
    return result


def _element(name: str, values: list[float], nearest: Any, mode: str) -> Any:
    """Return the float on the right side of the exact result, given the nearest one."""
    if name in ("div", "rcp") and values[-1] == 0:
        return nearest
    if nearest == 0 and _is_zero(name, values):
        return _zero(name, values, nearest, mode)
    sign_of_error = _comparison(name, values)
    if mode == "rz":
        mode = "ru" if sign_of_error(Fraction(0)) > 0 else "rd"
    towards = type(nearest)(-np.inf if mode == "rd" else np.inf)
    back = -towards
    wrong = 1 if mode == "rd" else -1  # the sign of (candidate - exact) that is not allowed
    candidate = nearest
    while _sign(sign_of_error, candidate) == wrong:
        candidate = np.nextafter(candidate, towards)
    while True:
        closer = np.nextafter(candidate, back)
        if _sign(sign_of_error, closer) == wrong or closer == candidate:
            return candidate
        candidate = closer


def _sign(sign_of_error: Callable[[Fraction], int], candidate: Any) -> int:
    value = float(candidate)
    if math.isinf(value):
        return 1 if value > 0 else -1
    return sign_of_error(Fraction(value))


def _comparison(name: str, values: list[float]) -> Callable[[Fraction], int]:
    """Return a function that gives the sign of (candidate - exact result)."""
    exact = [Fraction(value) for value in values]
    if name == "sqrt":

        def against_root(candidate: Fraction) -> int:
            if candidate < 0:
                return -1
            return _sign_of(candidate * candidate - exact[0])

        return against_root
    result = _EXACT[name](*exact)
    return lambda candidate: _sign_of(candidate - result)


def _sign_of(difference: Fraction) -> int:
    return (difference > 0) - (difference < 0)


def _is_zero(name: str, values: list[float]) -> bool:
    return name == "sqrt" or _EXACT[name](*map(Fraction, values)) == 0


def _zero(name: str, values: list[float], nearest: Any, mode: str) -> Any:
    """Return the zero of the right sign: a difference of equals is -0 only when rounding down."""
    if name not in ("add", "sub", "fma") or mode != "rd":
        return nearest
    product = values[0] * values[1] if name == "fma" else values[0]
    addend = -values[-1] if name == "sub" else values[-1]
    both_positive = math.copysign(1, product) > 0 and math.copysign(1, addend) > 0
    return nearest if both_positive and product == 0 else -abs(nearest)


def _fused(left: Array, right: Array, addend: Array) -> Array:
    return fma(left, right, addend, from_numpy(left.dtype))


_NEAREST: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": lambda value: 1 / value,
    "sqrt": np.sqrt,
    "fma": _fused,
}
_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
}
