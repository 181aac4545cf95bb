"""Compares 64-bit indices as 32-bit lanes against a bound worked out once a program.

Offsets are 64 bit by construction, so a mask `start + lane < size` is a 64-bit addition and two
instructions of comparison for each element. Where the lane fits in 32 bits it equals `lane < size -
start`: the right side is one scalar. Nothing may be assumed of `size`, so it is first clamped to
where the outcome can still change, after which neither the subtraction nor the narrowing can wrap.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.abi.dtypes import int1, int32, int64
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.ranges import Interval, analyze_ranges, limits
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_block
from tilewright_compiler.ir.core import Function, Module, Operation, Value
from tilewright_compiler.ir.types import ScalarType, TileType, element_dtype, like

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_INT64 = ScalarType(int64)
# A start of this range plus a 32-bit lane cannot wrap, nor can a bound clamped to such sums minus
# a start: the width of the range, 2^62, and two lanes.
_SUMMAND = Interval(-(2**61), 2**61 - 1)


@dataclass(frozen=True, slots=True)
class _Index:
    """A 64-bit tile `start + lane`: `start` a scalar or None for 0, `lane` a 32-bit tile."""

    start: Value | None
    lane: Value


def narrow_comparisons(module: Module) -> Module:
    """Return the module with its index comparisons in 32 bits where that is exact."""
    ranges = analyze_ranges(module)
    functions = {
        name: _Narrower(function, ranges).function() for name, function in module.functions.items()
    }
    return Module(functions, module.signature, dict(module.attributes))


class _Narrower:
    def __init__(self, function: Function, ranges: Mapping[Value, Interval]) -> None:
        self._function = function
        self._ranges = ranges
        self._values: ValueMap = {}
        self._producers = {
            result: operation for operation in function.body.walk() for result in operation.results
        }

    def function(self) -> Function:
        old = self._function
        body = clone_block(old.body, self._values, self._rewrite)
        return Function(old.name, body, old.result_types, old.is_kernel, old.location)

    def _rewrite(
        self, operation: Operation, _operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation.name != "cmp" or operation.attributes["predicate"] not in _MIRRORED:
            return None
        left, right = operation.operands
        if not isinstance(left.type, TileType) or element_dtype(left.type) != int64:
            return None
        predicate = operation.attributes["predicate"]
        index, bound = self._index(left), self._uniform(right)
        if index is None or bound is None:
            index, bound = self._index(right), self._uniform(left)
            predicate = _MIRRORED[predicate]
        if index is None or bound is None:
            return None
        return self._compare(operation, index, bound, predicate, builder)

    def _index(self, value: Value) -> _Index | None:
        """Read a tile as start + lane, if the parts are that and cannot wrap."""
        lane = self._narrow(value)
        if lane is not None:
            return _Index(None, lane)
        producer = self._producers.get(value)
        if producer is None or producer.name != "add":
            return None
        for first, second in (producer.operands, producer.operands[::-1]):
            start, lane = self._uniform(first), self._narrow(second)
            if start is None or lane is None:
                continue
            if _SUMMAND.contains(self._ranges[start]):
                return _Index(start, lane)
        return None

    def _narrow(self, value: Value) -> Value | None:
        """Return the 32-bit tile that `value` widens."""
        producer = self._producers.get(value)
        if producer is None or producer.name != "cast":
            return None
        (source,) = producer.operands
        inside = limits(int32)
        # One below the limits, so that the clamped bound fits as well.
        free = Interval(inside.low + 1, inside.high - 1)
        return (
            source
            if element_dtype(source.type) == int32 and free.contains(self._ranges[source])
            else None
        )

    def _uniform(self, value: Value) -> Value | None:
        """Return the scalar that all elements of a tile equal."""
        producer = self._producers.get(value)
        while producer is not None and producer.name in ("broadcast", "expand_dims"):
            producer = self._producers.get(producer.operands[0])
        return producer.operands[0] if producer is not None and producer.name == "splat" else None

    def _compare(
        self, operation: Operation, index: _Index, bound: Value, predicate: str, builder: Builder
    ) -> tuple[Value, ...]:
        lane = self._ranges[index.lane]
        # The bounds at which the outcome is the same for all lanes: beyond them nothing changes.
        first, last = (
            (lane.low, lane.high + 1) if predicate in ("lt", "ge") else (lane.low - 1, lane.high)
        )
        distance = self._values.get(bound, bound)
        if index.start is not None:
            start = self._ranges[index.start]
            distance = _clamp(
                builder,
                distance,
                self._ranges[bound],
                Interval(first + start.low, last + start.high),
            )
            begin = self._values.get(index.start, index.start)
            distance = builder.value("sub", (distance, begin), _INT64)
        distance = _clamp(builder, distance, limits(int64), Interval(first, last))
        narrow = builder.value("cast", (distance,), ScalarType(int32))
        tile = self._values.get(index.lane, index.lane)
        splat = builder.value("splat", (narrow,), tile.type)
        mask = like(operation.result.type, ScalarType(int1))
        compared = builder.value("cmp", (tile, splat), mask, predicate=predicate)
        compared.name = operation.result.name
        return (compared,)


def _clamp(builder: Builder, value: Value, known: Interval, to: Interval) -> Value:
    for name, limit, needed in (
        ("max", to.low, known.low < to.low),
        ("min", to.high, known.high > to.high),
    ):
        if needed:
            constant = builder.value("constant", (), _INT64, value=limit)
            value = builder.value(name, (value, constant), _INT64)
    return value
