"""A module -> its groups of values that share a layout (`layout_groups`), in one walk.

Values are of three kinds:

- *cheap*: index arithmetic from `arange` and `splat`. It is recomputed in whatever layout is wanted
  and takes no part in the choice;
- *moved*: a change of shape (expand_dims, broadcast, reshape, transpose) of a value that is not
  cheap. It costs nothing in any layout if its source has the matching one, so it only passes wishes
  on;
- *anchored*: everything else. Anchored values joined by elementwise operations, loops and branches
  form a `Group`, and the choice is one layout for each group.

Loads and stores are not tied to their group: where the group's layout does not suit, one may use
another and convert. Where the pointer itself is anchored, one is tied to the pointer's group. What
it moves joins that group too, unless it has to do with a dot: then the tile is converted between
the two, so that pointers walk in a coalesced layout and the dot has its own.

Reductions and scans by a function, and look-ups of elements by their values, work on the layout
that their operands have; their operands share a group.

A dot gives its accumulator's layout and wants fixed ones of its operands, unless they lie in shared
memory. Its result is in one group with its accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.access_cost import Access
from tilewright_compiler.analysis.axis_info import AxisInfo
from tilewright_compiler.analysis.dot_layouts import layouts_of_dot
from tilewright_compiler.analysis.layout_groups import (
    AccessUse,
    Feed,
    Group,
    LayoutGroups,
    Use,
    leading_operand,
)
from tilewright_compiler.analysis.moves import MOVES
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops import arithmetic
from tilewright_compiler.ir.ops.atomics import ATOMICS, mask_index
from tilewright_compiler.ir.types import TileType, element_dtype

_CHEAP_SOURCES = ("arange", "splat")
_HINTS = ("multiple_of", "max_contiguous", "max_constancy")
_POINTERS = ("addptr", "address")
_CHEAP = (*arithmetic.BINARY, "cmp", "select", "cast", "bitcast", "neg", "abs", *_POINTERS, *_HINTS)
_LOOP_WEIGHT = 8


def group_values(module: Module, axis_info: Mapping[Value, AxisInfo]) -> LayoutGroups:
    """Find the groups of the kernel; raises InternalCompilerError if calls are left."""
    collector = _Collector(axis_info, module.signature.num_warps)
    collector.block(module.kernel.body, weight=1)
    return collector.finish()


class _Collector:
    """One walk in program order; definitions precede uses, so kinds are known when asked."""

    def __init__(self, axis_info: Mapping[Value, AxisInfo], num_warps: int) -> None:
        self._axis_info = axis_info
        self._num_warps = num_warps
        self._definitions: dict[Value, Operation] = {}
        self._cheap: set[Value] = set()
        self._parent: dict[Value, Value] = {}  # union-find over anchored values
        self._wants: list[tuple[Value, Value, int]] = []  # (operand, anchored wanter, weight)
        self._loads: list[tuple[Operation, int]] = []
        self._stores: list[tuple[Operation, int]] = []
        self._block_stores: list[Operation] = []
        self._reduces: list[tuple[Operation, int]] = []
        self._lookups: list[Operation] = []
        self._flips: list[tuple[Operation, int]] = []
        self._ties: list[tuple[Operation, Value, int]] = []  # accesses by anchored pointers
        self._dots: list[tuple[Operation, int]] = []

    def block(self, block: Block, *, weight: int) -> None:
        for argument in block.arguments:
            if isinstance(argument.type, TileType):
                self._anchor(argument)
        for operation in block.operations:
            self._operation(operation, weight)

    def _operation(self, operation: Operation, weight: int) -> None:
        for result in operation.results:
            self._definitions[result] = operation
        match operation.name:
            case "for":
                self._for(operation, weight)
            case "while":
                self._while(operation, weight)
            case "if":
                self._if(operation, weight)
            case "call":
                msg = f"call to {operation.attributes['callee']}: inline before assigning layouts"
                raise InternalCompilerError(msg)
            case "load" if isinstance(operation.result.type, TileType):
                self._anchor(operation.result)
                self._loads.append((operation, weight))
                pointer = operation.operands[0]
                if pointer in self._parent:
                    self._ties.append((operation, operation.result, weight))
                else:
                    self._tie(operation.result, (pointer,), weight)
                self._want(operation.result, operation.operands[1:], weight)
            case "store" if isinstance(operation.operands[0].type, TileType):
                self._stores.append((operation, weight))
                pointer, value = operation.operands[:2]
                if pointer in self._parent and value in self._parent:
                    self._ties.append((operation, value, weight))
                elif pointer in self._parent:
                    self._tie(pointer, (value,), weight)
            case "descriptor_store" | "descriptor_rmw":
                self._block_stores.append(operation)
            case name if name in ATOMICS and isinstance(operation.operands[0].type, TileType):
                self._atomic(operation, weight)
            case "dot":
                self._dot(operation, weight)
            case "reduce" | "reduce_with" | "scan":
                self._reduce(operation, weight)
            case "flip":
                self._compute(operation, weight)
                self._flips.append((operation, weight))
            case "gather" | "histogram":
                self._lookup(operation, weight)
            case _:
                self._compute(operation, weight)

    def _compute(self, operation: Operation, weight: int) -> None:
        results = [value for value in operation.results if isinstance(value.type, TileType)]
        if not results:
            return
        tiles = [value for value in operation.operands if isinstance(value.type, TileType)]
        if len(results) > 1:
            for result in results:
                self._anchor(result)
            self._tie(results[0], (*results[1:], *tiles), weight)
        elif _is_cheap(operation) and all(value in self._cheap for value in tiles):
            self._cheap.add(operation.result)
        elif operation.name not in MOVES:
            self._anchor(operation.result)
            self._tie(operation.result, tiles, weight)
        elif tiles[0] in self._cheap:
            self._cheap.add(operation.result)

    def _atomic(self, operation: Operation, weight: int) -> None:
        """Note a store, and what it gives in the group of its pointer, or else of its values."""
        self._stores.append((operation, weight))
        pointer, *values = operation.operands[: mask_index(operation)]
        for result in operation.results:
            self._anchor(result)
            if pointer not in self._parent:
                self._tie(result, values, weight)
        if pointer in self._parent:
            self._tie(pointer, operation.results, weight)
            for value in values:
                if value in self._parent:
                    self._ties.append((operation, value, weight))
                else:
                    self._tie(pointer, (value,), weight)

    def _reduce(self, operation: Operation, weight: int) -> None:
        self._reduces.append((operation, weight))
        tiles = [value for value in operation.results if isinstance(value.type, TileType)]
        for result in tiles:
            self._anchor(result)
        if tiles:
            self._tie(tiles[0], tiles[1:], weight)
        sources = [value for value in operation.operands if value in self._parent]
        if operation.name == "scan":
            self._tie(tiles[0], operation.operands, weight)
        elif sources:
            self._tie(sources[0], operation.operands, weight)

    def _lookup(self, operation: Operation, weight: int) -> None:
        """Note a look-up: each element goes where its index is, a histogram anywhere."""
        self._lookups.append(operation)
        self._anchor(operation.result)
        source, *others = operation.operands
        if operation.name == "gather":
            self._tie(operation.result, others, weight)
        elif source in self._parent:
            self._tie(source, others, weight)

    def _dot(self, operation: Operation, weight: int) -> None:
        self._dots.append((operation, weight))
        self._anchor(operation.result)
        accumulator = operation.operands[2]
        if accumulator in self._parent:
            self._union(operation.result, accumulator)

    def _for(self, operation: Operation, weight: int) -> None:
        (body,) = operation.regions
        self.block(body, weight=weight * _LOOP_WEIGHT)
        arguments = body.arguments[1:]
        self._join(operation.results, arguments)
        self._carry(operation.results, operation.operands[3:], weight)
        self._carry(operation.results, body.terminator.operands, weight * _LOOP_WEIGHT)

    def _while(self, operation: Operation, weight: int) -> None:
        before, after = operation.regions
        inner = weight * _LOOP_WEIGHT
        self.block(before, weight=inner)
        self.block(after, weight=inner)
        self._join(operation.results, after.arguments)
        self._carry(before.arguments, operation.operands, weight)
        self._carry(before.arguments, after.terminator.operands, inner)
        self._carry(operation.results, before.terminator.operands[1:], inner)

    def _if(self, operation: Operation, weight: int) -> None:
        for region in operation.regions:
            self.block(region, weight=weight)
        for result in operation.results:
            if isinstance(result.type, TileType):
                self._anchor(result)
        for region in operation.regions:
            self._carry(operation.results, region.terminator.operands, weight)

    def _join(self, results: Iterable[Value], arguments: Iterable[Value]) -> None:
        for result, argument in zip(results, arguments, strict=True):
            if isinstance(result.type, TileType):
                self._anchor(result)
                self._union(argument, result)

    def _carry(self, targets: Iterable[Value], values: Iterable[Value], weight: int) -> None:
        for target, value in zip(targets, values, strict=True):
            if isinstance(target.type, TileType):
                self._tie(target, (value,), weight)

    def _anchor(self, value: Value) -> None:
        self._parent.setdefault(value, value)

    def _find(self, value: Value) -> Value:
        while self._parent[value] is not value:
            self._parent[value] = self._parent[self._parent[value]]
            value = self._parent[value]
        return value

    def _union(self, first: Value, second: Value) -> None:
        self._parent[self._find(second)] = self._find(first)

    def _tie(self, value: Value, operands: Iterable[Value], weight: int) -> None:
        for operand in operands:
            if operand in self._parent:
                self._union(value, operand)
            elif operand not in self._cheap:
                self._wants.append((operand, value, weight))

    def _want(self, value: Value, operands: Iterable[Value], weight: int) -> None:
        self._wants += [(o, value, weight) for o in operands if o not in self._cheap]

    def _tie_accesses(self) -> None:
        """Join what accesses move with their anchored pointers, unless a dot has it."""
        for operation, value, weight in self._ties:
            pointer = operation.operands[0]
            if self._find(value) not in {self._find(seen) for seen in self._seen_by_dots()}:
                self._union(value, pointer)
            elif operation.name != "load":
                self._wants.append((value, pointer, weight))

    def _seen_by_dots(self) -> Iterator[Value]:
        """Yield results of dots and the anchored values behind their operands."""
        for operation, _ in self._dots:
            yield operation.result
            for value in operation.operands[:2]:
                source = value
                if not isinstance(source.type, TileType):
                    continue
                while source not in self._parent and source not in self._cheap:
                    source = self._definitions[source].operands[0]
                if source in self._parent:
                    yield source

    def finish(self) -> LayoutGroups:
        self._tie_accesses()
        groups: dict[Value, Group] = {}
        group_of: dict[Value, Group] = {}
        for value in self._parent:
            root = self._find(value)
            if root not in groups:
                assert isinstance(value.type, TileType)
                groups[root] = Group(len(groups), value.type.shape)
            groups[root].values.append(value)
            group_of[value] = groups[root]
        result = LayoutGroups(
            tuple(groups.values()),
            group_of,
            self._definitions,
            frozenset(self._cheap),
            tuple(self._store_use(operation, weight) for operation, weight in self._stores),
            tuple(self._block_stores),
            tuple(operation for operation, _ in self._reduces),
            tuple(self._lookups),
            {o: layouts_of_dot(o, num_warps=self._num_warps) for o, _ in self._dots},
        )
        self._connect(result)
        return result

    def _connect(self, result: LayoutGroups) -> None:
        # Masks are wanted where their load works: with an anchored pointer.
        loads = {operation.result: operation.operands[0] for operation, _ in self._loads}
        for operand, value, weight in self._wants:
            origin = result.origin(operand)
            user = result.group_of.get(loads.get(value, value)) or result.group_of[value]
            if origin is None:
                continue
            source = result.group_of[origin[0]]
            if source is user and not origin[1]:
                continue
            use = Use(operand, user, weight)
            user.operands.append(use)
            source.users.append(use)
        for operation, weight in self._loads:
            group = result.group_of[operation.result]
            pointer = operation.operands[0]
            tied = pointer in result.group_of
            value = pointer if tied else operation.result
            access = Access.of(operation, self._axis_info)
            result.group_of[value].accesses.append(
                AccessUse(operation, access, value, tied, weight)
            )
            if result.group_of[value] is not group:
                group.given.append((operation, weight))
        for store in result.stores:
            origin = result.origin(store.value)
            if origin is not None:
                result.group_of[origin[0]].accesses.append(store)
        for operation, weight in self._reduces:
            origin = result.origin(leading_operand(operation, result))
            if origin is not None:
                result.group_of[origin[0]].reductions.append((operation, weight))
            if operation.results[0] in result.group_of and operation.name != "scan":
                result.group_of[operation.results[0]].given.append((operation, weight))
        for operation, weight in self._flips:
            result.group_of[operation.result].flips.append((operation, weight))
        for operation, weight in self._dots:
            layouts = result.dots[operation]
            result.group_of[operation.result].given.append((operation, weight))
            wanted = (layouts.a, layouts.b, layouts.acc)
            for index, layout in enumerate(wanted):
                if not isinstance(operation.operands[index].type, TileType):
                    continue
                origin = result.origin(operation.operands[index])
                if origin is not None:
                    feed = Feed(operation, index, layout, weight)
                    result.group_of[origin[0]].feeds.append(feed)

    def _store_use(self, operation: Operation, weight: int) -> AccessUse:
        pointer = operation.operands[0]
        tied = pointer not in self._cheap
        value = operation.results[0] if operation.results else operation.operands[1]
        if tied:
            value = pointer
        access = Access.of(operation, self._axis_info)
        return AccessUse(operation, access, value, tied, weight)


def _is_cheap(operation: Operation) -> bool:
    if operation.name in ("div", "rem"):
        return not element_dtype(operation.result.type).is_float
    return operation.name in (*_CHEAP_SOURCES, *_CHEAP, *MOVES)
