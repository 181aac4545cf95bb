"""Subscripts: `x[:, None]` inserts axes into a tile, `shape[0]` takes an element of a tuple."""

from __future__ import annotations

from tilewright.errors import KernelSyntaxError, KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.operands import (
    NONE,
    Constant,
    KernelReference,
    Operand,
    SliceAll,
    TupleOperand,
    describe,
)
from tilewright_compiler.frontend.operators import is_pointer
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import shape_of


def subscript(scope: Scope, operand: Operand, index: Operand) -> Operand:
    """Build `operand[index]`."""
    match operand:
        case TupleOperand():
            return _element(operand, index)
        case Value() if shape_of(operand.type):
            return _insert_axes(scope, operand, index)
        case Value() if is_pointer(operand):
            msg = "a pointer has no subscript; read with tl.load(pointer + offsets)"
        case KernelReference(kernel=kernel):
            msg = f"a kernel cannot launch another; call `{kernel.name}(...)` as a function"
        case _:
            msg = f"{describe(operand)} has no subscript; tiles and tuples have"
    raise KernelTypeError(msg)


def _element(operand: TupleOperand, index: Operand) -> Operand:
    if not isinstance(index, Constant) or type(index.value) is not int:
        msg = f"the index of a tuple is an integer known at compile time, got {describe(index)}"
        raise KernelTypeError(msg)
    count = len(operand.items)
    if not -count <= index.value < count:
        msg = f"index {index.value} is outside a tuple of {count} elements"
        raise KernelValueError(msg)
    return operand.items[index.value]


def _insert_axes(scope: Scope, value: Value, index: Operand) -> Value:
    items = index.items if isinstance(index, TupleOperand) else (index,)
    rank = len(shape_of(value.type))
    for item in items:
        if not isinstance(item, SliceAll) and item != NONE:
            msg = (
                f"a tile's subscript has only `:` and None, got {describe(item)}; single elements "
                "are not "
                "addressed: load them from memory, or select them with tl.where and reduce"
            )
            raise KernelSyntaxError(msg)
    if sum(isinstance(item, SliceAll) for item in items) > rank:
        msg = f"too many `:` for {describe(value)}, which has rank {rank}"
        raise KernelTypeError(msg)
    for axis, item in enumerate(items):
        if item == NONE:
            value = convert.expand_dims(scope, value, axis)
    return value
