"""Atomic operations: lanes take turns in the order of their index, programs in that of their
number.

A device lets them happen in any order. What does not depend on it, such as a sum of integers, is
the same there; what does, such as the rounding of a sum of floats, is one of the possible results
here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.abi.dtypes import DType, float32
from tilewright_compiler.interpret import numerics
from tilewright_compiler.interpret.batch import Batch
from tilewright_compiler.interpret.memory import Access, Memory
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops.form import Compute, Operands
from tilewright_compiler.interpret.turns import Step, accumulated, each_turn
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.atomics import ATOMICS, mask_index
from tilewright_compiler.ir.types import element_dtype, shape_of

_BITWISE: Mapping[str, np.ufunc] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_EXTREMA: Mapping[str, np.ufunc] = {"max": np.maximum, "min": np.minimum}


def update(operation: Operation, operands: Operands, memory: Memory, access: Access) -> Array:
    """Carry out an atomic operation and return what the elements were before."""
    dtype, index = element_dtype(operation.operands[0].type), mask_index(operation)
    pointer, *values = operands[:index]
    mask = operands[index] if len(operands) > index else None
    if operation.name == "atomic_load":
        return memory.load(pointer, mask, None, access=access)
    if operation.name == "atomic_cas":
        return memory.update(pointer, tuple(values), mask, each_turn(_exchanged), access=access)
    kind: str = operation.attributes["kind"]
    return modify(memory, kind, dtype, pointer, values[0], mask, access=access)


def modify(
    memory: Memory,
    kind: str,
    dtype: DType,
    pointer: Array,
    value: Array,
    mask: Array | None,
    *,
    access: Access,
) -> Array:
    """Let elements become `kind(old, value)` and return what they were before."""
    if kind not in _EXTREMA or not dtype.is_float:
        return memory.update(pointer, (value,), mask, _step(kind, dtype), access=access)
    given = _nan_that_wins(value, kind)
    return memory.update(pointer, (given,), mask, _float_extremum(kind), access=access)


def verb_of(operation: Operation) -> str:
    """Return what an atomic operation is called in messages."""
    if operation.name == "atomic_rmw":
        return f"atomic_{operation.attributes['kind']}"
    return "volatile load" if operation.name == "atomic_load" else operation.name


def _step(kind: str, dtype: DType) -> Step:
    if kind == "xchg":
        return each_turn(lambda _found, values: values[0])
    if kind in _BITWISE:
        return accumulated(_BITWISE[kind])
    if kind in _EXTREMA:
        return accumulated(_EXTREMA[kind])
    return _sums(dtype)


def _sums(dtype: DType) -> Step:
    """Return how elements of a dtype are added one after the other."""
    if not dtype.is_float or dtype.bits == 64:
        return accumulated(np.add)
    if dtype == float32:
        return _float32_sums
    return each_turn(lambda found, values: numerics.binary("add", found, values[0], dtype))


def _float32_sums(found: Array, values: tuple[Array, ...]) -> Array:
    """Add f32 numbers as hardware does: what is too small for a normal number is zero."""
    start, addends = _flushed(found), _flushed(values[0])
    history = accumulated(np.add)(start, (addends,))
    if _is_small(history).any():
        step = each_turn(lambda sums, lanes: _flushed(sums + lanes[0]))
        history = step(start, (addends,))
    # A lane sees what is in memory: before the first turn that has not been flushed.
    return np.concatenate([found[:, None], history[:, 1:]], axis=1)


def _flushed(values: Array) -> Array:
    result: Array = np.where(_is_small(values), np.copysign(np.float32(0), values), values)
    return result


def _is_small(values: Array) -> Array:
    result: Array = (values != 0) & (np.abs(values) < np.finfo(np.float32).smallest_normal)
    return result


def _float_extremum(kind: str) -> Step:
    """Compare bits, with those of negative numbers turned round: the total order of IEEE 754."""

    def step(found: Array, values: tuple[Array, ...]) -> Array:
        signed = np.dtype(f"i{found.dtype.itemsize}")
        keys = accumulated(_EXTREMA[kind])(
            _turned_round(found.view(signed)), (_turned_round(values[0].view(signed)),)
        )
        return _turned_round(keys).view(found.dtype)

    return step


def _turned_round(bits: Array) -> Array:
    """Return signed keys that are ordered as the floats with these bits; and back again."""
    magnitude = np.iinfo(bits.dtype).max
    return np.ascontiguousarray(np.where(bits < 0, bits ^ magnitude, bits))


def _nan_that_wins(values: Array, kind: str) -> Array:
    """Give NaN the sign with which it is the greatest, or the least, of all."""
    sign = np.asarray(1.0 if kind == "max" else -1.0).astype(values.dtype)
    result: Array = np.where(np.isnan(values), np.copysign(values, sign), values)
    return result


def _exchanged(found: Array, values: tuple[Array, ...]) -> Array:
    expected, given = values
    bits = f"u{found.dtype.itemsize}"
    is_equal = np.ascontiguousarray(found).view(bits) == np.ascontiguousarray(expected).view(bits)
    result: Array = np.where(is_equal, given, found)
    return result


def _atomic(operation: Operation, operands: Operands, batch: Batch) -> Array | None:
    here = () if operation.location is None else (operation.location,)
    access = Access(
        verb=verb_of(operation),
        dtype=element_dtype(operation.operands[0].type),
        kernel=batch.kernel,
        locations=(*here, *batch.callers),
        program=batch.program_at,
    )
    # Lanes that are held once take part as often as they are meant.
    shape = (batch.size, *shape_of(operation.operands[0].type))
    operands = tuple(np.broadcast_to(operand, shape) for operand in operands)
    old = update(operation, operands, batch.memory, access)
    return old if operation.results else None


COMPUTE: dict[str, Compute] = dict.fromkeys(ATOMICS, _atomic)
