"""Elementwise mathematics; functions of floats take integers as f32, others promote."""

from __future__ import annotations

import math
from collections.abc import Callable

import tilewright.language as tl
from tilewright.abi.dtypes import float32, int1
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins.registry import Stub, implements
from tilewright_compiler.frontend.infer_types import (
    chosen_dtype,
    common_dtype,
    common_shape,
)
from tilewright_compiler.frontend.operands import Constant, Number, Operand, describe, is_number
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import element_dtype


def _implement_unary(stub: Stub) -> Callable[[Scope, Operand], Operand]:
    name = stub.__name__

    def unary(scope: Scope, x: Operand) -> Operand:
        dtype = common_dtype((x,), f"tl.{name}")
        return operators.elementwise(
            scope, name, (x,), dtype if dtype.is_float else float32, f"tl.{name}"
        )

    return implements(stub)(unary)


exp = _implement_unary(tl.exp)
exp2 = _implement_unary(tl.exp2)
log = _implement_unary(tl.log)
log2 = _implement_unary(tl.log2)
sqrt = _implement_unary(tl.sqrt)
rsqrt = _implement_unary(tl.rsqrt)
sin = _implement_unary(tl.sin)
cos = _implement_unary(tl.cos)
tanh = _implement_unary(tl.tanh)
erf = _implement_unary(tl.erf)
floor = _implement_unary(tl.floor)
ceil = _implement_unary(tl.ceil)


@implements(tl.sigmoid)
def sigmoid(scope: Scope, x: Operand) -> Operand:
    """Build the logistic function from `exp(-abs(x))`, which is at most 1; 16-bit floats in f32."""
    dtype = common_dtype((x,), "tl.sigmoid")
    wide = dtype if dtype.is_float and dtype.bits > 16 else float32
    value = convert.as_number(scope, x, wide, "tl.sigmoid")
    decay = exp(scope, operators.negate(scope, abs(scope, value)))
    scale = operators.binary(
        scope, "/", Constant(1.0), operators.binary(scope, "+", decay, Constant(1.0))
    )
    is_positive = operators.compare(scope, ">=", value, Constant(0.0))
    result = where(scope, is_positive, scale, operators.binary(scope, "*", decay, scale))
    assert isinstance(result, Value)
    return convert.cast(scope, result, dtype if dtype.is_float else float32)


@implements(tl.abs)
def abs(scope: Scope, x: Operand) -> Operand:
    """Build the magnitude; unsigned integers and bools are theirs."""
    if isinstance(x, Constant) and isinstance(x.value, bool | int | float):
        return Constant(x.value if x.value >= 0 else -x.value)
    dtype = common_dtype((x,), "tl.abs")
    if dtype.is_signed:
        return operators.elementwise(scope, "abs", (x,), dtype, "tl.abs")
    return x


@implements(tl.fma)
def fma(scope: Scope, x: Operand, y: Operand, z: Operand) -> Operand:
    """Build `x * y + z` rounded once."""
    dtype = common_dtype((x, y, z), "tl.fma")
    return operators.elementwise(
        scope, "fma", (x, y, z), dtype if dtype.is_float else float32, "tl.fma"
    )


@implements(tl.fdiv)
def fdiv(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build the approximate quotient."""
    dtype = common_dtype((x, y), "tl.fdiv")
    return operators.elementwise(
        scope, "fdiv", (x, y), dtype if dtype.is_float else float32, "tl.fdiv"
    )


@implements(tl.maximum)
def maximum(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build the larger of two, NaN if either is."""
    return extremum(scope, "max", x, y, "tl.maximum")


@implements(tl.minimum)
def minimum(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build the smaller of two, NaN if either is."""
    return extremum(scope, "min", x, y, "tl.minimum")


@implements(tl.clamp)
def clamp(scope: Scope, x: Operand, low: Operand, high: Operand) -> Operand:
    """Build `minimum(maximum(x, low), high)`."""
    return extremum(scope, "min", extremum(scope, "max", x, low, "tl.clamp"), high, "tl.clamp")


@implements(tl.where)
def where(scope: Scope, condition: Operand, x: Operand, y: Operand) -> Operand:
    """Build a choice between two values, lane by lane."""
    is_bool = isinstance(condition, Constant) and isinstance(condition.value, bool)
    if isinstance(condition, Value) and not operators.is_pointer(condition):
        is_bool = element_dtype(condition.type) == int1
    if not is_bool:
        msg = (
            f"`condition` of tl.where is a bool or a tile of bools, got {describe(condition)}; "
            "compare with != 0"
        )
        raise KernelTypeError(msg)
    dtype = chosen_dtype((x, y), "tl.where")
    shape = common_shape((condition, x, y))
    values = [
        convert.broadcast(scope, convert.as_number(scope, operand, element, "tl.where"), shape)
        for operand, element in ((condition, int1), (x, dtype), (y, dtype))
    ]
    return scope.builder.value("select", values, values[1].type)


def extremum(scope: Scope, name: str, x: Operand, y: Operand, what: str) -> Operand:
    """Build `max` or `min` of two operands; of two numbers it is a number."""
    if is_number(x) and is_number(y):
        return _extremum_of_numbers(name, x, y)
    dtype = common_dtype((x, y), what)
    if dtype == int1:
        return operators.elementwise(scope, "or" if name == "max" else "and", (x, y), dtype, what)
    return operators.elementwise(scope, name, (x, y), dtype, what)


def _extremum_of_numbers(name: str, x: Operand, y: Operand) -> Constant:
    left, right = _number(x), _number(y)
    for number in (left, right):
        if math.isnan(number):
            return Constant(number)
    return Constant(
        (left if left >= right else right) if name == "max" else (left if left <= right else right)
    )


def _number(operand: Operand) -> Number:
    assert isinstance(operand, Constant)
    assert isinstance(operand.value, bool | int | float)
    return operand.value
