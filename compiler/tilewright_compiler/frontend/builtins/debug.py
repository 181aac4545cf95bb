"""Prints while compiling, checks at run time, and barriers."""

from __future__ import annotations

import sys

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int1
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import arguments, registry
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import dtype_name, shape_of_operand
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
    if isinstance(condition, Constant) and mask == NONE:
        if not condition.value:
            msg = f"tl.device_assert failed{': ' if words else ''}{words}"
            raise KernelValueError(msg)
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
