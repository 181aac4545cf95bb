"""The range of a `for` loop -> values that say which iterations there are, some ahead.

An iteration exists if its distance is less than what is left of the range. Both are compared in 64
bits: narrower bounds are widened, and of 64-bit bounds the rest is taken as an unsigned number,
which it fits once there is one iteration.
"""

from __future__ import annotations

from tilewright.abi.dtypes import DType, int1, int64, uint64
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype

_MOST_U64 = (1 << 64) - 1


class LoopRange:
    """Bounds and step of a loop; `known_step` is the step's value where it is a constant."""

    def __init__(self, lower: Value, upper: Value, step: Value, *, known_step: int | None) -> None:
        self._lower = lower
        self._upper = upper
        self._step = step
        self._known_step = known_step
        self._dtype = element_dtype(lower.type)
        self._wide = uint64 if self._dtype.bits == 64 else int64

    def offset(self, builder: Builder, ahead: int) -> Value:
        """Return what the induction value grows by in `ahead` iterations."""
        if self._known_step is not None:
            return constant(builder, _wrapped(self._known_step * ahead, self._dtype), self._dtype)
        if ahead == 1:
            return self._step
        count = constant(builder, ahead, self._dtype)
        return builder.value("mul", [self._step, count], ScalarType(self._dtype))

    def distance(self, builder: Builder, ahead: int) -> Value:
        """Return the same in 64 bits, at most the largest number there."""
        if self._known_step is not None:
            return constant(builder, min(self._known_step * ahead, _MOST_U64), self._wide)
        step = self._widen(builder, self._step)
        if ahead == 1:
            return step
        product = self._binary(builder, "mul", step, constant(builder, ahead, self._wide))
        largest = (1 << self._dtype.bits - self._dtype.is_signed) - 1
        if largest * ahead <= _MOST_U64:
            return product
        most = constant(builder, _MOST_U64, uint64)
        fits = _compare(builder, "le", step, constant(builder, _MOST_U64 // ahead, uint64))
        return builder.value("select", [fits, product, most], ScalarType(uint64))

    def begins(self, builder: Builder, ahead: int) -> Value:
        """Return whether the loop has an iteration number `ahead`; asked before the loop."""
        first = _compare(builder, "lt", self._lower, self._upper)
        if ahead == 0:
            return first
        more = self.goes_on(builder, self._lower, self.distance(builder, ahead))
        return builder.value("and", [first, more], ScalarType(int1))

    def goes_on(self, builder: Builder, induction: Value, distance: Value) -> Value:
        """Return whether the iteration at a distance from an existing one exists."""
        if self._dtype.bits == 64:
            rest = builder.value("sub", [self._upper, induction], ScalarType(self._dtype))
            rest = self._widen(builder, rest)
        else:
            upper, here = (self._widen(builder, value) for value in (self._upper, induction))
            rest = self._binary(builder, "sub", upper, here)
        return _compare(builder, "lt", distance, rest)

    def _widen(self, builder: Builder, value: Value) -> Value:
        if self._dtype == self._wide:
            return value
        name = "bitcast" if self._dtype.bits == 64 else "cast"
        return builder.value(name, [value], ScalarType(self._wide))

    def _binary(self, builder: Builder, name: str, left: Value, right: Value) -> Value:
        return builder.value(name, [left, right], ScalarType(self._wide))


def constant(builder: Builder, value: float, dtype: DType) -> Value:
    """Return a scalar constant; `value` is a float for a float dtype, a bool for i1."""
    return builder.value("constant", [], ScalarType(dtype), value=value)


def _compare(builder: Builder, predicate: str, left: Value, right: Value) -> Value:
    return builder.value("cmp", [left, right], ScalarType(int1), predicate=predicate)


def _wrapped(value: int, dtype: DType) -> int:
    value %= 1 << dtype.bits
    is_negative = dtype.is_signed and value >> (dtype.bits - 1)
    return value - (1 << dtype.bits) if is_negative else value
