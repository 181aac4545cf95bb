"""Python's own builtins inside a kernel: `abs bool float int len max min`, on numbers and on
scalars.

On compile-time numbers they are Python's. On run-time values `abs`, `min` and `max` are the
operations of the language, and `int`, `float` and `bool` cast a scalar to i64, f32 (an f64 stays)
and i1.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tilewright.abi.dtypes import float32, float64, int64
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import math
from tilewright_compiler.frontend.builtins.program import refuse_range
from tilewright_compiler.frontend.infer_types import common_dtype, shape_of_operand
from tilewright_compiler.frontend.operands import Constant, Operand, TupleOperand, describe
from tilewright_compiler.frontend.scope import Scope

_FLOAT_WORDS = ("inf", "+inf", "-inf", "nan", "infinity", "+infinity", "-infinity")


def call(
    scope: Scope,
    function: Callable[..., Any],
    name: str,
    positional: tuple[Operand, ...],
    keywords: dict[str, Operand],
) -> Operand:
    """Build a call of a Python builtin."""
    if keywords:
        msg = f"`{name}` takes no keyword arguments in a kernel"
        raise KernelTypeError(msg)
    return IMPLEMENTATIONS[function](scope, positional)


def _one(name: str, operands: tuple[Operand, ...]) -> Operand:
    if len(operands) != 1:
        msg = f"`{name}` takes one argument, got {len(operands)}"
        raise KernelTypeError(msg)
    return operands[0]


def _scalar(name: str, operand: Operand, dtype: str) -> Operand:
    if shape_of_operand(operand):
        msg = f"`{name}` takes a scalar, got {describe(operand)}; cast a tile with .to({dtype})"
        raise KernelTypeError(msg)
    return operand


def _abs(scope: Scope, operands: tuple[Operand, ...]) -> Operand:
    return math.abs(scope, _one("abs", operands))


def _bool(scope: Scope, operands: tuple[Operand, ...]) -> Operand:
    return operators.truth(scope, _scalar("bool", _one("bool", operands), "tl.int1"), "`bool`")


def _int(scope: Scope, operands: tuple[Operand, ...]) -> Operand:
    operand = _scalar("int", _one("int", operands), "tl.int64")
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        try:
            return Constant(int(operand.value))
        except (ValueError, OverflowError) as error:
            msg = f"`int` of {operand.value!r}: {error}"
            raise KernelValueError(msg) from error
    return convert.as_number(scope, operand, int64, "`int`")


def _float(scope: Scope, operands: tuple[Operand, ...]) -> Operand:
    operand = _scalar("float", _one("float", operands), "tl.float32")
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        return Constant(float(operand.value))
    if isinstance(operand, Constant) and isinstance(operand.value, str):
        if operand.value.lower() not in _FLOAT_WORDS:
            msg = (
                f"`float` of a string takes 'inf', '-inf' or 'nan', got {operand.value!r}; write "
                "the number"
            )
            raise KernelValueError(msg)
        return Constant(float(operand.value))
    is_double = common_dtype((operand,), "`float`") == float64
    return convert.as_number(scope, operand, float64 if is_double else float32, "`float`")


def _len(_scope: Scope, operands: tuple[Operand, ...]) -> Operand:
    operand = _one("len", operands)
    if not isinstance(operand, TupleOperand):
        msg = f"`len` takes a tuple such as x.shape, got {describe(operand)}"
        raise KernelTypeError(msg)
    return Constant(len(operand.items))


def _extremum(name: str) -> Callable[[Scope, tuple[Operand, ...]], Operand]:
    def extremum(scope: Scope, operands: tuple[Operand, ...]) -> Operand:
        items = operands
        if len(operands) == 1 and isinstance(operands[0], TupleOperand):
            items = operands[0].items
        if len(items) < 2:
            msg = f"`{name}` takes at least two values; reduce a tile with tl.{name}"
            raise KernelTypeError(msg)
        result = items[0]
        for item in items[1:]:
            result = math.extremum(scope, name, result, item, f"`{name}`")
        return result

    return extremum


def _range(_scope: Scope, operands: tuple[Operand, ...]) -> Operand:
    return refuse_range(operands)


IMPLEMENTATIONS: dict[Callable[..., Any], Callable[[Scope, tuple[Operand, ...]], Operand]] = {
    builtins.abs: _abs,
    builtins.bool: _bool,
    builtins.float: _float,
    builtins.int: _int,
    builtins.len: _len,
    builtins.max: _extremum("max"),
    builtins.min: _extremum("min"),
    builtins.range: _range,
}
