"""Operations on constants -> a constant, bit for bit what the device computes, or None.

Integers are Python's, wrapped; finite floats are exact fractions, rounded once to the dtype. That
needs no table of NumPy's conversions and cannot round twice. None means: not worth it, or not ours
to decide. Never decided are division by zero, shifts by the width or more, NaN in or out,
infinities in arithmetic, and the functions that the device only approximates.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from tilewright.abi.dtypes import (
    SATURATED,
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
)
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import PointerType, element_dtype, element_type

Constant = int | float | bool

# Bits of the significand with its hidden one, and the exponent of the smallest subnormal.
_PRECISION = {
    float8e4nv: (4, -9),
    float8e5: (3, -16),
    float16: (11, -24),
    bfloat16: (8, -133),
    float32: (24, -149),
    float64: (53, -1074),
}
_MAX_EXPONENT = {
    float8e4nv: 9,
    float8e5: 16,
    float16: 16,
    bfloat16: 128,
    float32: 128,
    float64: 1024,
}


def evaluate(operation: Operation, operands: Sequence[Constant]) -> Constant | None:
    """Return the element that an elementwise operation gives on these elements, or None."""
    types = [value.type for value in (*operation.operands, *operation.results)]
    if any(isinstance(element_type(type_), PointerType) for type_ in types):
        return None
    source, result = element_dtype(operation.operands[0].type), element_dtype(operation.result.type)
    if any(isinstance(value, float) and math.isnan(value) for value in operands):
        return None
    # A constant's text may have more digits than its dtype keeps.
    rounded = [
        convert(value, element_dtype(operand.type))
        for value, operand in zip(operands, operation.operands, strict=True)
    ]
    match operation.name, rounded:
        case "cast", [value]:
            return convert(value, result)
        case "bitcast", [value]:
            return _bitcast(value, source, result)
        case "cmp", [left, right]:
            return _COMPARE[operation.attributes["predicate"]](left, right)
        case "select", [condition, left, right]:
            return left if condition else right
        case name, [left, right] if source.is_float and name in _FLOAT_BINARY:
            return _FLOAT_BINARY[name](float(left), float(right), result)
        case "mulhi", [left, right]:
            return wrap(int(left) * int(right) >> result.bits, result)
        case name, [left, right] if not source.is_float and name in _INTEGER_BINARY:
            return _integer_binary(name, int(left), int(right), result)
        case "neg" | "abs" as name, [value] if source.bits > 1:
            changed = -value if name == "neg" else abs(value)
            return changed if source.is_float else wrap(int(changed), result)
        case "floor" | "ceil" | "sqrt" as name, [value]:
            return _FUNCTIONS[name](float(value), result)
    return None


def convert(value: Constant, dtype: DType) -> Constant:
    """Return `value`, which is no NaN, as the operation `cast` converts it to `dtype`."""
    if dtype.bits == 1:
        return value != 0
    if dtype in SATURATED and abs(value) > SATURATED[dtype]:
        return math.copysign(SATURATED[dtype], value)
    if dtype.is_float:
        return _round(Fraction(value), dtype, value) if math.isfinite(value) else float(value)
    if not isinstance(value, float):
        return wrap(int(value), dtype)
    low, high = integer_limits(dtype)
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def wrap(value: int, dtype: DType) -> Constant:
    """Return `value` modulo two to the width, in the dtype's range."""
    if dtype.bits == 1:
        return bool(value & 1)
    value &= (1 << dtype.bits) - 1
    is_negative = dtype.kind == "int" and value >> (dtype.bits - 1)
    return value - (1 << dtype.bits) if is_negative else value


