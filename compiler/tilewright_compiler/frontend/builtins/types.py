"""Attributes and methods of tiles, scalars and pointers: `dtype`, `shape`, `T` and `to`."""

from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.errors import KernelTypeError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.shape import swapped
from tilewright_compiler.frontend.infer_types import dtype_name
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
    names = ("dtype", "bitcast")
    given = dict(zip(names, positional, strict=False)) | keywords
    if len(given) < len(positional) + len(keywords) or not {"dtype"} <= set(given) <= set(names):
        msg = "x.to(dtype, bitcast=False) takes one dtype"
        raise KernelTypeError(msg)
    dtype = arguments.dtype(given["dtype"], "the argument of x.to")
    if is_pointer(receiver):
        msg = f"{describe(receiver)} cannot be cast; cast what is loaded from it"
        raise KernelTypeError(msg)
    if arguments.flag(given.get("bitcast", Constant(False)), "`bitcast` of x.to"):
        return _bitcast(scope, receiver, dtype)
    return convert.as_number(scope, receiver, dtype, "x.to")


def _bitcast(scope: Scope, operand: Operand, dtype: DType) -> Value:
    """Build the value of another dtype that has the same bits."""
    value = convert.as_value(scope, operand, "x.to")
    source = element_dtype(value.type)
    if source == dtype:
        return value
    if source.bits != dtype.bits:
        msg = (
            f"x.to({dtype_name(dtype)}, bitcast=True) keeps the bits of {describe(value)}: it has "
            f"{source.bits} of them, {dtype} has {dtype.bits}"
        )
        raise KernelTypeError(msg)
    return scope.builder.value("bitcast", (value,), like(value.type, ScalarType(dtype)))
