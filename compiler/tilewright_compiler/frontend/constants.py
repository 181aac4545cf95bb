"""Compile-time numbers: which dtype a Python number takes, and its exact value in that dtype.

A number is weak: it takes the dtype of the run-time value it meets when the kinds agree, so `x + 1`
on an f16 tile stays f16. Alone it is i1, i32 (i64 if it needs to be) or f32. Values are rounded
here once, with exact rational arithmetic, because a constant that passed through f32 on its way to
bf16 would be rounded twice.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tilewright.abi.dtypes import SATURATED, DType, float32, int1, int32, int64, promote
from tilewright.errors import KernelValueError
from tilewright_compiler.frontend.operands import Number

# (bits of the significand with the leading one, smallest normal exponent, largest exponent)
_FORMATS = {
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
    "f32": (24, -126, 127),
    "f64": (53, -1022, 1023),
    "f8e4m3": (4, -6, 8),
    "f8e5m2": (3, -14, 15),
}


def weak_dtype(number: Number) -> DType:
    """Return the dtype of a number that meets no run-time value."""
    if isinstance(number, bool):
        return int1
    if isinstance(number, float):
        return float32
    if fits(number, int32):
        return int32
    if fits(number, int64):
        return int64
    msg = (
        f"the integer {number} does not fit in 64 bits; as a run-time value an integer has at most"
        " 64"
    )
    raise KernelValueError(msg)


def dtype_with(number: Number, dtype: DType) -> DType:
    """Return the dtype in which an operation on `number` and a run-time `dtype` is computed."""
    if isinstance(number, bool) or dtype.is_float:
        return dtype
    if isinstance(number, float):
        return float32
    if dtype == int1:
        return promote(dtype, weak_dtype(number))
    if not fits(number, dtype):
        low, high = integer_range(dtype)
        msg = (
            f"the integer {number} does not fit in {dtype} ({low} to {high}), the dtype of the "
            "value it meets; "
            "cast that value to a wider dtype with .to(...) first"
        )
        raise KernelValueError(msg)
    return dtype


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the lowest and highest value of an integer dtype."""
    if dtype.kind == "int":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def fits(number: int, dtype: DType) -> bool:
    """Return whether an integer is in the range of an integer dtype."""
    low, high = integer_range(dtype)
    return low <= number <= high


def convert(number: Number, dtype: DType) -> Number:
    """Return `number` cast to `dtype`, by the rules of the IR's `cast`."""
    if dtype == int1:
        return number != 0
    if dtype.is_float:
        return round_to(number, dtype)
    low, high = integer_range(dtype)
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        return high if number >= high else low if number <= low else int(number)
    return (int(number) - low) % (high - low + 1) + low


def round_to(number: Number, dtype: DType) -> float:
    """Return the nearest value of a float dtype, ties to even.

    Overflow gives infinity, or the largest value in a dtype that saturates.
    """
    if dtype in SATURATED and abs(number) > SATURATED[dtype]:
        return math.copysign(SATURATED[dtype], number)
    if number == 0 or (isinstance(number, float) and not math.isfinite(number)):
        return float(number)
    precision, smallest, largest = _FORMATS[dtype.name]
    exact = Fraction(number)
    # The denominator is a power of two, so this is floor(log2(abs(exact))).
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    quantum = Fraction(2) ** (max(exponent, smallest) - (precision - 1))
    rounded = round(exact / quantum) * quantum
    if abs(rounded) >= Fraction(2) ** (largest + 1):
        return math.copysign(math.inf, exact)
    return math.copysign(float(rounded), exact)
