"""Element types and constants of the IR as MLIR text.

A bool is `i1` in registers and `i8` in memory and among parameters. Float constants are written
as bits, so that a text never depends on how a float prints.
"""

from __future__ import annotations

import math
import struct

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, int8
from tilewright_compiler.ir.types import ElementType, PointerType, ScalarType, Type, element_type

POINTER = "!llvm.ptr<1>"
SHARED_POINTER = "!llvm.ptr<3>"


def register_type(type_: Type) -> str:
    """Return the MLIR type of one element of `type_` in a register."""
    return element_text(element_type(type_))


def element_text(element: ElementType) -> str:
    """Return the MLIR type of an element in a register."""
    match element:
        case PointerType():
            return POINTER
        case ScalarType():
            return dtype_text(element.dtype)


def dtype_text(dtype: DType) -> str:
    """Return the MLIR type of a dtype: MLIR's integers have no sign."""
    return dtype.name if dtype.is_float else f"i{dtype.bits}"


def memory_dtype(dtype: DType) -> DType:
    """Return the dtype as which an element lies in memory."""
    return int8 if dtype.bits == 1 else dtype


def literal(value: int | float | bool, dtype: DType) -> str:
    """Return `value`, rounded once to `dtype`, as the literal of an `llvm.mlir.constant`."""
    if dtype.bits == 1:
        return "true" if value else "false"
    if dtype.is_float:
        digits = dtype.bits // 4
        return f"0x{float_bits(float(value), dtype):0{digits}X} : {dtype.name}"
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    signed = wrapped - (1 << dtype.bits) if wrapped >> (dtype.bits - 1) else wrapped
    return f"{signed} : i{dtype.bits}"


def float_bits(value: float, dtype: DType) -> int:
    """Return the bits of `value` rounded to nearest even; what overflows is infinite."""
    if math.isnan(value):
        # One quiet NaN for all: Python does not say which payload it holds.
        return {16: 0x7E00, 32: 0x7FC00000, 64: 0x7FF8000000000000}[dtype.bits] | (
            0x7FC0 if dtype == bfloat16 else 0
        )
    if dtype == bfloat16:
        return _pack(_round(value, precision=8, lowest=-133, highest=128), "f") >> 16
    if dtype == float16:
        return _pack(_round(value, precision=11, lowest=-24, highest=16), "e")
    if dtype == float32:
        return _pack(_round(value, precision=24, lowest=-149, highest=128), "f")
    return _pack(value, "d")


def _round(value: float, *, precision: int, lowest: int, highest: int) -> float:
    if value == 0.0 or math.isinf(value):
        return value
    exponent = max(math.frexp(value)[1] - precision, lowest)
    rounded = math.ldexp(round(math.ldexp(value, -exponent)), exponent)
    if abs(rounded) >= math.ldexp(1.0, highest):
        rounded = math.inf
    return math.copysign(rounded, value)


def _pack(value: float, code: str) -> int:
    return int.from_bytes(struct.pack(f">{code}", value), "big")
