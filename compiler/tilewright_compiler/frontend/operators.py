"""The operators of the language on operands: compile-time numbers as in Python, run-time values as
the IR.

Both sides are first brought to one dtype and one shape. Constants fold here and nowhere else in the
frontend, so that `BLOCK * 2` is a number wherever a number is needed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.abi.dtypes import int1, int32
from tilewright.abi.signature import ConstexprValue
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.constants import integer_range
from tilewright_compiler.frontend.infer_types import (
    arithmetic_dtype,
    check_arithmetic,
    common_dtype,
    common_shape,
)
from tilewright_compiler.frontend.operands import (
    Constant,
    Operand,
    TupleOperand,
    describe,
    is_number,
    is_same,
)
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    element_dtype,
    element_type,
    like,
    shape_of,
)

_BINARY = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "div",
    "%": "rem",
    "&": "and",
    "|": "or",
    "^": "xor",
    "<<": "shl",
    ">>": "shr",
}
_COMPARE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_PYTHON: dict[str, Callable[[Any, Any], ConstexprValue]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MAX_CONSTANT_BITS = 4096


def binary(scope: Scope, symbol: str, left: Operand, right: Operand) -> Operand:
    """Build `left symbol right` for an arithmetic or bit operator."""
    if is_number(left) and is_number(right):
        return _fold(symbol, left, right)
    if is_pointer(left) or is_pointer(right):
        return _pointer_arithmetic(scope, symbol, left, right)
    if symbol == "**":
        return _power(scope, left, right)
    action = f"`{symbol}`"
    dtype = arithmetic_dtype(symbol, common_dtype((left, right), action))
    _check_shift(symbol, right, dtype.bits)
    return elementwise(scope, _BINARY[symbol], (left, right), dtype, action)


def elementwise(
    scope: Scope, name: str, operands: tuple[Operand, ...], dtype: Any, action: str
) -> Value:
    """Build an operation whose operands and result all have `dtype` and the broadcast shape."""
    shape = common_shape(operands)
    values = [
        convert.broadcast(scope, convert.as_number(scope, operand, dtype, action), shape)
        for operand in operands
    ]
    result = scope.builder.value(name, values, values[0].type)
    scope.program.derive(result, operands)
    return result


def compare(scope: Scope, symbol: str, left: Operand, right: Operand) -> Operand:
    """Build a comparison. `is` compares with None; equality takes any two compile-time values."""
    if symbol in ("is", "is not"):
        return _identity(symbol, left, right)
    if not _is_run_time(left) and not _is_run_time(right):
        return _compare_constants(symbol, left, right)
    action = f"`{symbol}`"
    dtype = common_dtype((left, right), action)
    shape = common_shape((left, right))
    values = [
        convert.broadcast(scope, convert.as_number(scope, operand, dtype, action), shape)
        for operand in (left, right)
    ]
    result = like(values[0].type, ScalarType(int1))
    return scope.builder.value("cmp", values, result, predicate=_COMPARE[symbol])


def negate(scope: Scope, operand: Operand) -> Operand:
    """Build `-operand`; a bool counts as 0 or 1."""
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        return Constant(-operand.value)
    dtype = common_dtype((operand,), "unary `-`")
    return elementwise(scope, "neg", (operand,), int32 if dtype == int1 else dtype, "unary `-`")


def plus(operand: Operand) -> Operand:
    """Return `+operand`: the operand itself, if it is a number."""
    common_dtype((operand,), "unary `+`")
    if isinstance(operand, Constant) and isinstance(operand.value, bool):
        return Constant(int(operand.value))
    return operand


def invert(scope: Scope, operand: Operand) -> Operand:
    """Build `~operand`: the logical complement of a bool, the bits' of an integer."""
    dtype = common_dtype((operand,), "`~`")
    if dtype.is_float:
        msg = f"`~` takes integers or bools, got {describe(operand)}; for a float write `x == 0`"
        raise KernelTypeError(msg)
    if isinstance(operand, Constant):
        # Python's ~True is -2; in a kernel bools are masks, at compile time too.
        return Constant(
            not operand.value if isinstance(operand.value, bool) else ~_integer(operand)
        )
    ones = Constant(
        True if dtype == int1 else -1 if dtype.kind == "int" else integer_range(dtype)[1]
    )
    return elementwise(scope, "xor", (operand, ones), dtype, "`~`")


def truth(scope: Scope, operand: Operand, what: str) -> Constant | Value:
    """Return the truth of a scalar as an i1 value, of a compile-time value as a constant."""
    if isinstance(operand, Constant):
        return Constant(bool(operand.value))
    if isinstance(operand, TupleOperand):
        return Constant(bool(operand.items))
    if not isinstance(operand, Value) or is_pointer(operand):
        msg = f"{what} takes a bool or a number, got {describe(operand)}"
        raise KernelTypeError(msg)
    if shape_of(operand.type):
        msg = (
            f"{what} takes one bool for the whole program, got {describe(operand)}; choose lane by"
            " lane with "
            "tl.where, combine masks with & | ~, or reduce first"
        )
        raise KernelTypeError(msg)
    check_arithmetic(element_dtype(operand.type), what)
    return to_bool(scope, operand)


def to_bool(scope: Scope, value: Value) -> Value:
    """Return `value != 0` as i1, elementwise."""
    if element_dtype(value.type) == int1:
        return value
    zero = convert.filled(scope, 0, value.type)
    return scope.builder.value(
        "cmp", (value, zero), like(value.type, ScalarType(int1)), predicate="ne"
    )


