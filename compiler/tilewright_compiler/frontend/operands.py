"""What an expression of a kernel stands for while it is lowered.

A run-time quantity is an `ir.Value`; everything else is known now and never reaches the IR: a
`Constant` (a number stays a Python number, and takes a dtype only when it meets a run-time value),
a tuple of operands, or something to call. One closed union, so that every consumer states what it
takes and `describe` can name the rest in a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tilewright.abi.dtypes import DType
from tilewright.abi.signature import ConstexprValue
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import PointerType, TileType, Type

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known at compile time."""

    value: ConstexprValue


@dataclass(frozen=True, slots=True)
class TupleOperand:
    """A Python tuple of operands; also what a shape or a list display becomes."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class BlockPointer:
    """A window over an array: base, then shape, strides and offsets, one of each an axis.

    The items are run-time values; `block` is the window's shape.
    """

    items: tuple[Operand, ...]
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorDescriptor:
    """An array seen by blocks: base, sizes, and strides but the last, which is 1.

    The items are run-time values; `block` is the blocks' shape. `made` is the descriptor in the IR
    where it is known; one that control flow joins, or that a kernel is given, is made at its use.
    """

    items: tuple[Operand, ...]
    block: tuple[int, ...]
    made: Value | None = None


@dataclass(frozen=True, slots=True)
class KernelReference:
    """A kernel named inside a kernel: called, it becomes a function of the module."""

    kernel: Kernel


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """A function of the tile language, or a Python builtin that the language gives a meaning."""

    function: Callable[..., Any]
    name: str


@dataclass(frozen=True, slots=True)
class MethodReference:
    """A method of a tile, scalar or number, such as `x.to`, not yet called."""

    name: str
    receiver: Operand


@dataclass(frozen=True, slots=True)
class Namespace:
    """A module of the tile language, such as `tl`."""

    module: ModuleType


@dataclass(frozen=True, slots=True)
class SliceAll:
    """The `:` of a subscript."""


Operand = (
    Value
    | Constant
    | TupleOperand
    | BlockPointer
    | TensorDescriptor
    | KernelReference
    | FunctionReference
    | MethodReference
    | Namespace
    | SliceAll
)

NONE = Constant(None)

_NESTED = TupleOperand | BlockPointer | TensorDescriptor


def is_number(operand: Operand) -> bool:
    """Return whether this is a compile-time number (or bool)."""
    return isinstance(operand, Constant) and isinstance(operand.value, bool | int | float)


def is_same(left: Operand, right: Operand) -> bool:
    """Return whether two operands are the same SSA value or equal constants of one type."""
    match left, right:
        case Constant(value=a), Constant(value=b):
            # repr tells 0.0 from -0.0 and makes one NaN equal to itself.
            return type(a) is type(b) and repr(a) == repr(b)
        case TupleOperand(items=a), TupleOperand(items=b):
            return len(a) == len(b) and all(is_same(x, y) for x, y in zip(a, b, strict=True))
        case BlockPointer(items=a, block=x), BlockPointer(items=b, block=y):
            return x == y and all(is_same(left, right) for left, right in zip(a, b, strict=True))
        case TensorDescriptor(made=a), TensorDescriptor(made=b):
            return left is right or (a is not None and a is b)
        case KernelReference(kernel=a), KernelReference(kernel=b):
            return a is b
        case FunctionReference(function=a), FunctionReference(function=b):
            return a is b
        case MethodReference(name=a, receiver=x), MethodReference(name=b, receiver=y):
            return a == b and is_same(x, y)
        case Namespace(module=a), Namespace(module=b):
            return a is b
        case _:
            return left is right


def flatten(operand: Operand) -> Iterator[Operand]:
    """Yield the leaves of nested tuples, block pointers and descriptors from left to right."""
    if isinstance(operand, _NESTED):
        for item in operand.items:
            yield from flatten(item)
    else:
        yield operand


def rebuild(template: Operand, leaves: Iterator[Operand]) -> Operand:
    """Return `template` with its leaves replaced in order: the inverse of `flatten`."""
    if isinstance(template, TupleOperand):
        return TupleOperand(tuple(rebuild(item, leaves) for item in template.items))
    if isinstance(template, BlockPointer):
        items = tuple(rebuild(item, leaves) for item in template.items)
        return BlockPointer(items, template.block)
    if isinstance(template, TensorDescriptor):
        items = tuple(rebuild(item, leaves) for item in template.items)
        return TensorDescriptor(items, template.block)
    return next(leaves)


def have_same_structure(left: Operand, right: Operand) -> bool:
    """Return whether both are nested tuples of one form, so that `flatten` pairs their leaves."""
    if isinstance(left, TupleOperand) and isinstance(right, TupleOperand):
        return len(left.items) == len(right.items) and all(
            have_same_structure(a, b) for a, b in zip(left.items, right.items, strict=True)
        )
    if isinstance(left, BlockPointer) and isinstance(right, BlockPointer):
        return left.block == right.block
    if isinstance(left, TensorDescriptor) and isinstance(right, TensorDescriptor):
        return left.block == right.block
    return not isinstance(left, _NESTED) and not isinstance(right, _NESTED)


def describe_type(type_: Type) -> str:
    """Return a type in the words of the language, such as `f32 tile [64, 32]`."""
    if isinstance(type_, TileType):
        shape = ", ".join(map(str, type_.shape))
        if isinstance(type_.element, PointerType):
            return f"tile [{shape}] of pointers to {type_.element.dtype}"
        return f"{type_.element} tile [{shape}]"
    if isinstance(type_, PointerType):
        return f"pointer to {type_.dtype}"
    return f"{type_} scalar"


def describe_given(operand: Operand) -> str:
    """Return what was given where a value is wanted, where a None may come from, what to call."""
    hint = ""
    if operand == NONE:
        hint = " (a constexpr that is None, or a call of a kernel without `return`)"
    elif isinstance(operand, BlockPointer):
        hint = " (tl.advance moves it, tl.load and tl.store take it)"
    return describe(operand) + hint


def describe(operand: Operand) -> str:
    """Return what an operand is, in the words of the language, for messages."""
    match operand:
        case Value(type=type_):
            return describe_type(type_)
        case Constant(value=value):
            if value is None:
                return "None"
            if isinstance(value, DType):
                return f"dtype {value}"
            return f"constexpr {value!r}"
        case TupleOperand(items=items):
            return f"tuple ({', '.join(map(describe, items))})"
        case BlockPointer(items=[Value(type=PointerType(dtype=dtype)), *_], block=block):
            return f"block pointer [{', '.join(map(str, block))}] to {dtype}"
        case BlockPointer(block=block):
            return f"block pointer [{', '.join(map(str, block))}]"
        case TensorDescriptor(items=[Value(type=PointerType(dtype=dtype)), *_], block=block):
            return f"tensor descriptor [{', '.join(map(str, block))}] of {dtype}"
        case TensorDescriptor(block=block):
            return f"tensor descriptor [{', '.join(map(str, block))}]"
        case KernelReference(kernel=kernel):
            return f"kernel `{kernel.name}`"
        case FunctionReference(name=name):
            return f"function `{name}`"
        case MethodReference(name=name):
            return f"method `.{name}`"
        case Namespace(module=module):
            return f"module `{module.__name__}`"
        case SliceAll():
            return "slice `:`"
