"""Types of results, without building anything: promotion, broadcasting, limits, and joins of two
branches.

Everything here is a function of types and compile-time numbers, so that the rules can be read (and
tested) in one place. Errors carry no location; the expression that asked adds its own.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from tilewright.abi.dtypes import DType, float32, int1, int32, promote, uint32
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend.constants import dtype_with, weak_dtype
from tilewright_compiler.frontend.operands import (
    BlockPointer,
    Constant,
    Number,
    Operand,
    TensorDescriptor,
    TupleOperand,
    describe_given,
    describe_type,
    flatten,
    have_same_structure,
    is_number,
    is_same,
)
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import (
    ElementType,
    PointerType,
    ScalarType,
    TileType,
    Type,
    element_dtype,
    element_type,
    shape_of,
)

MAX_TILE_ELEMENTS = 1 << 20
_BLOCKED = BlockPointer | TensorDescriptor
_KINDS: dict[type[object], str] = {
    TupleOperand: "tuple",
    BlockPointer: "block pointer",
    TensorDescriptor: "tensor descriptor",
}
_DTYPE_NAMES = {"bf16": "tl.bfloat16", "f8e4m3": "tl.float8e4nv", "f8e5m2": "tl.float8e5"}


def tile_of(shape: tuple[int, ...], element: ElementType) -> Type:
    """Return the tile type of a shape, or the element for the empty shape; checks the size."""
    if not shape:
        return element
    if prod(shape) > MAX_TILE_ELEMENTS:
        msg = (
            f"a tile of shape {list(shape)} has {prod(shape)} elements; "
            f"at most {MAX_TILE_ELEMENTS} are allowed, use a smaller block or a loop"
        )
        raise KernelValueError(msg)
    return TileType(shape, element)


def check_extents(shape: tuple[int, ...]) -> None:
    """Refuse extents that are not powers of two."""
    for extent in shape:
        if extent < 1 or extent & (extent - 1):
            msg = (
                f"tile extents are powers of two, got {extent} in shape {list(shape)}; "
                "round up and mask the lanes beyond the end"
            )
            raise KernelValueError(msg)


def broadcast_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common shape as NumPy does: aligned at the last axis, extents 1 repeated."""
    rank = max(len(left), len(right))
    extended_left = (1,) * (rank - len(left)) + left
    extended_right = (1,) * (rank - len(right)) + right
    result = []
    for a, b in zip(extended_left, extended_right, strict=True):
        if a != b and 1 not in (a, b):
            msg = (
                f"shapes {list(left)} and {list(right)} do not broadcast: extents {a} and {b} "
                "differ and "
                "neither is 1; line the axes up with x[:, None] or x[None, :]"
            )
            raise KernelTypeError(msg)
        result.append(max(a, b))
    return tuple(result)


def check_broadcastable(source: tuple[int, ...], target: tuple[int, ...], what: str) -> None:
    """Refuse a shape that does not broadcast to exactly `target`."""
    aligned = target[len(target) - len(source) :] if len(source) <= len(target) else ()
    if len(source) > len(target) or any(
        s not in (1, t) for s, t in zip(source, aligned, strict=True)
    ):
        wanted = f"shape {list(target)}" if target else "a scalar"
        msg = f"{what} has shape {list(source)}, which does not broadcast to {wanted}"
        raise KernelTypeError(msg)


def shape_of_operand(operand: Operand) -> tuple[int, ...]:
    """Return a run-time value's shape; numbers and scalars have the empty shape."""
    return shape_of(operand.type) if isinstance(operand, Value) else ()


def dtype_of_number(operand: Operand, action: str) -> DType:
    """Return the dtype of a run-time number (not a pointer) or the one a constant takes alone."""
    if isinstance(operand, Value) and not isinstance(element_type(operand.type), PointerType):
        return element_dtype(operand.type)
    if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
        return weak_dtype(operand.value)
    msg = f"{action} takes numbers and tiles of numbers, got {describe_given(operand)}"
    raise KernelTypeError(msg)


def common_dtype(operands: tuple[Operand, ...], action: str) -> DType:
    """Return the dtype in which an operation on all operands is computed.

    Run-time values promote by `abi.dtypes.promote`; compile-time numbers then take that dtype if
    they can.
    """
    result: DType | None = None
    for operand in operands:
        if not is_number(operand):
            dtype = dtype_of_number(operand, action)
            check_arithmetic(dtype, action)
            result = dtype if result is None else promote(result, dtype)
    if result is None:
        return reduce(promote, (dtype_of_number(operand, action) for operand in operands))
    for operand in operands:
        if isinstance(operand, Constant) and isinstance(operand.value, bool | int | float):
            result = dtype_with(operand.value, result)
    return result


def check_arithmetic(dtype: DType, action: str) -> None:
    """Refuse a dtype in which nothing is computed."""
    if not dtype.has_arithmetic:
        msg = (
            f"{action} does not compute in {dtype}: 8-bit floats are loaded, stored, cast, chosen "
            "by tl.where and multiplied by tl.dot; cast with .to(tl.float16) first, which is exact"
        )
        raise KernelTypeError(msg)


