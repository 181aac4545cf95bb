"""Sorting by Batcher's bitonic network, on integers that are ordered as the elements are.

An axis of 2^m elements becomes m axes of 2, one for each bit of the index, so that an exchange with
the element whose index differs in one bit is a flip. Where the bit is one of a thread's registers
or a lane, the flip is a renaming or a shuffle; only bits of the warp go through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int1, int16, int32, int64
from tilewright.errors import KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments, shape
from tilewright_compiler.frontend.builtins.reduce import numbers
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import tile_of
from tilewright_compiler.frontend.operands import NONE, Constant, Operand
from tilewright_compiler.frontend.operators import to_bool
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, element_type, like, shape_of

_SIGNED = {16: int16, 32: int32, 64: int64}
# The bits of infinity: those above are NaN, of which the highest is taken.
_DIGITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


@implements(tl.sort)
def sort(scope: Scope, x: Operand, dim: Operand, descending: Operand) -> Operand:
    """Build a sorted tile."""
    value = numbers(x, "tl.sort")
    is_falling = arguments.flag(descending, "`descending` of tl.sort")
    network = _Network.of(scope, value, dim, "tl.sort")
    for stage in range(1, network.bits + 1):
        network.merge(stage, is_falling=is_falling)
    return network.values(value)


@implements(tl.bitonic_merge)
def bitonic_merge(scope: Scope, x: Operand, dim: Operand, descending: Operand) -> Operand:
    """Build the last stage of a sort."""
    value = numbers(x, "tl.bitonic_merge")
    is_falling = arguments.flag(descending, "`descending` of tl.bitonic_merge")
    network = _Network.of(scope, value, dim, "tl.bitonic_merge")
    network.merge(network.bits, is_falling=is_falling)
    return network.values(value)


@implements(tl.topk)
def topk(scope: Scope, x: Operand, k: Operand, dim: Operand, largest: Operand) -> Operand:
    """Build the first elements of a sorted tile: of two sorted runs, only the better half goes on.

    A rising run and a falling one are the halves of a bitonic sequence, whose larger half is the
    maximum of the two, element by element.
    """
    value = numbers(x, "tl.topk")
    is_largest = arguments.flag(largest, "`largest` of tl.topk")
    network = _Network.of(scope, value, dim, "tl.topk")
    count = arguments.integer(k, "`k` of tl.topk")
    extent = 1 << network.bits
    if count < 1 or count & (count - 1) or count > extent:
        msg = f"`k` of tl.topk is a power of two from 1 to the extent {extent}, got {count}"
        raise KernelValueError(msg)
    wanted = count.bit_length() - 1
    for stage in range(1, wanted + 1):
        network.merge(stage, is_falling=is_largest)
    while network.bits > wanted:
        network.keep("max" if is_largest else "min", wanted)
        network.merge(wanted, is_falling=is_largest)
    return network.values(value)


@dataclass(slots=True)
class _Network:
    """A tile of keys whose axis `axis` lies in `bits` axes of extent 2, the highest bit first."""

    scope: Scope
    keys: Value
    axis: int
    bits: int

    @classmethod
    def of(cls, scope: Scope, value: Value, dim: Operand, what: str) -> _Network:
        """Start with the elements of a tile along an axis, by default the last."""
        extents = shape_of(value.type)
        axis = arguments.axis(
            Constant(-1) if dim == NONE else dim, len(extents), f"`dim` of {what}"
        )
        bits = extents[axis].bit_length() - 1
        keys = _keys(scope, value)
        split = (*extents[:axis], *(2,) * bits, *extents[axis + 1 :])
        return cls(scope, shape.reshaped(scope, keys, split or (1,)), axis, bits)

    def merge(self, stage: int, *, is_falling: bool) -> None:
        """Put bitonic runs of 2^stage elements in order: every other one the other way round."""
        for bit in reversed(range(stage)):
            build, type_ = self.scope.builder.value, self.keys.type
            other = build("flip", (self.keys,), type_, axis=self.axis + self.bits - 1 - bit)
            low = build("min", (self.keys, other), type_)
            high = build("max", (self.keys, other), type_)
            pair = (high, low) if is_falling else (low, high)
            self.keys = build("select", (self._is_first(bit, stage), *pair), type_)

    def keep(self, kind: str, bit: int) -> None:
        """Keep of each two elements that differ in a bit of the index the maximum or minimum."""
        axis = self.axis + self.bits - 1 - bit
        extents = shape_of(self.keys.type)
        target = (*extents[:axis], *extents[axis + 1 :])
        if not target:
            target, self.keys = (1,), shape.reshaped(self.scope, self.keys, (1, *extents))
            axis += 1
        type_ = tile_of(target, element_type(self.keys.type))
        self.keys = self.scope.builder.value("reduce", (self.keys,), type_, axis=axis, kind=kind)
        self.bits -= 1

    def values(self, source: Value) -> Value:
        """Return the elements in the order of the keys, of the dtype and rank of `source`."""
        extents = list(shape_of(source.type))
        extents[self.axis] = 1 << self.bits
        keys = shape.reshaped(self.scope, self.keys, tuple(extents))
        return _elements(self.scope, keys, element_dtype(source.type))

    def _is_first(self, bit: int, stage: int) -> Value:
        """Build which elements of the tile take what comes first: lower in a run that goes forward.

        The bit above the run says which way it goes; above the last there is none.
        """
        scope, build = self.scope, self.scope.builder.value
        extents = shape_of(self.keys.type)
        index = build(
            "arange", (), tile_of((1 << self.bits,), ScalarType(int32)), start=0, end=1 << self.bits
        )
        mask = 1 << bit | (1 << stage if stage < self.bits else 0)
        chosen = build("and", (index, convert.filled(scope, mask, index.type)), index.type)
        bools = like(index.type, ScalarType(int1))

        def equals(number: int) -> Value:
            wanted = convert.filled(scope, number, index.type)
            return build("cmp", (chosen, wanted), bools, predicate="eq")

        is_first = equals(0)
        if stage < self.bits:
            is_first = build("or", (is_first, equals(mask)), bools)
        behind = len(extents) - self.axis - self.bits
        split = (*(2,) * self.bits, *(1,) * behind)
        return convert.broadcast(scope, shape.reshaped(scope, is_first, split), extents)


def _keys(scope: Scope, value: Value) -> Value:
    """Build integers that are ordered as the elements are."""
    dtype = element_dtype(value.type)
    if dtype == int1:
        return convert.cast(scope, value, int32)
    if not dtype.is_float:
        return value
    build = scope.builder.value
    type_ = like(value.type, ScalarType(_SIGNED[dtype.bits]))
    bits = build("bitcast", (value,), type_)
    is_nan = build("cmp", (value, value), like(value.type, ScalarType(int1)), predicate="ne")
    nan = convert.filled(scope, _quiet_nan(dtype), type_)
    return _turned(scope, build("select", (is_nan, nan, bits), type_))


def _elements(scope: Scope, keys: Value, dtype: DType) -> Value:
    """Build the elements that have these keys."""
    if dtype == int1:
        return to_bool(scope, keys)
    if not dtype.is_float:
        return keys
    bits = _turned(scope, keys)
    return scope.builder.value("bitcast", (bits,), like(bits.type, ScalarType(dtype)))


def _turned(scope: Scope, bits: Value) -> Value:
    """Build the bits of floats as ordered integers, or back: negative ones count downwards."""
    build, dtype = scope.builder.value, element_dtype(bits.type)
    distance = convert.filled(scope, dtype.bits - 1, bits.type)
    magnitude = convert.filled(scope, (1 << (dtype.bits - 1)) - 1, bits.type)
    sign = build("shr", (bits, distance), bits.type)
    flipped = build("and", (sign, magnitude), bits.type)
    return build("xor", (bits, flipped), bits.type)


def _quiet_nan(dtype: DType) -> int:
    """Return the bits of a positive quiet NaN."""
    digits = _DIGITS[dtype.name]
    exponent = (1 << (dtype.bits - 1)) - (1 << digits)
    return exponent | 1 << (digits - 1)