def integer_limits(dtype: DType) -> tuple[int, int]:
    """Return the lowest and the highest integer of `dtype`."""
    if dtype.kind == "int":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def is_exact_cast(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`."""
    if target.is_float:
        if source.is_float:
            narrow = _PRECISION[source][0] <= _PRECISION[target][0]
            return narrow and _MAX_EXPONENT[source] <= _MAX_EXPONENT[target]
        # An n-bit signed integer has n - 1 bits of magnitude; the lowest is a power of two.
        magnitude_bits = source.bits - (source.kind == "int")
        return magnitude_bits <= _PRECISION[target][0] and source.bits < _MAX_EXPONENT[target]
    if source.is_float:
        return False
    low, high = integer_limits(source)
    return integer_limits(target)[0] <= low and high <= integer_limits(target)[1]


def _round(exact: Fraction, dtype: DType, signed_zero: float) -> float:
    """Round to the nearest value of `dtype`, ties to even; an exact zero takes the other's sign."""
    if exact == 0:
        return math.copysign(0.0, signed_zero)
    precision, smallest = _PRECISION[dtype]
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - precision + 1, smallest)
    rounded = round(magnitude / unit) * unit  # Python rounds a Fraction's ties to even
    if rounded >= Fraction(2) ** _MAX_EXPONENT[dtype]:
        return -math.inf if exact < 0 else math.inf
    return -float(rounded) if exact < 0 else float(rounded)


def _finite(
    compute: Callable[[Fraction, Fraction], Fraction], zero: Callable[[float, float], float]
) -> Callable[[float, float, DType], float | None]:
    """Round an exact computation once; `zero` gives a float with the sign of an exact zero."""

    def rounded(left: float, right: float, dtype: DType) -> float | None:
        if not (math.isfinite(left) and math.isfinite(right)):
            return None
        return _round(compute(Fraction(left), Fraction(right)), dtype, zero(left, right))

    return rounded


def _product_sign(left: float, right: float) -> float:
    return math.copysign(1.0, left) * math.copysign(1.0, right)


def _float_div(left: float, right: float, dtype: DType) -> float | None:
    if right == 0 or not (math.isfinite(left) and math.isfinite(right)):
        return None
    return _round(Fraction(left) / Fraction(right), dtype, _product_sign(left, right))


def _float_rem(left: float, right: float, _dtype: DType) -> float | None:
    if right == 0 or not (math.isfinite(left) and math.isfinite(right)):
        return None
    return math.fmod(left, right)  # exact, so there is nothing to round


def _float_min(left: float, right: float, _dtype: DType) -> float:
    if left == right == 0:
        return min(left, right, key=lambda value: math.copysign(1.0, value))
    return min(left, right)


def _float_max(left: float, right: float, _dtype: DType) -> float:
    if left == right == 0:
        return max(left, right, key=lambda value: math.copysign(1.0, value))
    return max(left, right)


def _sqrt(value: float, dtype: DType) -> float | None:
    if value < 0 or not math.isfinite(value):
        return None
    if value == 0 or dtype == float64:
        return math.sqrt(value)
    # Rounding to f64's 53 digits first changes nothing: they are more than 2 * 24 + 2.
    return _round(Fraction(math.sqrt(value)), dtype, value)


def _floor(value: float, _dtype: DType) -> float | None:
    return math.copysign(float(math.floor(value)), value) if math.isfinite(value) else None


def _ceil(value: float, _dtype: DType) -> float | None:
    return math.copysign(float(math.ceil(value)), value) if math.isfinite(value) else None


def _integer_binary(name: str, left: int, right: int, dtype: DType) -> Constant | None:
    if dtype.bits == 1 and name not in ("and", "or", "xor", "min", "max"):
        return None
    if name in ("div", "rem") and right == 0:
        return None
    if name in ("shl", "shr") and not 0 <= right < dtype.bits:
        return None
    return wrap(_INTEGER_BINARY[name](left, right), dtype)


def _truncated_div(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _truncated_rem(left: int, right: int) -> int:
    return left - _truncated_div(left, right) * right


def _bitcast(value: Constant, source: DType, target: DType) -> Constant | None:
    if source.bits == 1 or target.bits == 1 or SATURATED.keys() & {source, target}:
        return value if source == target else None
    pattern = _to_bits(value, source)
    if not target.is_float:
        return wrap(pattern, target)
    number = _from_bits(pattern, target)
    return None if math.isnan(number) else number


def _to_bits(value: Constant, dtype: DType) -> int:
    if not dtype.is_float:
        return int(value) & ((1 << dtype.bits) - 1)
    value = _round(Fraction(value), dtype, value) if math.isfinite(value) else value
    if dtype == bfloat16:  # the upper half of the f32 that it is
        return int(_unpack("<I", struct.pack("<f", value))) >> 16
    return int(_unpack(_INTEGER_FORMAT[dtype.bits], struct.pack(_FLOAT_FORMAT[dtype], value)))


def _from_bits(pattern: int, dtype: DType) -> float:
    if dtype == bfloat16:
        return float(_unpack("<f", struct.pack("<I", pattern << 16)))
    packed = struct.pack(_INTEGER_FORMAT[dtype.bits], pattern)
    return float(_unpack(_FLOAT_FORMAT[dtype], packed))


def _unpack(form: str, packed: bytes) -> Any:
    (value,) = struct.unpack(form, packed)
    return value


_INTEGER_FORMAT = {16: "<H", 32: "<I", 64: "<Q"}
_FLOAT_FORMAT = {float16: "<e", float32: "<f", float64: "<d"}

_COMPARE: dict[str, Callable[[Constant, Constant], bool]] = {
    "eq": lambda left, right: left == right,
    "ne": lambda left, right: left != right,
    "lt": lambda left, right: left < right,
    "le": lambda left, right: left <= right,
    "gt": lambda left, right: left > right,
    "ge": lambda left, right: left >= right,
}
_FLOAT_BINARY: dict[str, Callable[[float, float, DType], float | None]] = {
    # In round-to-nearest an exact zero sum is +0 unless both are -0, as Python's own sum shows.
    "add": _finite(lambda left, right: left + right, lambda left, right: left + right),
    "sub": _finite(lambda left, right: left - right, lambda left, right: left - right),
    "mul": _finite(lambda left, right: left * right, _product_sign),
    "div": _float_div,
    "rem": _float_rem,
    "min": _float_min,
    "max": _float_max,
}
_INTEGER_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "div": _truncated_div,
    "rem": _truncated_rem,
    "min": min,
    "max": max,
    "and": lambda left, right: left & right,
    "or": lambda left, right: left | right,
    "xor": lambda left, right: left ^ right,
    "shl": lambda left, right: left << right,
    "shr": lambda left, right: left >> right,
}
_FUNCTIONS: dict[str, Callable[[float, DType], float | None]] = {
    "floor": _floor,
    "ceil": _ceil,
    "sqrt": _sqrt,
}