def chosen_dtype(operands: tuple[Operand, ...], action: str) -> DType:
    """Return the dtype of a choice between operands: the common one, or theirs if it is one."""
    dtypes = {dtype_of_number(operand, action) for operand in operands if not is_number(operand)}
    if len(dtypes) == 1 and not next(iter(dtypes)).has_arithmetic:
        return next(iter(dtypes))
    return common_dtype(operands, action)


def common_shape(operands: tuple[Operand, ...]) -> tuple[int, ...]:
    """Return the shape to which all operands broadcast."""
    shape: tuple[int, ...] = ()
    for operand in operands:
        shape = broadcast_shapes(shape, shape_of_operand(operand))
    return shape


def arithmetic_dtype(symbol: str, dtype: DType) -> DType:
    """Return the dtype in which `symbol` is computed on operands that promote to `dtype`."""
    if symbol == "/" and dtype.is_integer:
        return float32
    if symbol in ("&", "|", "^"):
        if dtype.is_float:
            msg = f"`{symbol}` takes integers or bools, got {dtype}; cast with .to(...) first"
            raise KernelTypeError(msg)
        return dtype
    if symbol in ("<<", ">>") and dtype.is_float:
        msg = f"`{symbol}` takes integers, got {dtype}; cast with .to(...) first"
        raise KernelTypeError(msg)
    if symbol == "//" and dtype.is_float:
        msg = f"`//` takes integers, got {dtype}; use tl.floor(x / y)"
        raise KernelTypeError(msg)
    # Bools have no arithmetic of their own: they count as 0 and 1.
    return int32 if dtype == int1 else dtype


def sum_dtypes(dtype: DType) -> tuple[DType, DType]:
    """Return the dtype in which a sum accumulates and the dtype of its result."""
    if dtype.is_float:
        return (float32 if dtype.bits == 16 else dtype), dtype
    if dtype.bits < 32:
        accumulator = uint32 if dtype.kind == "uint" else int32
        return accumulator, accumulator
    return dtype, dtype


def join_leaves(left: Operand, right: Operand) -> Type | None:
    """Return the one type that two values of a variable can both take, or None.

    Run-time types must be equal; a number takes the type of the run-time value if its kind allows
    it; two numbers meet in the dtype of the wider kind.
    """
    if isinstance(left, Value) and isinstance(right, Value):
        return left.type if left.type == right.type else None
    if isinstance(left, Value):
        left, right = right, left
    if not isinstance(left, Constant) or not isinstance(left.value, bool | int | float):
        return None
    if isinstance(right, Value):
        return right.type if takes_dtype(left.value, right.type) else None
    if not isinstance(right, Constant) or not isinstance(right.value, bool | int | float):
        return None
    return ScalarType(promote(weak_dtype(left.value), weak_dtype(right.value)))


def takes_dtype(number: Number, type_: Type) -> bool:
    """Return whether a number may become a value of that type without changing its kind."""
    if isinstance(element_type(type_), PointerType):
        return False
    dtype = element_dtype(type_)
    if isinstance(number, bool):
        return dtype == int1
    return dtype != int1 and dtype_with(number, dtype) == dtype


def describe_mismatch(left: Operand, right: Operand) -> str:
    """Return what to do about two operands that no type joins."""
    kinds = [_KINDS.get(type(operand), "") for operand in (left, right)]
    if kinds[0] != kinds[1]:
        kind = kinds[0] or kinds[1]
        return f"make it a {kind} in both places, or give the other one another name"
    if isinstance(left, TupleOperand) and isinstance(right, TupleOperand):
        if len(left.items) != len(right.items):
            return "give the tuples one length"
        pairs = zip(left.items, right.items, strict=True)
        return describe_mismatch(*next(pair for pair in pairs if not _is_joined(*pair)))
    if isinstance(left, _BLOCKED) and isinstance(right, _BLOCKED):
        return (
            f"give both {kinds[0]}s one block shape, or use each where it is made and go on with "
            "what is loaded"
        )
    if isinstance(left, Value) and isinstance(right, Value):
        if shape_of(left.type) != shape_of(right.type):
            return "give both one shape, for example with tl.zeros, tl.full or tl.broadcast_to"
        if any(isinstance(element_type(value.type), PointerType) for value in (left, right)):
            return "pointers are not cast: use each where it is made, and cast what is loaded"
        return f"cast one, for example with .to({dtype_name(element_dtype(left.type))})"
    if is_number(left) and isinstance(right, Value):
        return f"start from a value of type {describe_type(right.type)}"
    return (
        "only numbers, tiles, pointers and tuples of these change at run time; use each where it "
        "is chosen, or choose by a tl.constexpr"
    )


def _is_joined(left: Operand, right: Operand) -> bool:
    """Return whether two operands are one, or have one form and a type for each leaf."""
    return have_same_structure(left, right) and all(
        is_same(a, b) or join_leaves(a, b) is not None
        for a, b in zip(flatten(left), flatten(right), strict=True)
    )


def dtype_name(dtype: DType) -> str:
    """Return what a dtype is called in a kernel, such as `tl.float32`."""
    if dtype.name in _DTYPE_NAMES:
        return _DTYPE_NAMES[dtype.name]
    word = "int" if dtype.kind == "bool" else dtype.kind
    return f"tl.{word}{dtype.bits}"
