"""The program's place in the grid, checks at compile time, and why a range is not a value."""

from __future__ import annotations

from typing import NoReturn

import tilewright.language as tl
from tilewright.abi.dtypes import int64
from tilewright.errors import KernelSyntaxError, KernelTypeError, KernelValueError
from tilewright_compiler.frontend import operators
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import common_dtype
from tilewright_compiler.frontend.operands import Constant, Operand, TupleOperand, describe
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.types import ScalarType


@implements(tl.program_id)
def program_id(scope: Scope, axis: Operand) -> Operand:
    """Build the program's index."""
    return _grid(scope, "program_id", axis)


@implements(tl.num_programs)
def num_programs(scope: Scope, axis: Operand) -> Operand:
    """Build the grid's extent."""
    return _grid(scope, "num_programs", axis)


@implements(tl.range)
def range(  # the language's name and its options
    _scope: Scope,
    start: Operand,
    end: Operand,
    step: Operand,
    *,
    num_stages: Operand,
    loop_unroll_factor: Operand,
    flatten: Operand,
    warp_specialize: Operand,
    disallow_acc_multi_buffer: Operand,
    disable_licm: Operand,
) -> Operand:
    """Refuse a range outside the head of a `for`, where `loops` reads it."""
    del num_stages, loop_unroll_factor, flatten, warp_specialize
    del disallow_acc_multi_buffer, disable_licm
    return refuse_range((start, end, step))


@implements(tl.static_range)
def static_range(_scope: Scope, start: Operand, end: Operand, step: Operand) -> Operand:
    """Refuse a range outside the head of a `for`, where `loops` reads it."""
    return refuse_range((start, end, step))


def refuse_range(_arguments: tuple[Operand, ...]) -> NoReturn:
    """Raise: there are no range objects, whatever the arguments."""
    msg = "a range is not a value; write it in the head of a `for`"
    raise KernelSyntaxError(msg)


@implements(tl.static_assert)
def static_assert(_scope: Scope, condition: Operand, message: Operand) -> None:
    """Fail unless a condition is true now."""
    if not isinstance(condition, Constant | TupleOperand):
        msg = f"tl.static_assert checks what is known at compile time, got {describe(condition)}"
        raise KernelTypeError(msg)
    words = arguments.text(message, "`message` of tl.static_assert")
    is_true = bool(condition.value if isinstance(condition, Constant) else condition.items)
    if not is_true:
        msg = f"tl.static_assert failed{': ' if words else ''}{words}"
        raise KernelValueError(msg)


@implements(tl.cdiv)
def cdiv(scope: Scope, x: Operand, y: Operand) -> Operand:
    """Build `x / y` rounded up, as `(x + (y - 1)) // y`."""
    if common_dtype((x, y), "tl.cdiv").is_float:
        msg = f"tl.cdiv takes integers, got {describe(x)} and {describe(y)}"
        raise KernelTypeError(msg)
    rounded = operators.binary(scope, "+", x, operators.binary(scope, "-", y, Constant(1)))
    return operators.binary(scope, "//", rounded, y)


@implements(tl.next_power_of_2)
def next_power_of_2(_scope: Scope, n: Operand) -> Operand:
    """Return the power of two."""
    number = arguments.integer(n, "`n` of tl.next_power_of_2")
    return Constant(1 << max(number - 1, 0).bit_length())


def _grid(scope: Scope, name: str, axis: Operand) -> Operand:
    number = arguments.integer(axis, f"`axis` of tl.{name}")
    if number not in (0, 1, 2):
        msg = f"`axis` of tl.{name} is 0, 1 or 2, got {number}"
        raise KernelValueError(msg)
    return scope.builder.value(name, (), ScalarType(int64), axis=number)
