"""Elementwise mathematics; functions of floats take integers as f32, others promote."""

from __future__ import annotations

import math
from collections.abc import Callable

import tilewright.language as tl
from tilewright.abi.dtypes import float32, int1, uint32, uint64
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import arguments, reduce, types
from tilewright_compiler.frontend.builtins.registry import Stub, implements
from tilewright_compiler.frontend.infer_types import (
    chosen_dtype,
    common_dtype,
    common_shape,
)
from tilewright_compiler.frontend.operands import (
    NONE,
    Constant,
    Number,
    Operand,
    TupleOperand,
    describe,
    is_number,
)
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import element_dtype, shape_of


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
expm1 = _implement_unary(tl.expm1)
log2 = _implement_unary(tl.log2)
log1p = _implement_unary(tl.log1p)
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


@implements(tl.sqrt_rn)
def sqrt_rn(scope: Scope, x: Operand) -> Operand:
    """Build the square root, which is exact anyway."""
    return sqrt(scope, x)


@implements(
    tl.softmax, refused={"keep_dims": "the result has the shape of `x` in any case, leave it out"}
)
def softmax(scope: Scope, x: Operand, dim: Operand, ieee_rounding: Operand) -> Operand:
    """Build the softmax along an axis of a tile; 16-bit floats in f32."""
    value = arguments.tile(x, "`x` of tl.softmax")
    axis = arguments.axis(dim, len(shape_of(value.type)), "`dim` of tl.softmax")
    is_exact = arguments.flag(ieee_rounding, "`ieee_rounding` of tl.softmax")
    dtype = common_dtype((value,), "tl.softmax")
    wide = dtype if dtype.is_float and dtype.bits > 16 else float32
    number = convert.as_number(scope, value, wide, "tl.softmax")
    keep = Constant(True)
    no = Constant(False)
    largest = reduce.max(scope, number, Constant(axis), no, no, keep)
    powers = exp(scope, operators.binary(scope, "-", number, largest))
    total = reduce.sum(scope, powers, Constant(axis), keep, NONE)
    quotient = operators.binary(scope, "/", powers, total)
    if not is_exact:
        quotient = fdiv(scope, powers, total)
    assert isinstance(quotient, Value)
    return convert.cast(scope, quotient, dtype if dtype.is_float else float32)


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


@implements(tl.div_rn)
def div_rn(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build the correctly rounded float quotient."""
    common_dtype((x, y), "tl.div_rn")
    return operators.binary(scope, "/", x, y)


@implements(tl.umulhi)
def umulhi(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build the upper half of an unsigned product."""
    dtype = common_dtype((x, y), "tl.umulhi")
    if not dtype.is_integer or dtype.bits < 32:
        msg = (
            f"tl.umulhi multiplies 32- or 64-bit integers, got {describe(x)} and {describe(y)}; "
            "cast with .to(tl.uint32)"
        )
        raise KernelTypeError(msg)
    unsigned = uint64 if dtype.bits == 64 else uint32
    # Between integers of one width a cast keeps the bits.
    result = operators.elementwise(scope, "mulhi", (x, y), unsigned, "tl.umulhi")
    return convert.cast(scope, result, dtype)


@implements(tl.maximum)
def maximum(scope: Scope, x: Operand, y: Operand, propagate_nan: Operand) -> Operand:
    """Build the larger of two; a NaN of either is the result or passed over."""
    return _extremum(scope, "max", x, y, propagate_nan, "tl.maximum")


@implements(tl.minimum)
def minimum(scope: Scope, x: Operand, y: Operand, propagate_nan: Operand) -> Operand:
    """Build the smaller of two; a NaN of either is the result or passed over."""
    return _extremum(scope, "min", x, y, propagate_nan, "tl.minimum")


@implements(tl.clamp)
def clamp(scope: Scope, x: Operand, min: Operand, max: Operand, propagate_nan: Operand) -> Operand:
    """Build `minimum(maximum(x, min), max)`."""
    raised = _extremum(scope, "max", x, min, propagate_nan, "tl.clamp")
    return _extremum(scope, "min", raised, max, propagate_nan, "tl.clamp")


@implements(tl.cast)
def cast(
    scope: Scope, x: Operand, dtype: Operand, bitcast: Operand, fp_downcast_rounding: Operand
) -> Operand:
    """Build `x.to(...)`."""
    return types.cast(scope, x, dtype, bitcast, fp_downcast_rounding, "tl.cast")


@implements(tl.swizzle2d)
def swizzle2d(
    scope: Scope, i: Operand, j: Operand, size_i: Operand, size_j: Operand, size_g: Operand
) -> Operand:
    """Build the place of a program when rows are walked in groups."""

    def of(symbol: str, left: Operand, right: Operand) -> Operand:
        return operators.binary(scope, symbol, left, right)

    for operand in (i, j, size_i, size_j, size_g):
        dtype = common_dtype((operand,), "tl.swizzle2d")
        if not dtype.is_integer:
            msg = f"tl.swizzle2d takes integers, got {describe(operand)}"
            raise KernelTypeError(msg)
    place = of("+", of("*", i, size_j), j)
    group = of("*", size_g, size_j)
    first = of("*", of("//", place, group), size_g)
    rows = extremum(scope, "min", of("-", size_i, first), size_g, "tl.swizzle2d")
    within = of("%", place, group)
    return TupleOperand((of("+", first, of("%", within, rows)), of("//", within, rows)))


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


def _extremum(
    scope: Scope, name: str, x: Operand, y: Operand, propagate_nan: Operand, what: str
) -> Operand:
    if arguments.flag(propagate_nan, f"`propagate_nan` of {what}"):
        return extremum(scope, name, x, y, what)
    dtype = common_dtype((x, y), what)
    if not dtype.is_float:
        return extremum(scope, name, x, y, what)
    return operators.elementwise(scope, f"{name}num", (x, y), dtype, what)


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
