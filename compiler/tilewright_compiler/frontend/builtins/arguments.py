"""Reading the compile-time arguments of a builtin, with one wording for what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.abi.dtypes import ALL, DType
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend.infer_types import check_extents, dtype_name
from tilewright_compiler.frontend.operands import Constant, Operand, TupleOperand, describe
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import TileType


def integer(operand: Operand, what: str) -> int:
    """Return a compile-time integer."""
    if isinstance(operand, Constant) and type(operand.value) is int:
        return operand.value
    msg = f"{what} is an integer known at compile time, got {describe(operand)}"
    if isinstance(operand, Value):
        msg += "; a parameter is known if it is annotated, `BLOCK: tl.constexpr`"
    raise KernelTypeError(msg)


def flag(operand: Operand, what: str) -> bool:
    """Return a compile-time bool."""
    if isinstance(operand, Constant) and isinstance(operand.value, bool):
        return operand.value
    msg = f"{what} is True or False, known at compile time, got {describe(operand)}"
    raise KernelTypeError(msg)


def choice(operand: Operand, what: str, allowed: Sequence[str]) -> str:
    """Return a compile-time string that is one of `allowed`."""
    if (
        isinstance(operand, Constant)
        and isinstance(operand.value, str)
        and operand.value in allowed
    ):
        return operand.value
    msg = f"{what} is one of {', '.join(map(repr, allowed))}, got {describe(operand)}"
    raise KernelValueError(msg)


def text(operand: Operand, what: str) -> str:
    """Return a compile-time string."""
    if isinstance(operand, Constant) and isinstance(operand.value, str):
        return operand.value
    msg = f"{what} is a string, got {describe(operand)}"
    raise KernelTypeError(msg)


def dtype(operand: Operand, what: str) -> DType:
    """Return a compile-time dtype."""
    if isinstance(operand, Constant) and isinstance(operand.value, DType):
        return operand.value
    names = ", ".join(dtype_name(known) for known in ALL)
    msg = f"{what} is one of {names}, got {describe(operand)}"
    raise KernelTypeError(msg)


def shape(operand: Operand, what: str) -> tuple[int, ...]:
    """Return a shape: a compile-time integer or a tuple of them, each a power of two."""
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    if not items:
        msg = f"{what} has at least one extent; a single value is a scalar"
        raise KernelValueError(msg)
    extents = tuple(integer(item, f"an extent of {what}") for item in items)
    check_extents(extents)
    return extents


def axis(operand: Operand, rank: int, what: str) -> int:
    """Return an axis of `rank` many; a negative one counts from the end."""
    number = integer(operand, what)
    if not -rank <= number < rank:
        msg = f"{what} is {number}; for rank {rank} it is {-rank} to {rank - 1}"
        raise KernelValueError(msg)
    return number % rank


def tile(operand: Operand, what: str) -> Value:
    """Return a tile (of numbers or pointers)."""
    if isinstance(operand, Value) and isinstance(operand.type, TileType):
        return operand
    msg = f"{what} takes a tile, got {describe(operand)}"
    raise KernelTypeError(msg)
