"""Element types and constants of the IR as MLIR text.

A bool is `i1` in registers and `i8` in memory and among parameters. Float constants are written
as bits, so that a text never depends on how a float prints.
"""

from __future__ import annotations

import math
import struct

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int8,
)
from tilewright_compiler.ir.evaluate import convert
from tilewright_compiler.ir.types import (
    ElementType,
    MbarrierType,
    PointerType,
    ScalarType,
    SharedType,
    Type,
    element_type,
)

POINTER = "!llvm.ptr<1>"
SHARED_POINTER = "!llvm.ptr<3>"
GENERIC_POINTER = "!llvm.ptr"

_PACK_CODES = {float16: "e", float32: "f", float64: "d"}
# Digits after the point, and the bias of the exponent.
_EIGHT_BITS = {float8e4nv: (3, 7), float8e5: (2, 15)}
_QUIET_NAN = {
    float8e4nv: 0x7F,
    float8e5: 0x7F,
    float16: 0x7E00,
    bfloat16: 0x7FC0,
    float32: 0x7FC00000,
    float64: 0x7FF8000000000000,
}


def register_type(type_: Type) -> str:
    """Return the MLIR type of one register of `type_`; what is in shared memory is its address."""
    if isinstance(type_, SharedType | MbarrierType):
        return SHARED_POINTER
    return element_text(element_type(type_))


def element_text(element: ElementType) -> str:
    """Return the MLIR type of an element in a register."""
    match element:
        case PointerType():
            return POINTER
        case ScalarType():
            return dtype_text(element.dtype)


def dtype_text(dtype: DType) -> str:
    """Return the MLIR type of a dtype: MLIR's integers have no sign, LLVM no 8-bit floats."""
    return dtype.name if dtype.is_float and dtype.has_arithmetic else f"i{dtype.bits}"


def memory_dtype(dtype: DType) -> DType:
    """Return the dtype as which an element lies in memory."""
    return int8 if dtype.bits == 1 else dtype


def literal(value: int | float | bool, dtype: DType) -> str:
    """Return `value`, rounded once to `dtype`, as the literal of an `llvm.mlir.constant`."""
    if dtype.bits == 1:
        return "true" if value else "false"
    if not dtype.has_arithmetic:
        return f"{_signed(float_bits(float(value), dtype), dtype.bits)} : i{dtype.bits}"
    if dtype.is_float:
        return f"0x{float_bits(float(value), dtype):0{dtype.bits // 4}X} : {dtype.name}"
    return f"{_signed(int(value), dtype.bits)} : i{dtype.bits}"


def float_bits(value: float, dtype: DType) -> int:
    """Return the bits of `value` rounded to nearest even; what overflows is infinite."""
    if math.isnan(value):
        return _QUIET_NAN[dtype]  # one for all: Python does not say which payload it holds
    rounded = float(convert(value, dtype))
    if dtype in _EIGHT_BITS:
        return _eight_bits(rounded, *_EIGHT_BITS[dtype])
    if dtype == bfloat16:
        return _pack(rounded, "f") >> 16
    return _pack(rounded, _PACK_CODES[dtype])


def _eight_bits(value: float, digits: int, bias: int) -> int:
    """Return the bits of a finite value that an 8-bit float holds."""
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    fraction, exponent = math.frexp(abs(value))  # the fraction lies in [0.5, 1), or is 0
    field = exponent - 1 + bias
    if field <= 0 or value == 0:  # subnormal
        return sign | int(math.ldexp(abs(value), bias - 1 + digits))
    return sign | field << digits | int(math.ldexp(2 * fraction - 1, digits))


def _signed(value: int, bits: int) -> int:
    wrapped = value & ((1 << bits) - 1)
    return wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped


def _pack(value: float, code: str) -> int:
    return int.from_bytes(struct.pack(f">{code}", value), "big")
