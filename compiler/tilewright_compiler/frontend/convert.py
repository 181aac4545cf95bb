"""Building conversions: constants become values, values change dtype and shape.

The only place where the frontend creates `constant`, `cast`, `splat`, `expand_dims` and `broadcast`
on its own account; an identity conversion builds nothing.
"""

from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend.constants import convert, weak_dtype
from tilewright_compiler.frontend.infer_types import check_broadcastable, tile_of
from tilewright_compiler.frontend.operands import (
    Constant,
    Number,
    Operand,
    describe,
    describe_given,
)
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    TileType,
    Type,
    element_dtype,
    element_type,
    like,
    shape_of,
)


def constant(scope: Scope, number: Number, dtype: DType) -> Value:
    """Build a scalar of that dtype."""
    return scope.builder.value("constant", (), ScalarType(dtype), value=convert(number, dtype))


def filled(scope: Scope, number: Number, type_: Type) -> Value:
    """Build a scalar or tile of that type whose every element is `number`."""
    return broadcast(scope, constant(scope, number, element_dtype(type_)), shape_of(type_))


def as_value(scope: Scope, operand: Operand, what: str = "this operation") -> Value:
    """Return a run-time value: a number is built in the dtype it takes alone."""
    if isinstance(operand, Value):
        return operand
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        return constant(scope, operand.value, weak_dtype(operand.value))
    msg = f"{what} takes a number, a scalar or a tile, got {describe_given(operand)}"
    raise KernelTypeError(msg)


def as_number(scope: Scope, operand: Operand, dtype: DType, what: str) -> Value:
    """Return a run-time value of that dtype (not a pointer), rounding a constant once."""
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        return constant(scope, operand.value, dtype)
    value = as_value(scope, operand, what)
    if isinstance(element_type(value.type), PointerType):
        msg = f"{what} takes numbers and tiles of numbers, got {describe(value)}"
        raise KernelTypeError(msg)
    return cast(scope, value, dtype)


def cast(scope: Scope, value: Value, dtype: DType) -> Value:
    """Cast a number or tile of numbers to a dtype."""
    if element_dtype(value.type) == dtype:
        return value
    return scope.builder.value("cast", (value,), like(value.type, ScalarType(dtype)))


def broadcast(scope: Scope, value: Value, shape: tuple[int, ...], what: str = "a value") -> Value:
    """Repeat a value to exactly that shape, axes aligned at the last as in NumPy."""
    source = shape_of(value.type)
    if source == shape:
        return value
    check_broadcastable(source, shape, what)
    target = tile_of(shape, element_type(value.type))
    if not source:
        return scope.builder.value("splat", (value,), target)
    while len(source) < len(shape):
        value = expand_dims(scope, value, 0)
        source = shape_of(value.type)
    return value if source == shape else scope.builder.value("broadcast", (value,), target)


def expand_dims(scope: Scope, value: Value, axis: int) -> Value:
    """Insert an extent 1 at `axis` of a tile."""
    shape = shape_of(value.type)
    target = TileType((*shape[:axis], 1, *shape[axis:]), element_type(value.type))
    return scope.builder.value("expand_dims", (value,), target, axis=axis)


def as_type(scope: Scope, operand: Operand, type_: Type) -> Value:
    """Return an operand as a value of a type that `infer_types.join_leaves` gave for it."""
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        return filled(scope, operand.value, type_)
    value = as_value(scope, operand)
    assert value.type == type_, "run-time values are joined only with their own type"
    return value
