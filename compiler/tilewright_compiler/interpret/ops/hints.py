"""Promises, checked: a broken one is an error with the program and the element."""

from __future__ import annotations

import numpy as np

from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands, failure
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import PointerType, element_type, shape_of


def _multiple_of(operation: Operation, operands: Operands, batch: Batch) -> Array:
    (value,) = operands
    divisor: int = operation.attributes["divisor"]
    # A power of two divides what ends in zeros, whatever the sign.
    broken = (value & value.dtype.type(divisor - 1)) != 0
    if shape_of(operation.result.type):
        broken &= ~_continues(operation, value)
    _check(operation, value, broken, batch, f"multiples of {divisor}")
    return value


def _max_contiguous(operation: Operation, operands: Operands, batch: Batch) -> Array:
    (value,) = operands
    run: int = operation.attributes["run"]
    broken = _inner(operation, value, run) & ~_continues(operation, value)
    _check(operation, value, broken, batch, f"runs of {run}")
    return value


def _max_constancy(operation: Operation, operands: Operands, batch: Batch) -> Array:
    (value,) = operands
    run, axis = operation.attributes["run"], operation.attributes["axis"] + 1
    if value.shape[axis] > 1:
        broken = _inner(operation, value, run) & (value != np.roll(value, 1, axis))
        _check(operation, value, broken, batch, f"{run} equal elements each")
    return value


def _assume(operation: Operation, operands: Operands, batch: Batch) -> None:
    broken = ~operands[0]
    if broken.any():
        raise failure(operation, batch, int(np.argmax(broken)), "tl.assume of what is false")


def _resident(_operation: Operation, _operands: Operands, _batch: Batch) -> None:
    """Do nothing: an interpreter has room for one program."""


def _continues(operation: Operation, value: Array) -> Array:
    """Return which elements are the successor of the one before them along the axis."""
    axis = operation.attributes["axis"] + 1
    element = element_type(operation.result.type)
    unit = element.dtype.size_bytes if isinstance(element, PointerType) else 1
    if value.shape[axis] == 1:  # equal elements, or a single one
        return np.zeros_like(value, np.bool_)
    follows: Array = value == np.roll(value, 1, axis) + value.dtype.type(unit)
    first = [slice(None)] * value.ndim
    first[axis] = slice(0, 1)
    follows[tuple(first)] = False
    return follows


def _inner(operation: Operation, value: Array, run: int) -> Array:
    """Return which elements do not begin a group of `run` along the axis."""
    axis = operation.attributes["axis"] + 1
    extent = shape_of(operation.result.type)[axis - 1]
    inner: Array = np.arange(extent) % run != 0
    shaped: Array = inner.reshape([extent if i == axis else 1 for i in range(value.ndim)])
    return shaped


def _check(operation: Operation, value: Array, broken: Array, batch: Batch, what: str) -> None:
    if not broken.any():
        return
    position = tuple(int(index) for index in np.argwhere(broken)[0])
    place = tuple(min(i, n - 1) for i, n in zip(position, value.shape, strict=True))
    kind = "address" if isinstance(element_type(operation.result.type), PointerType) else "value"
    where = f" at {position[1:]}" if len(position) > 1 else ""
    msg = (
        f"tl.{operation.name} promises {what}, but the {kind}{where} is {value[place]}, which "
        "breaks it"
    )
    raise failure(operation, batch, position[0], msg)


COMPUTE: dict[str, Compute] = {
    "multiple_of": _multiple_of,
    "max_contiguous": _max_contiguous,
    "max_constancy": _max_constancy,
    "assume": _assume,
    "resident": _resident,
}
