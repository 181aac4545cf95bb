"""Arithmetic of the tile IR on NumPy arrays: what each operation gives, to the bit.

Arrays hold their own element type, f16 and bf16 included. An operation on a narrow float widens to
f32 (exactly), computes there, and rounds once; the result is the correctly rounded one, since f32
has more than twice the digits. Functions such as exp are computed in f64 and rounded to f32, which
is correctly rounded but for rare ties.

8-bit floats are only converted. Into them what is too large becomes the largest number, and every
NaN 0x7f, as PTX's `cvt.rn.satfinite` has it.

Where the hardware's result is undefined, ours is fixed: an integer divided by zero gives all ones,
its remainder the dividend; a shift by the width or more gives 0 (-1 for a negative signed number
shifted right); NaN becomes the integer 0. Callers silence NumPy's floating-point warnings around a
whole run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.abi.dtypes import SATURATED, DType, bfloat16, float64
from tilewright.abi.numpy_types import to_numpy

# The element type is a run-time property here.
Array = npt.NDArray[Any]


def constant(value: float, dtype: DType) -> Array:
    """Return `value` as an array `[1]` of `dtype`: floats rounded, integers wrapped."""
    if dtype.is_float:
        with np.errstate(over="ignore"):  # what is too large becomes inf
            return cast(np.array([value], np.float64), float64, dtype)
    if dtype.bits == 1:
        return np.array([bool(value)])
    wrapped = int(value) & (1 << dtype.bits) - 1
    return np.array([wrapped], f"u{dtype.size_bytes}").view(to_numpy(dtype))


def binary(name: str, left: Array, right: Array, dtype: DType) -> Array:
    """Apply the arithmetic operation `name` to two arrays of `dtype`."""
    if dtype.is_float:
        return _rounded(_FLOAT[name](_widened(left), _widened(right)), dtype)
    if dtype.bits == 1:  # arithmetic modulo 2
        bits = _INTEGER[name](left.view(np.uint8), right.view(np.uint8))
        return (bits & 1).astype(np.bool_)
    return _INTEGER[name](left, right)


def compare(predicate: str, left: Array, right: Array) -> Array:
    """Compare elementwise; with a NaN only `ne` is true."""
    result: Array = _COMPARE[predicate](_widened(left), _widened(right))
    return result


def negate(value: Array, dtype: DType) -> Array:
    """Return `-value`; integers wrap."""
    if dtype.bits == 1:
        return value
    return _rounded(np.negative(_widened(value)), dtype) if dtype.is_float else np.negative(value)


def absolute(value: Array, dtype: DType) -> Array:
    """Return `|value|`; the lowest integer stays."""
    if dtype.bits == 1:
        return value
    return _rounded(np.abs(_widened(value)), dtype) if dtype.is_float else np.abs(value)


def function(name: str, value: Array, dtype: DType) -> Array:
    """Apply the mathematical function `name` to floats."""
    if dtype == float64:
        return _FUNCTIONS[name](value)
    return _rounded(_FUNCTIONS[name](value.astype(np.float64)).astype(np.float32), dtype)


def fma(left: Array, right: Array, addend: Array, dtype: DType) -> Array:
    """Return `left * right + addend`, rounded once."""
    if dtype == float64:
        return _fma_float64(left, right, addend)
    # The f32 product is exact in f64. Making the sum odd when it is inexact keeps the information
    # that the second rounding needs (Boldo and Melquiond, "Emulation of FMA and correctly rounded
    # sums", 2008).
    product = left.astype(np.float64) * right.astype(np.float64)
    total = product + addend.astype(np.float64)
    shadow = total - product
    error = (product - (total - shadow)) + (addend.astype(np.float64) - shadow)
    return _rounded(_made_odd(total, error).astype(np.float32), dtype)


def cast(value: Array, source: DType, target: DType) -> Array:
    """Convert: floats to nearest even, float to integer truncated and saturated."""
    if source == target:
        return value
    if target.bits == 1:
        is_set: Array = _widened(value) != 0
        return is_set
    if source.is_float and not target.is_float:
        return _truncated(_widened(value), target)
    if target == bfloat16 or target in SATURATED:
        value = _float32_to_round(value, source)
        return _saturated(value, target) if target in SATURATED else value.astype(to_numpy(target))
    return _widened(value).astype(to_numpy(target))


def truncate(value: Array, target: DType) -> Array:
    """Convert floats to a narrower float towards zero; what is too large becomes the largest."""
    nearest = value.astype(to_numpy(target))
    back = nearest.astype(value.dtype)
    is_away = (np.abs(back) > np.abs(value)) & np.isfinite(value)
    # One step towards zero is one less in the bits of a float of either sign; below the bits of
    # infinity lies the largest number.
    bits = nearest.view(f"u{nearest.dtype.itemsize}")
    result: Array = (bits - is_away.astype(bits.dtype)).view(nearest.dtype)
    return result


def rounded_to_tf32(value: Array) -> Array:
    """Return f32 with 13 bits of the significand cleared, rounded to nearest, ties away from 0."""
    bits = value.view(np.uint32)
    # Carries run into the exponent, up to infinity, as they should; a NaN has no digits to round.
    nearest = ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(value), nearest, value)


def rounded_to_even_tf32(value: Array) -> Array:
    """Return f32 with 13 bits of the significand cleared, rounded to nearest, ties to even."""
    bits = value.view(np.uint32)
    half = np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    nearest = ((bits + half) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(value), nearest, value)


def _widened(value: Array) -> Array:
    narrow = value.dtype.itemsize <= 2 and value.dtype.kind not in "biu"
    return value.astype(np.float32) if narrow else value


def _rounded(value: Array, dtype: DType) -> Array:
    return value if dtype.bits >= 32 else value.astype(to_numpy(dtype))


def _float32_to_round(value: Array, source: DType) -> Array:
    """Return an f32 that rounds to fewer digits as the value itself does."""
    if source.is_float and source.bits <= 32:
        return value.astype(np.float32)
    exact = value.astype(np.float64) if source.bits < 64 or source.is_float else _sticky(value)
    nearest = exact.astype(np.float32)
    return _made_odd(nearest, exact - nearest.astype(np.float64))


def _saturated(value: Array, target: DType) -> Array:
    """Round f32 to an 8-bit float."""
    limit = np.float32(SATURATED[target])
    rounded = np.clip(value, -limit, limit).astype(to_numpy(target)).view(np.uint8)
    bits = np.where(np.isnan(value), np.uint8(0x7F), rounded)
    result: Array = bits.view(to_numpy(target))
    return result


def _made_odd(nearest: Array, error: Array) -> Array:
    """Round to odd, given the nearest float and what it lacks: inexact results end in a 1."""
    is_even = nearest.view(f"u{nearest.dtype.itemsize}") & 1 == 0
    infinity = np.array(np.inf, nearest.dtype)
    neighbour = np.nextafter(nearest, np.copysign(infinity, error.astype(nearest.dtype)))
    return np.where((error != 0) & np.isfinite(error) & is_even, neighbour, nearest)


def _sticky(value: Array) -> Array:
    """Return 64-bit integers in f64, rounded to odd at 2**16 where they have more than 40 bits."""
    low = value % (1 << 16)
    folded = np.where(low != 0, (value - low) | (1 << 16), value)
    is_small = value < (1 << 40)
    if value.dtype.kind == "i":
        is_small &= value > -(1 << 40)
    return np.where(is_small, value, folded).astype(np.float64)


def _truncated(value: Array, target: DType) -> Array:
    limits = np.iinfo(to_numpy(target))
    inside = (value >= float(limits.min)) & (value < float(limits.max + 1))  # both bounds are exact
    result = np.where(inside, value, 0).astype(to_numpy(target))
    # Values in (min - 1, min) fall outside and still saturate to min, which is also their
    # truncation.
    result[value >= float(limits.max + 1)] = limits.max
    result[value < float(limits.min)] = limits.min
    return result


def _quotient(left: Array, right: Array) -> Array:
    divisor = np.where(right == 0, np.ones_like(right), right)
    quotient = (left - np.fmod(left, divisor)) // divisor
    return np.where(right == 0, ~np.zeros_like(right), quotient)


def _remainder(left: Array, right: Array) -> Array:
    divisor = np.where(right == 0, np.ones_like(right), right)
    return np.where(right == 0, left, np.fmod(left, divisor))


def _minimum(left: Array, right: Array) -> Array:
    result = np.minimum(left, right)
    zeros = (left == 0) & (right == 0)
    # -0 is less than +0; the sum of two zeros is -0 only if both are.
    return np.where(zeros, -(-left - right), result) if zeros.any() else result


def _maximum(left: Array, right: Array) -> Array:
    result = np.maximum(left, right)
    zeros = (left == 0) & (right == 0)
    return np.where(zeros, left + right, result) if zeros.any() else result


def _minimum_number(left: Array, right: Array) -> Array:
    return np.where(np.isnan(left), right, np.where(np.isnan(right), left, _minimum(left, right)))


def _maximum_number(left: Array, right: Array) -> Array:
    return np.where(np.isnan(left), right, np.where(np.isnan(right), left, _maximum(left, right)))


def _high_product(left: Array, right: Array) -> Array:
    """Return the upper half of the product, from the products of half words."""
    bits = 8 * left.dtype.itemsize
    unsigned, half = np.dtype(f"u{left.dtype.itemsize}"), bits // 2
    mask = unsigned.type((1 << half) - 1)
    a, b = left.view(unsigned), right.view(unsigned)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & mask)
    high = a_high * b_high + (middle >> half) + (other >> half)
    if left.dtype.kind == "i":  # a negative number is its bits less 2 to their number
        high = high - np.where(left < 0, b, 0).astype(unsigned)
        high = high - np.where(right < 0, a, 0).astype(unsigned)
    result: Array = high.view(left.dtype)
    return result


def _rsqrt(value: Array) -> Array:
    result: Array = 1.0 / np.sqrt(value)
    return result


def _erf(value: Array) -> Array:
    flat = np.fromiter(map(math.erf, value.ravel().tolist()), np.float64, value.size)
    return flat.reshape(value.shape)


def _fma_float64(left: Array, right: Array, addend: Array) -> Array:
    left, right, addend = np.broadcast_arrays(left, right, addend)
    result = np.empty(left.shape, np.float64)
    for place, (a, b, c) in enumerate(zip(left.flat, right.flat, addend.flat, strict=True)):
        result.flat[place] = _fma_exact(float(a), float(b), float(c))
    return result


def _fma_exact(left: float, right: float, addend: float) -> float:
    """Compute in whole numbers: Python rounds the quotient of two of them correctly."""
    if not (math.isfinite(left) and math.isfinite(right)):
        return left * right + addend
    if left == 0 or right == 0 or not math.isfinite(addend):
        return math.copysign(0.0, left) * math.copysign(1.0, right) + addend
    (a, a_scale), (b, b_scale), (c, c_scale) = (x.as_integer_ratio() for x in (left, right, addend))
    numerator = a * b * c_scale + c * a_scale * b_scale
    try:
        return numerator / (a_scale * b_scale * c_scale)
    except OverflowError:
        return math.copysign(math.inf, numerator)


_FLOAT: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "min": _minimum,
    "max": _maximum,
    "minnum": _minimum_number,
    "maxnum": _maximum_number,
}
_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mulhi": _high_product,
    "div": _quotient,
    "rem": _remainder,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "floor": np.floor,
    "ceil": np.ceil,
}
