"""Prints while compiling, checks at run time, and barriers."""

from __future__ import annotations

import sys

import tilewright.language as tl
from tilewright.abi.dtypes import ALL, DType, float64, int1, int32, int64, uint64
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import arguments, registry
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import dtype_name, shape_of_operand, tile_of
from tilewright_compiler.frontend.operands import (
    NONE,
    Constant,
    Operand,
    TupleOperand,
    describe,
)
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, like, shape_of


@implements(tl.static_print)
def static_print(_scope: Scope, values: Operand, *, sep: Operand, end: Operand) -> None:
    """Write to standard output now."""
    items = values.items if isinstance(values, TupleOperand) else (values,)
    separator = arguments.text(sep, "`sep` of tl.static_print")
    last = arguments.text(end, "`end` of tl.static_print")
    shown = () if values == NONE else items
    sys.stdout.write(separator.join(map(printed, shown)) + last)


@implements(tl.device_assert)
def device_assert(scope: Scope, condition: Operand, message: Operand, mask: Operand) -> None:
    """Build the check of a scalar; of a tile, of its least element."""
    words = arguments.text(message, "`message` of tl.device_assert")
    # What is known to fail is a check at run time all the same: its branch may not be taken.
    if isinstance(condition, Constant) and condition.value and mask == NONE:
        return
    checked = _truths(scope, condition, "`condition` of tl.device_assert")
    if mask != NONE:
        off = operators.invert(scope, _truths(scope, mask, "`mask` of tl.device_assert"))
        checked = operators.elementwise(scope, "or", (checked, off), int1, "tl.device_assert")
    if shape_of_operand(checked):
        least = registry.call(scope, tl.min, "tl.min", (checked,), {})
        assert isinstance(least, Value)
        checked = least
    scope.builder.create("assert", (checked,), message=words)


@implements(tl.device_print)
def device_print(scope: Scope, prefix: Operand, values: Operand, *, hex: Operand) -> None:
    """Build a print of each value, with where each element stands."""
    words = arguments.text(prefix, "`prefix` of tl.device_print")
    shows_bits = arguments.flag(hex, "`hex` of tl.device_print")
    items = values.items if isinstance(values, TupleOperand) else (values,)
    if values == NONE or not items:
        msg = "tl.device_print takes values after the prefix; tl.static_print prints a text alone"
        raise KernelTypeError(msg)
    for item in items:
        value = convert.as_value(scope, item, "tl.device_print")
        if is_pointer(value):
            msg = f"tl.device_print prints numbers, got {describe(value)}"
            raise KernelTypeError(msg)
        digits = max(element_dtype(value.type).bits // 4, 1) if shows_bits else 0
        printed_ = _printable(scope, value, shows_bits=shows_bits)
        places = [*_program(scope, printed_), *_indices(scope, printed_)]
        scope.builder.value(
            "print", (printed_, *places), printed_.type, prefix=words, digits=digits
        )


@implements(tl.debug_barrier)
def debug_barrier(scope: Scope) -> None:
    """Build the meeting of all threads."""
    scope.builder.create("barrier")


def printed(operand: Operand) -> str:
    """Return how an operand is printed: a value as Python does it, anything else by its type."""
    match operand:
        case Constant(value=DType() as dtype):
            return dtype_name(dtype)
        case Constant(value=value):
            return str(value)
        case TupleOperand(items=items):
            inner = ", ".join(map(printed, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
    return f"<{describe(operand)}>"


def _truths(scope: Scope, operand: Operand, what: str) -> Value:
    value = convert.as_value(scope, operand, what)
    if is_pointer(value):
        msg = f"{what} is a bool or a tile of bools, got {describe(operand)}"
        raise KernelTypeError(msg)
    return operators.to_bool(scope, value)


def _printable(scope: Scope, value: Value, *, shows_bits: bool) -> Value:
    """Build the value in 64 bits of its kind, or its bits as an unsigned integer."""
    dtype = element_dtype(value.type)
    if not shows_bits:
        wide = float64 if dtype.is_float else int64 if dtype.is_signed or dtype == int1 else uint64
        return convert.cast(scope, value, wide)
    if dtype != int1 and dtype.kind != "uint":
        unsigned = next(d for d in ALL if d.kind == "uint" and d.bits == dtype.bits)
        value = scope.builder.value("bitcast", (value,), like(value.type, ScalarType(unsigned)))
    return convert.cast(scope, value, uint64)


def _program(scope: Scope, value: Value) -> list[Value]:
    """Build the program's place in the grid, in the shape of a value."""
    numbers = (scope.builder.value("program_id", (), ScalarType(int64), axis=i) for i in range(3))
    return [convert.broadcast(scope, number, shape_of(value.type)) for number in numbers]


def _indices(scope: Scope, value: Value) -> list[Value]:
    """Build the index of each element along each axis of a value."""
    shape = shape_of(value.type)
    indices = []
    for axis, extent in enumerate(shape):
        type_ = tile_of((extent,), ScalarType(int32))
        index = scope.builder.value("arange", (), type_, start=0, end=extent)
        index = convert.cast(scope, index, int64)
        for other in range(len(shape)):
            if other != axis:
                index = convert.expand_dims(scope, index, other)
        indices.append(convert.broadcast(scope, index, shape))
    return indices
