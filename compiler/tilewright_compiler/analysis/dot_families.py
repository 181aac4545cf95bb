"""Dots -> families that should share their warps, and the axis along which those should go.

The accumulators of a family meet elementwise, so equal warps save converting one of them. Warps go
along an axis where that keeps values in their threads: the result of a dot is the first operand of
another one without moving if both have all warps along M (attention, A @ B @ C), and what a
reduction of its rows gives scales the accumulator of another dot in place under the same rule.
Found by following each result through the uses of it, loops included; no kernel is special.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops import SPECS, Effect
from tilewright_compiler.ir.types import TileType, shape_of


class WarpAxis(Enum):
    """Where the warps of a dot should go: near-square parts, or along one axis first."""

    SQUARE = "square"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class DotFamily:
    """Dots of one shape [M, N] in program order, and where their warps should go."""

    dots: tuple[Operation, ...]
    axis: WarpAxis


class _Trace(Enum):
    """What a value has of a dot's result: its elements, transposed ones, or one for each row."""

    SAME = "same"
    TURNED = "turned"
    OF_ROWS = "of rows"
    OF_COLUMNS = "of columns"


_REDUCED = {_Trace.OF_ROWS: WarpAxis.ROWS, _Trace.OF_COLUMNS: WarpAxis.COLUMNS}
_FLIPPED = {_Trace.SAME: _Trace.TURNED, _Trace.TURNED: _Trace.SAME}
_WIDENING = ("expand_dims", "broadcast", "reshape")

_Place = tuple[Value, _Trace]


def dot_families(module: Module) -> tuple[DotFamily, ...]:
    """Return the families of all dots of tiles in a kernel without calls."""
    dots = [operation for operation in module.kernel.body.walk() if operation.name == "dot"]
    uses = _Uses(module.kernel.body)
    families = _Families(dots)
    reached: dict[Value, list[tuple[Operation, _Trace]]] = {}
    for dot in dots:
        for value, trace in uses.reach(dot.result):
            for user, index in uses.dots.get(value, ()):
                families.feed(dot, trace, user, index)
            for other, other_trace in reached.get(value, ()):
                families.meet(dot, trace, other, other_trace)
            reached.setdefault(value, []).append((dot, trace))
    return families.result()


class _Uses:
    """What each tile value becomes next, and which dots take it."""

    def __init__(self, body: Block) -> None:
        self.dots: dict[Value, list[tuple[Operation, int]]] = {}
        self._flows: dict[Value, list[Value]] = {}  # the same value under another name
        self._users: dict[Value, list[Operation]] = {}
        for operation in body.walk():
            self._record(operation)

    def reach(self, start: Value) -> Iterator[_Place]:
        """Yield all that a dot's result becomes before it enters another dot."""
        pending: list[_Place] = [(start, _Trace.SAME)]
        seen = set(pending)
        while pending:
            value, trace = pending.pop()
            yield value, trace
            after = [(target, trace) for target in self._flows.get(value, ())]
            for user in self._users.get(value, ()):
                next_trace = _through(user, trace)
                if next_trace is not None:
                    after.append((user.result, next_trace))
            for place in after:
                if place not in seen:
                    seen.add(place)
                    pending.append(place)

    def _record(self, operation: Operation) -> None:
        if operation.name == "dot":
            for index, operand in enumerate(operation.operands):
                self.dots.setdefault(operand, []).append((operation, index))
        elif operation.regions:
            for sources, targets in _carried(operation):
                for source, target in zip(sources, targets, strict=True):
                    self._flows.setdefault(source, []).append(target)
        else:
            for operand in operation.operands:
                if isinstance(operand.type, TileType):
                    self._users.setdefault(operand, []).append(operation)


def _carried(operation: Operation) -> Iterator[tuple[Iterable[Value], Iterable[Value]]]:
    """Yield which values control flow passes on as which."""
    ends = [region.terminator.operands for region in operation.regions]
    match operation.name:
        case "for":
            for values in (operation.operands[3:], ends[0]):
                yield values, operation.regions[0].arguments[1:]
                yield values, operation.results
        case "while":
            before, after = operation.regions
            yield operation.operands, before.arguments
            yield ends[0][1:], after.arguments
            yield ends[0][1:], operation.results
            yield ends[1], before.arguments
        case _:
            for values in ends:
                yield values, operation.results


def _through(operation: Operation, trace: _Trace) -> _Trace | None:
    """Return the trace of an operation's result if an operand has `trace`; None if it is lost."""
    is_reduced = trace in _REDUCED
    match operation.name:
        case "reduce" if trace is _Trace.SAME and len(shape_of(operation.operands[0].type)) == 2:
            return _Trace.OF_COLUMNS if operation.attributes["axis"] == 0 else _Trace.OF_ROWS
        case "transpose":
            return _FLIPPED.get(trace)
        case name if name in _WIDENING:
            return trace if is_reduced else None
        case "reduce":
            return None
        case name:
            is_elementwise = SPECS[name].effect is Effect.PURE and len(operation.results) == 1
            return trace if is_elementwise else None


class _Families:
    """Union-find over the dots, with the axes wished for."""

    def __init__(self, dots: Iterable[Operation]) -> None:
        self._parent = {dot: dot for dot in dots}
        self._wishes: list[tuple[Operation, WarpAxis]] = []

    def feed(self, dot: Operation, trace: _Trace, user: Operation, index: int) -> None:
        """Take note that `user` has what came of `dot` as operand `index`."""
        match index, trace:
            case 2, _:
                self.meet(dot, trace, user, _Trace.SAME)
            case 0, _Trace.SAME:
                self._wish(dot, WarpAxis.ROWS, user, WarpAxis.ROWS)
            case 1, _Trace.TURNED:
                self._wish(dot, WarpAxis.ROWS, user, WarpAxis.COLUMNS)

    def meet(self, dot: Operation, trace: _Trace, other: Operation, other_trace: _Trace) -> None:
        """Take note that one value depends on what came of both dots."""
        if trace is other_trace is _Trace.SAME:
            self._parent[self._find(dot)] = self._find(other)
        elif dot is not other and {trace, other_trace} & {_Trace.SAME}:
            reduced = other_trace if trace is _Trace.SAME else trace
            if reduced in _REDUCED:
                self._wish(dot, _REDUCED[reduced], other, _REDUCED[reduced])

    def result(self) -> tuple[DotFamily, ...]:
        members: dict[Operation, list[Operation]] = {}
        for dot in self._parent:
            members.setdefault(self._find(dot), []).append(dot)
        wished: dict[Operation, set[WarpAxis]] = {}
        for dot, axis in self._wishes:
            wished.setdefault(self._find(dot), set()).add(axis)
        return tuple(
            DotFamily(tuple(dots), _strongest(wished.get(root, set())))
            for root, dots in members.items()
        )

    def _wish(self, dot: Operation, axis: WarpAxis, user: Operation, user_axis: WarpAxis) -> None:
        self._wishes += [(dot, axis), (user, user_axis)]

    def _find(self, dot: Operation) -> Operation:
        while self._parent[dot] is not dot:
            dot = self._parent[dot]
        return dot


def _strongest(wishes: set[WarpAxis]) -> WarpAxis:
    for axis in (WarpAxis.ROWS, WarpAxis.COLUMNS):
        if axis in wishes:
            return axis
    return WarpAxis.SQUARE
