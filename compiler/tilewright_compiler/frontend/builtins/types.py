"""Attributes and methods of tiles, scalars and pointers: `dtype`, `shape`, `T`, `to` and functions.

Every function of the language whose first operand is called `x` is a method too: `x.sum(0)`.
"""

from __future__ import annotations

from inspect import signature
from math import prod

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int64
from tilewright.errors import KernelTypeError
from tilewright.language.registry import FUNCTIONS
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments, registry
from tilewright_compiler.frontend.builtins.shape import swapped
from tilewright_compiler.frontend.infer_types import dtype_name, dtype_of_number, shape_of_operand
from tilewright_compiler.frontend.operands import (
    NONE,
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

ATTRIBUTES = ("dtype", "shape", "numel", "T", "to", "item")
_TO = ("dtype", "bitcast", "fp_downcast_rounding")


def attribute(scope: Scope, value: Value, name: str) -> Operand:
    """Build `value.name`; the dtype of a pointer is that of what it points to."""
    match name:
        case "dtype" | "type":
            return Constant(element_dtype(value.type))
        case "shape":
            return TupleOperand(tuple(Constant(extent) for extent in shape_of(value.type)))
        case "numel":
            return Constant(prod(shape_of(value.type)))
        case "T":
            return swapped(scope, value, "`.T`")
        case "to" | "item":
            return MethodReference(name, value)
        case _ if is_method(name):
            return MethodReference(name, value)
    msg = (
        f"{describe(value)} has no attribute `{name}`; it has "
        f"{', '.join(ATTRIBUTES)}, and as methods the functions of tl whose first operand is `x`"
    )
    raise KernelTypeError(msg)


def is_method(name: str) -> bool:
    """Return whether `x.name(...)` is `tl.name(x, ...)`: the function's first operand is `x`."""
    function = FUNCTIONS.get(name)
    return function is not None and next(iter(signature(function).parameters), "") == "x"


def call_method(
    scope: Scope,
    name: str,
    receiver: Operand,
    positional: tuple[Operand, ...],
    keywords: dict[str, Operand],
) -> Operand:
    """Build `receiver.name(...)`: a cast, or the function of that name with `receiver` first."""
    if name == "item":
        return _item(scope, receiver, positional, keywords)
    if name != "to":
        return registry.call(scope, FUNCTIONS[name], f"x.{name}", (receiver, *positional), keywords)
    given = dict(zip(_TO, positional, strict=False)) | keywords
    if len(given) < len(positional) + len(keywords) or not {"dtype"} <= set(given) <= set(_TO):
        msg = "x.to(dtype, bitcast=False, fp_downcast_rounding=None) takes one dtype"
        raise KernelTypeError(msg)
    bitcast = given.get("bitcast", Constant(False))
    return cast(
        scope, receiver, given["dtype"], bitcast, given.get("fp_downcast_rounding", NONE), "x.to"
    )


def cast(
    scope: Scope, x: Operand, dtype: Operand, bitcast: Operand, rounding: Operand, what: str
) -> Operand:
    """Build the values of `x` as another dtype, or its bits."""
    target = arguments.dtype(dtype, f"the dtype of {what}")
    if is_pointer(x):
        if target != int64:
            msg = (
                f"{describe(x)} cannot be cast to {dtype_name(target)}: its address is an int64; "
                "cast what is loaded from it"
            )
            raise KernelTypeError(msg)
        address = convert.as_value(scope, x, what)
        return scope.builder.value("address", (address,), like(address.type, ScalarType(int64)))
    truncates = rounding != NONE and (
        arguments.choice(rounding, f"`fp_downcast_rounding` of {what}", ("rtne", "rtz")) == "rtz"
    )
    if arguments.flag(bitcast, f"`bitcast` of {what}"):
        return _bitcast(scope, x, target)
    if rounding != NONE:
        source = dtype_of_number(x, what)
        if not (source.is_float and target.is_float and source.bits > target.bits):
            msg = (
                f"`fp_downcast_rounding` of {what} is for floats that become narrower, got "
                f"{describe(x)} to {dtype_name(target)}"
            )
            raise KernelTypeError(msg)
    if not truncates:
        return convert.as_number(scope, x, target, what)
    if not target.has_arithmetic:
        msg = f"{what} rounds to {dtype_name(target)} to nearest even only"
        raise KernelTypeError(msg)
    value = convert.as_value(scope, x, what)
    return scope.builder.value("truncate", (value,), like(value.type, ScalarType(target)))


def _item(
    scope: Scope,
    receiver: Operand,
    positional: tuple[Operand, ...],
    keywords: dict[str, Operand],
) -> Operand:
    """Build the scalar that a tile of one element holds."""
    if positional or keywords:
        msg = "x.item() takes no arguments"
        raise KernelTypeError(msg)
    count = prod(shape_of_operand(receiver))
    if count != 1:
        msg = f"x.item() takes a tile of one element, {describe(receiver)} has {count}"
        raise KernelTypeError(msg)
    if not shape_of_operand(receiver):
        return receiver
    return registry.call(scope, tl.max, "x.item", (receiver,), {})


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
