"""Intervals of integer values: what each element surely lies between, whatever the launch.

Seeded by the signature (`small` arguments fit in 31 bits), by the grid's limits (CUDA programming
guide, "Technical specifications": 2^31 - 1 programs along an axis) and by constants. Integers wrap,
so a result that could leave its type has the type's whole range. Values that a loop carries, and
results of operations that this file does not know, have it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.abi.dtypes import DType
from tilewright.abi.signature import INT31_MAX, Scalar
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.evaluate import integer_limits
from tilewright_compiler.ir.types import (
    ScalarType,
    TileType,
    Type,
    element_dtype,
    element_type,
)

_MAX_PROGRAMS = 2**31 - 1

_SAME = frozenset(
    {
        *("splat", "broadcast", "expand_dims", "reshape", "transpose", "convert_layout"),
        *("multiple_of", "max_contiguous", "max_constancy"),
    }
)


@dataclass(frozen=True, slots=True)
class Interval:
    """All integers from `low` to `high`, both included."""

    low: int
    high: int

    def contains(self, other: Interval) -> bool:
        """Return whether `other` lies inside."""
        return self.low <= other.low and other.high <= self.high


def analyze_ranges(
    module: Module, assumed: Mapping[Value, Interval] | None = None
) -> Mapping[Value, Interval]:
    """Return the interval of every integer value of the module.

    Of the values in `assumed` it is known that they lie there, too.
    """
    ranges = _Ranges(assumed or {})
    for function in module.functions.values():
        arguments = function.body.arguments
        for argument in arguments:
            _define(ranges, argument, None)
        if function.is_kernel:
            for argument, (_, parameter) in zip(arguments, module.signature.runtime, strict=True):
                if isinstance(parameter, Scalar) and parameter.unit:
                    ranges[argument] = Interval(1, 1)
                elif isinstance(parameter, Scalar) and parameter.small:
                    ranges[argument] = Interval(-INT31_MAX, INT31_MAX)
        _block(ranges, function.body)
    return ranges


class _Ranges(dict[Value, Interval]):
    """The intervals found so far, narrowed by what is assumed."""

    def __init__(self, assumed: Mapping[Value, Interval]) -> None:
        super().__init__()
        self._assumed = assumed

    def __setitem__(self, value: Value, found: Interval) -> None:
        known = self._assumed.get(value, found)
        low, high = max(found.low, known.low), min(found.high, known.high)
        super().__setitem__(value, Interval(low, high) if low <= high else found)


def limits(dtype: DType) -> Interval:
    """Return the range of an integer type."""
    return Interval(*integer_limits(dtype))


def _block(ranges: dict[Value, Interval], block: Block) -> None:
    for operation in block.operations:
        if operation.name == "for":
            _define(ranges, operation.regions[0].arguments[0], _induction(ranges, operation))
            for carried in operation.regions[0].arguments[1:]:
                _define(ranges, carried, None)
        else:
            for region in operation.regions:
                for argument in region.arguments:
                    _define(ranges, argument, None)
        for region in operation.regions:
            _block(ranges, region)
        found = _transfer(ranges, operation) if len(operation.results) == 1 else None
        for result in operation.results:
            _define(ranges, result, found)


def _define(ranges: dict[Value, Interval], value: Value, found: Interval | None) -> None:
    if not _is_integer(value.type):
        return
    whole = limits(element_dtype(value.type))
    ranges[value] = whole if found is None or not whole.contains(found) else found


def _is_integer(type_: Type) -> bool:
    if not isinstance(type_, ScalarType | TileType):
        return False
    return isinstance(element_type(type_), ScalarType) and element_dtype(type_).is_integer


def _induction(ranges: Mapping[Value, Interval], loop: Operation) -> Interval:
    """Return where the induction variable lies inside the body."""
    lower, upper = ranges[loop.operands[0]], ranges[loop.operands[1]]
    return Interval(lower.low, max(lower.low, upper.high - 1))


def _transfer(ranges: Mapping[Value, Interval], operation: Operation) -> Interval | None:
    match operation.name:
        case "constant":
            value = operation.attributes["value"]
            return Interval(int(value), int(value)) if isinstance(value, int) else None
        case "arange":
            return Interval(operation.attributes["start"], operation.attributes["end"] - 1)
        case "program_id":
            return Interval(0, _MAX_PROGRAMS - 1)
        case "num_programs" | "grid_extent":
            return Interval(1, _MAX_PROGRAMS)
        case "select":
            operands = [ranges.get(value) for value in operation.operands[1:]]
        case _:
            operands = [ranges.get(value) for value in operation.operands]
    known = [interval for interval in operands if interval is not None]
    if len(known) != len(operands) or not known:
        return None
    if operation.name in _SAME or operation.name == "cast":
        return known[0]
    rule = _RULES.get(operation.name)
    return None if rule is None or len(known) != 2 else rule(*known)


def _join(left: Interval, right: Interval) -> Interval:
    return Interval(min(left.low, right.low), max(left.high, right.high))


def _mul(left: Interval, right: Interval) -> Interval:
    corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return Interval(min(corners), max(corners))


def _div(left: Interval, right: Interval) -> Interval | None:
    """Truncated division by what is positive: the quotient moves towards 0."""
    if right.low < 1:
        return None
    low = left.low // right.high if left.low >= 0 else left.low
    return Interval(low, max(left.high, 0))


def _rem(left: Interval, right: Interval) -> Interval | None:
    """The remainder has the dividend's sign and is smaller than the divisor."""
    if right.low < 1:
        return Interval(0, left.high) if left.low >= 0 else None
    return Interval(max(min(left.low, 0), 1 - right.high), min(max(left.high, 0), right.high - 1))


def _and(left: Interval, right: Interval) -> Interval | None:
    """What is not negative clears all bits above its own."""
    bounds = [interval.high for interval in (left, right) if interval.low >= 0]
    return Interval(0, min(bounds)) if bounds else None


_RULES: Mapping[str, Callable[[Interval, Interval], Interval | None]] = {
    "add": lambda a, b: Interval(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: Interval(a.low - b.high, a.high - b.low),
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "and": _and,
    "min": lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high)),
    "max": lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high)),
    "select": _join,
}