def logical_not(scope: Scope, operand: Operand) -> Operand:
    """Build `not operand` on a scalar or a compile-time value."""
    condition = truth(scope, operand, "`not`")
    if isinstance(condition, Constant):
        return Constant(not condition.value)
    return elementwise(scope, "xor", (condition, Constant(True)), int1, "`not`")


def is_pointer(operand: Operand) -> bool:
    """Return whether this is a pointer or a tile of pointers."""
    return isinstance(operand, Value) and isinstance(element_type(operand.type), PointerType)


def add_offset(scope: Scope, pointer: Value, offset: Operand) -> Value:
    """Build `pointer + offset`, in elements, with broadcasting."""
    shape = common_shape((pointer, offset))
    dtype = common_dtype((offset,), "a pointer offset")
    if dtype.is_float:
        msg = f"a pointer moves by integers, got {describe(offset)}; cast with .to(tl.int64) first"
        raise KernelTypeError(msg)
    number = convert.as_number(scope, offset, int32 if dtype == int1 else dtype, "a pointer offset")
    moved = convert.broadcast(scope, pointer, shape), convert.broadcast(scope, number, shape)
    return scope.builder.value("addptr", moved, moved[0].type)


def _pointer_arithmetic(scope: Scope, symbol: str, left: Operand, right: Operand) -> Operand:
    if isinstance(left, Value) and is_pointer(left) and not is_pointer(right):
        if symbol == "+":
            return add_offset(scope, left, right)
        if symbol == "-":
            return add_offset(scope, left, negate(scope, right))
    elif isinstance(right, Value) and not is_pointer(left) and symbol == "+":
        return add_offset(scope, right, left)
    msg = (
        f"`{symbol}` of {describe(left)} and {describe(right)}: pointers only move, by `pointer + "
        "integer` "
        "and `pointer - integer`"
    )
    raise KernelTypeError(msg)


def _power(scope: Scope, base: Operand, exponent: Operand) -> Operand:
    """Build a power with a small compile-time exponent by repeated squaring."""
    common_dtype((base,), "`**`")
    if not isinstance(exponent, Constant) or type(exponent.value) is not int or exponent.value < 1:
        msg = (
            f"`**` on run-time values takes a compile-time integer exponent of at least 1, got "
            f"{describe(exponent)}; for others use tl.exp(y * tl.log(x)), or 1 / x ** n for a "
            "negative one"
        )
        raise KernelTypeError(msg)
    result: Operand | None = None
    square, remaining = base, exponent.value
    while remaining:
        if remaining & 1:
            result = square if result is None else binary(scope, "*", result, square)
        remaining >>= 1
        if remaining:
            square = binary(scope, "*", square, square)
    assert result is not None, "the exponent is at least 1"
    return result


def _check_shift(symbol: str, count: Operand, bits: int) -> None:
    if symbol in ("<<", ">>") and is_number(count) and not 0 <= _integer(count) < bits:
        msg = f"`{symbol}` by {_integer(count)} on a {bits}-bit value; the count is 0 to {bits - 1}"
        raise KernelValueError(msg)


def _integer(operand: Operand) -> int:
    assert isinstance(operand, Constant)
    assert isinstance(operand.value, int)
    return operand.value


def _fold(symbol: str, left: Operand, right: Operand) -> Constant:
    assert isinstance(left, Constant)
    assert isinstance(right, Constant)
    if (
        symbol in ("<<", "**")
        and isinstance(right.value, int)
        and abs(right.value) > _MAX_CONSTANT_BITS
    ):
        msg = f"`{left.value} {symbol} {right.value}` is too large for a compile-time number"
        raise KernelValueError(msg)
    try:
        result = _PYTHON[symbol](left.value, right.value)
    except (ArithmeticError, ValueError) as error:
        msg = f"`{left.value!r} {symbol} {right.value!r}` has no value: {error}"
        raise KernelValueError(msg) from error
    except TypeError as error:
        msg = f"`{symbol}` does not take {describe(left)} and {describe(right)}"
        raise KernelTypeError(msg) from error
    if isinstance(result, complex):
        msg = (
            f"`{left.value!r} {symbol} {right.value!r}` is complex; numbers are bools, integers "
            "and floats"
        )
        raise KernelValueError(msg)
    return Constant(result)


def _is_run_time(operand: Operand) -> bool:
    return isinstance(operand, Value) or (
        isinstance(operand, TupleOperand) and any(_is_run_time(item) for item in operand.items)
    )


def _identity(symbol: str, left: Operand, right: Operand) -> Constant:
    if Constant(None) not in (left, right):
        msg = f"`{symbol}` compares with None only; use `==`"
        raise KernelTypeError(msg)
    return Constant((left == right) == (symbol == "is"))


def _compare_constants(symbol: str, left: Operand, right: Operand) -> Constant:
    if is_number(left) and is_number(right):
        return _fold(symbol, left, right)
    if symbol in ("==", "!="):
        return Constant(_are_equal(left, right) == (symbol == "=="))
    msg = f"`{symbol}` does not order {describe(left)} and {describe(right)}; it takes numbers"
    raise KernelTypeError(msg)


def _are_equal(left: Operand, right: Operand) -> bool:
    if isinstance(left, TupleOperand) and isinstance(right, TupleOperand):
        return len(left.items) == len(right.items) and all(
            _are_equal(a, b) for a, b in zip(left.items, right.items, strict=True)
        )
    if is_number(left) and is_number(right):
        return bool(_fold("==", left, right).value)
    return is_same(left, right)
