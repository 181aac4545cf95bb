"""Sorting by Batcher's bitonic network, on integers that are ordered as the elements are.

An axis of 2^m elements becomes m axes of 2, one for each bit of the index, so that an exchange with
the element whose index differs in one bit is a flip. Where the bit is one of a thread's registers
or a lane, the flip is a renaming or a shuffle; only bits of the warp go through shared memory.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.abi.dtypes import DType, int1, int16, int32, int64
from tilewright.errors import KernelValueError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments, shape
from tilewright_compiler.frontend.builtins.reduce import numbers
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import tile_of
from tilewright_compiler.frontend.operands import NONE, Constant, Operand, TupleOperand
from tilewright_compiler.frontend.operators import to_bool
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import ScalarType, element_dtype, element_type, like, shape_of

_SIGNED = {16: int16, 32: int32, 64: int64}
# The bits of infinity: those above are NaN, of which the highest is taken.
_DIGITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


@implements(tl.sort)
def sort(
    scope: Scope, x: Operand, dim: Operand, descending: Operand, return_indices: Operand
) -> Operand:
    """Build a sorted tile."""
    network = _Network.of(scope, x, dim, descending, return_indices, "tl.sort")
    for stage in range(1, network.bits + 1):
        network.merge(stage)
    return network.result()


@implements(tl.bitonic_merge)
def bitonic_merge(scope: Scope, x: Operand, dim: Operand, descending: Operand) -> Operand:
    """Build the last stage of a sort."""
    network = _Network.of(scope, x, dim, descending, Constant(False), "tl.bitonic_merge")
    network.merge(network.bits)
    return network.result()


@implements(tl.topk)
def topk(
    scope: Scope, x: Operand, k: Operand, dim: Operand, largest: Operand, return_indices: Operand
) -> Operand:
    """Build the first elements of a sorted tile: of two sorted runs, only the better half goes on.

    A run and one in the opposite order are the halves of a bitonic sequence, whose better half is,
    element by element, the better of the two.
    """
    network = _Network.of(scope, x, dim, largest, return_indices, "tl.topk", flag="largest")
    count = arguments.integer(k, "`k` of tl.topk")
    extent = 1 << network.bits
    if count < 1 or count & (count - 1) or count > extent:
        msg = f"`k` of tl.topk is a power of two from 1 to the extent {extent}, got {count}"
        raise KernelValueError(msg)
    wanted = count.bit_length() - 1
    for stage in range(1, wanted + 1):
        network.merge(stage)
    while network.bits > wanted:
        network.keep(wanted)
        network.merge(wanted)
    return network.result()


@dataclass(slots=True)
class _Network:
    """A tile of keys [1, ..., 2, ..., 2, ...]: from `axis` on, an axis for each of `bits` bits of
    the index, the highest first.

    `places` are the indices that the elements had, if they are wanted: then no two of them are
    equal, since the lower index comes first.
    """

    scope: Scope
    source: Value
    keys: Value
    places: Value | None
    axis: int
    bits: int
    is_falling: bool

    @classmethod
    def of(
        cls,
        scope: Scope,
        x: Operand,
        dim: Operand,
        falling: Operand,
        return_indices: Operand,
        what: str,
        *,
        flag: str = "descending",
    ) -> _Network:
        """Start with the elements of a tile along an axis, by default the last."""
        source = numbers(x, what)
        is_falling = arguments.flag(falling, f"`{flag}` of {what}")
        extents = shape_of(source.type)
        last = Constant(-1)
        axis = arguments.axis(last if dim == NONE else dim, len(extents), f"`dim` of {what}")
        bits = extents[axis].bit_length() - 1
        # The first axis is there for tiles of one axis, which would be left with none.
        split = (1, *extents[:axis], *(2,) * bits, *extents[axis + 1 :])
        keys = shape.reshaped(scope, _keys(scope, source), split)
        places = None
        if arguments.flag(return_indices, f"`return_indices` of {what}"):
            places = shape.reshaped(scope, shape.indices(scope, extents, axis), split)
        return cls(scope, source, keys, places, axis + 1, bits, is_falling)

    def merge(self, stage: int) -> None:
        """Put bitonic runs of 2^stage elements in order: every other one the other way round."""
        for bit in reversed(range(stage)):
            self._exchange(bit, stage)

    def keep(self, bit: int) -> None:
        """Keep of each two elements that differ in a bit of the index the one that comes first."""
        axis = self._axis_of(bit)
        if self.places is None:
            extents = shape_of(self.keys.type)
            target = tile_of((*extents[:axis], *extents[axis + 1 :]), element_type(self.keys.type))
            kind = "max" if self.is_falling else "min"
            build = self.scope.builder.value
            self.keys = build("reduce", (self.keys,), target, axis=axis, kind=kind)
        else:
            self._exchange(bit, self.bits)
            self.keys = shape.selected(self.scope, self.keys, axis, index=0)
            self.places = shape.selected(self.scope, self.places, axis, index=0)
        self.bits -= 1

    def result(self) -> Operand:
        """Return the elements in the order of their keys, and the indices if they are wanted."""
        extents = list(shape_of(self.source.type))
        extents[self.axis - 1] = 1 << self.bits
        keys = shape.reshaped(self.scope, self.keys, tuple(extents))
        elements = _elements(self.scope, keys, element_dtype(self.source.type))
        if self.places is None:
            return elements
        return TupleOperand((elements, shape.reshaped(self.scope, self.places, tuple(extents))))

    def _axis_of(self, bit: int) -> int:
        return self.axis + self.bits - 1 - bit

    def _exchange(self, bit: int, stage: int) -> None:
        """Put each two elements that differ in a bit of the index in the order of their run."""
        build, type_, axis = self.scope.builder.value, self.keys.type, self._axis_of(bit)
        other = build("flip", (self.keys,), type_, axis=axis)
        is_first = self._is_first(bit, stage)
        if self.places is None:
            low = build("min", (self.keys, other), type_)
            high = build("max", (self.keys, other), type_)
            pair = (high, low) if self.is_falling else (low, high)
            self.keys = build("select", (is_first, *pair), type_)
            return
        bools, places = is_first.type, self.places
        other_place = build("flip", (places,), places.type, axis=axis)
        better = "gt" if self.is_falling else "lt"
        is_better = build("cmp", (other, self.keys), bools, predicate=better)
        is_equal = build("cmp", (other, self.keys), bools, predicate="eq")
        is_earlier = build("cmp", (other_place, places), bools, predicate="lt")
        is_before = build("or", (is_better, build("and", (is_equal, is_earlier), bools)), bools)
        # What comes first takes the other if that is before it, what comes second if not.
        takes = build("cmp", (is_before, is_first), bools, predicate="eq")
        self.keys = build("select", (takes, other, self.keys), type_)
        self.places = build("select", (takes, other_place, places), places.type)

    def _is_first(self, bit: int, stage: int) -> Value:
        """Build which elements of the tile take what comes first: lower in a run that goes forward.

        The bit above the run says which way it goes; above the last there is none.
        """
        scope, build = self.scope, self.scope.builder.value
        extents = shape_of(self.keys.type)
        count = 1 << self.bits
        index = build("arange", (), tile_of((count,), ScalarType(int32)), start=0, end=count)
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
