"""Conversions of one 8-bit float, in registers an i8, by integer arithmetic.

PTX converts them from sm_89 on; the text that serves every GPU is of sm_80. Both directions pass
through a type that holds every 8-bit float: f16 on the way up, where E5M2 is the upper half of it
and E4M3 lacks an exponent of its bias, and f32 on the way down, whose exponent is the same wide
field for every source.

Rounding to nearest even works on the bits of the magnitude. Where the result is normal, half a unit
(less one if the digit above is even) is added below its last digit and the rest cut off; the carry
runs into the exponent as it should. Where it is subnormal, adding a power of two whose unit in the
last place is the smallest subnormal lets the hardware's addition round, and leaves the result in
the lowest bits. What lies above the largest number is cut to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.abi.dtypes import DType, float8e4nv, float8e5
from tilewright_compiler.emit.text import FunctionText

_SIGN = 0x80
_NAN = 0x7F
_F32_DIGITS, _F32_BIAS = 23, 127
_F32_INFINITY = 0x7F800000


@dataclass(frozen=True, slots=True)
class _Format:
    """An 8-bit float: digits after the point, bias of the exponent, bits of the largest number."""

    digits: int
    bias: int
    largest: int


_FORMATS = {float8e4nv: _Format(3, 7, 0x7E), float8e5: _Format(2, 15, 0x7B)}


def widen(text: FunctionText, name: str, source: DType) -> str:
    """Return the f16 equal to an 8-bit float."""
    if source == float8e5:
        bits = text.value(f"llvm.zext {name} : i8 to i16")
        bits = text.value(f"llvm.shl {bits}, {_integer(text, 8, 16)} : i16")
        return text.value(f"llvm.bitcast {bits} : i16 to f16")
    # The copies of the sign bit that the extension makes leave one above the exponent.
    bits = text.value(f"llvm.sext {name} : i8 to i16")
    bits = text.value(f"llvm.shl {bits}, {_integer(text, 7, 16)} : i16")
    bits = text.value(f"llvm.and {bits}, {_integer(text, 0xBFFF, 16)} : i16")
    small = text.value(f"llvm.bitcast {bits} : i16 to f16")
    # The biases are 7 and 15; a subnormal becomes normal on the way. 2**8 is 0x5C00.
    scale = text.raw_constant("0x5C00 : f16", "f16")
    number = text.value(f"llvm.fmul {small}, {scale} : f16")
    magnitude = text.value(f"llvm.and {name}, {_integer(text, _NAN, 8)} : i8")
    is_nan = text.value(f'llvm.icmp "eq" {magnitude}, {_integer(text, _NAN, 8)} : i8')
    nan = text.raw_constant("0x7E00 : f16", "f16")
    return text.value(f"llvm.select {is_nan}, {nan}, {number} : i1, f16")


def narrow(text: FunctionText, name: str, target: DType) -> str:
    """Return the 8-bit float nearest to an f32."""
    form = _FORMATS[target]
    bits = text.value(f"llvm.bitcast {name} : f32 to i32")
    magnitude = _binary(text, "and", bits, 0x7FFFFFFF)
    normal = _normal(text, magnitude, form)
    subnormal = _subnormal(text, magnitude, form)
    smallest_normal = (_F32_BIAS + 1 - form.bias) << _F32_DIGITS
    is_subnormal = _compare(text, "ult", magnitude, smallest_normal)
    result = text.value(f"llvm.select {is_subnormal}, {subnormal}, {normal} : i1, i32")
    largest = _integer(text, form.largest, 32)
    result = text.value(f"llvm.intr.umin({result}, {largest}) : (i32, i32) -> i32")
    sign = _binary(text, "and", _binary(text, "lshr", bits, 24), _SIGN)
    result = text.value(f"llvm.or {result}, {sign} : i32")
    is_nan = _compare(text, "ugt", magnitude, _F32_INFINITY)
    result = text.value(f"llvm.select {is_nan}, {_integer(text, _NAN, 32)}, {result} : i1, i32")
    return text.value(f"llvm.trunc {result} : i32 to i8")


def _normal(text: FunctionText, magnitude: str, form: _Format) -> str:
    lost = _F32_DIGITS - form.digits
    rebias = (_F32_BIAS - form.bias) << _F32_DIGITS
    is_odd = _binary(text, "and", _binary(text, "lshr", magnitude, lost), 1)
    moved = _binary(text, "add", magnitude, (1 << (lost - 1)) - 1 - rebias)
    rounded = text.value(f"llvm.add {moved}, {is_odd} : i32")
    return _binary(text, "lshr", rounded, lost)


def _subnormal(text: FunctionText, magnitude: str, form: _Format) -> str:
    exponent = _F32_DIGITS + 1 - form.bias - form.digits
    power_bits = (_F32_BIAS + exponent) << _F32_DIGITS
    power = text.raw_constant(f"0x{power_bits:08X} : f32", "f32")
    number = text.value(f"llvm.bitcast {magnitude} : i32 to f32")
    total = text.value(f"llvm.fadd {number}, {power} : f32")
    return _binary(text, "sub", text.value(f"llvm.bitcast {total} : f32 to i32"), power_bits)


def _binary(text: FunctionText, operation: str, name: str, number: int) -> str:
    return text.value(f"llvm.{operation} {name}, {_integer(text, number, 32)} : i32")


def _compare(text: FunctionText, predicate: str, name: str, number: int) -> str:
    return text.value(f'llvm.icmp "{predicate}" {name}, {_integer(text, number, 32)} : i32')


def _integer(text: FunctionText, number: int, bits: int) -> str:
    signed = number - (1 << bits) if number >> (bits - 1) & 1 and number >= 0 else number
    return text.raw_constant(f"{signed} : i{bits}", f"i{bits}")
