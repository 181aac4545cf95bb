"""Promises, one operation for each axis of a value that one speaks of, and what is asked for."""

from __future__ import annotations

import tilewright.language as tl
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert, operators
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.operands import Constant, Operand, TupleOperand, describe
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.ops.hints import MOST_RESIDENT
from tilewright_compiler.ir.types import element_dtype, shape_of

_PROMISES = ("multiple_of", "max_contiguous", "max_constancy")


@implements(tl.multiple_of)
def multiple_of(scope: Scope, x: Operand, divisor: Operand) -> Operand:
    """Build the promise about where runs begin."""
    value = _integer(scope, x, "tl.multiple_of")
    for axis, number in enumerate(_numbers(divisor, value, "`divisor` of tl.multiple_of")):
        if number > 1:
            value = _promise(scope, "multiple_of", value, divisor=number, axis=axis)
    return value


@implements(tl.max_contiguous)
def max_contiguous(scope: Scope, x: Operand, run: Operand) -> Operand:
    """Build the promise of runs; what `x` promises of their beginnings is said again of these."""
    value = arguments.tile(_integer(scope, x, "tl.max_contiguous"), "tl.max_contiguous")
    before = _promises_of(scope, value)
    value = _runs(scope, "max_contiguous", value, run)
    for promise in before:
        if promise.name == "multiple_of":
            value = _promise(scope, "multiple_of", value, **promise.attributes)
    return value


@implements(tl.max_constancy)
def max_constancy(scope: Scope, x: Operand, run: Operand) -> Operand:
    """Build the promise of equal elements."""
    value = arguments.tile(_integer(scope, x, "tl.max_constancy"), "tl.max_constancy")
    return _runs(scope, "max_constancy", value, run)


@implements(tl.assume)
def assume(scope: Scope, condition: Operand) -> None:
    """Build the check that the interpreter makes."""
    truth = operators.truth(scope, condition, "tl.assume")
    if isinstance(truth, Value):
        scope.builder.create("assume", (truth,))
    elif not truth.value:
        msg = "tl.assume of a condition that is false at compile time"
        raise KernelValueError(msg)


@implements(tl.resident)
def resident(scope: Scope, programs: Operand) -> None:
    """Build what asks for room for so many programs; one has it anyway."""
    number = arguments.integer(programs, "`programs` of tl.resident")
    if not 1 <= number <= MOST_RESIDENT:
        msg = f"`programs` of tl.resident is 1 to {MOST_RESIDENT}, got {number}"
        raise KernelValueError(msg)
    if number > 1:
        scope.builder.create("resident", programs=number)


def _integer(scope: Scope, operand: Operand, what: str) -> Value:
    value = convert.as_value(scope, operand, what)
    if not operators.is_pointer(value) and not element_dtype(value.type).is_integer:
        msg = f"{what} takes integers or pointers, got {describe(operand)}"
        raise KernelTypeError(msg)
    return value


def _numbers(operand: Operand, value: Value, what: str) -> tuple[int, ...]:
    """Return a power of two for each axis of a value."""
    rank = max(len(shape_of(value.type)), 1)
    items = operand.items if isinstance(operand, TupleOperand) else (operand,)
    if len(items) != rank:
        msg = f"{what} has a number for each of the {rank} axes of {describe(value)}, got "
        msg += f"{describe(operand) if isinstance(operand, Constant) else len(items)}"
        raise KernelTypeError(msg)
    numbers = tuple(arguments.integer(item, what) for item in items)
    for number in numbers:
        if number < 1:
            msg = f"{what} is at least 1, got {number}"
            raise KernelValueError(msg)
    return tuple(number & -number for number in numbers)


def _runs(scope: Scope, name: str, value: Value, run: Operand) -> Value:
    for axis, number in enumerate(_numbers(run, value, f"`run` of tl.{name}")):
        length = min(number, shape_of(value.type)[axis])
        if length > 1:
            value = _promise(scope, name, value, run=length, axis=axis)
    return value


def _promise(scope: Scope, name: str, value: Value, **attributes: int) -> Value:
    return scope.builder.value(name, (value,), value.type, **attributes)


def _promises_of(scope: Scope, value: Value) -> list[Operation]:
    """Return the promises that were just made of a value, the oldest first."""
    found: list[Operation] = []
    for operation in reversed(scope.builder.block.operations):
        if operation.name in _PROMISES and operation.result is value:
            found.insert(0, operation)
            (value,) = operation.operands
    return found
