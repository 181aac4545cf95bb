"""Conversions of 8-bit floats, in registers an i8 each, by integer arithmetic.

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

from collections.abc import Sequence

from tilewright.abi.dtypes import DType, float8e4nv, float8e5
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.vectors import extract_elements, insert_elements

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


def widen(text: FunctionText, names: Sequence[str], source: DType) -> tuple[str, ...]:
    """Return the f16 equal to 8-bit floats, two at a time."""
    result: list[str] = []
    for first in range(0, len(names), 2):
        pair = names[first : first + 2]
        result += _widen_pair(text, (pair[0], pair[-1]), source)[: len(pair)]
    return tuple(result)


def _widen_pair(text: FunctionText, pair: tuple[str, str], source: DType) -> tuple[str, ...]:
    both, _ = insert_elements(text, pair, "i8")
    both = text.value(f"llvm.bitcast {both} : vector<2xi8> to i16")
    both = text.value(f"llvm.zext {both} : i16 to i32")
    # Each byte becomes the upper one of a half: bytes 4 to 7 are those of the second operand, 0.
    zero, selector = _integer(text, 0, 32), _integer(text, 0x1404, 32)
    bits = text.intrinsic("llvm.nvvm.prmt", (both, zero, selector), ("i32",) * 3, "i32")
    if source == float8e4nv:
        bits = _widened_e4m3(text, bits)
    halves = text.value(f"llvm.bitcast {bits} : i32 to vector<2xf16>")
    return extract_elements(text, halves, "f16", 2)


def _widened_e4m3(text: FunctionText, bits: str) -> str:
    """Return two f16 of two E4M3 in the upper bytes of an i32."""
    magnitude = _binary(text, "and", bits, 0x7F007F00)
    sign = _binary(text, "and", bits, 0x80008000)
    small = text.value(f"llvm.or {_binary(text, 'lshr', magnitude, 1)}, {sign} : i32")
    # The biases are 7 and 15; a subnormal becomes normal on the way. 2**8 is 0x5C00.
    scale = text.raw_constant("dense<256.0> : vector<2xf16>", "vector<2xf16>")
    halves = text.value(f"llvm.bitcast {small} : i32 to vector<2xf16>")
    halves = text.value(f"llvm.fmul {halves}, {scale} : vector<2xf16>")
    numbers = text.value(f"llvm.bitcast {halves} : vector<2xf16> to i32")
    # One more than the largest pattern of a magnitude, NaN, is a sign bit; it fills an exponent.
    is_nan = _binary(text, "and", _binary(text, "add", magnitude, 0x01000100), 0x80008000)
    exponents = text.value(f"llvm.sub {is_nan}, {_binary(text, 'lshr', is_nan, 5)} : i32")
    return text.value(f"llvm.or {numbers}, {exponents} : i32")


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
