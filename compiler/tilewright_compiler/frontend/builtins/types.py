"""Attributes and methods of tiles, scalars and pointers: `dtype`, `shape`, `T` and `to`."""

from __future__ import annotations

from tilewright.abi.dtypes import int64
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.shape import swapped
from tilewright_compiler.frontend.operands import (
    Constant,
    MethodReference,
    Operand,
    TupleOperand,
    describe,
)
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, like, shape_of

ATTRIBUTES = ("dtype", "shape", "T", "to")


def attribute(scope: Scope, value: Value, name: str) -> Operand:
    """Build `value.name`; the dtype of a pointer is that of what it points to."""
    match name:
        case "dtype":
            return Constant(element_dtype(value.type))
        case "shape":
            return TupleOperand(tuple(Constant(extent) for extent in shape_of(value.type)))
        case "T":
            return swapped(scope, value, "`.T`")
        case "to":
            return MethodReference(name, value)
    msg = f"{describe(value)} has no attribute `{name}`; it has {', '.join(ATTRIBUTES)}"
    raise KernelTypeError(msg)


def call_method(
    scope: Scope,
    name: str,
    receiver: Operand,
    positional: tuple[Operand, ...],
    keywords: dict[str, Operand],
) -> Operand:
    """Build `receiver.name(...)`; `to` is the only method."""
    assert name == "to", "names.attribute makes no other method"
    given = (*positional, *keywords.values())
    if len(given) != 1 or not set(keywords) <= {"dtype"}:
        msg = "x.to(dtype) takes one dtype"
        raise KernelTypeError(msg)
    dtype = arguments.dtype(given[0], "the argument of x.to")
    if is_pointer(receiver):
        if dtype != int64:
            msg = (
                f"{describe(receiver)} cannot be cast to {dtype}: its address is an int64; cast "
                "what is loaded from it"
            )
            raise KernelTypeError(msg)
        address = convert.as_value(scope, receiver)
        return scope.builder.value("address", (address,), like(address.type, ScalarType(int64)))
    return convert.as_number(scope, receiver, dtype, "x.to")
