"""What both roles of a specialised kernel share: rings, mbarriers, and the counters that say which
slot is next.

A counter is a slot and the parity of its phase. It runs on over loops: whoever carries groups
inside carries their counters, so that the copies of the next program start where those of the last
one ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.abi.dtypes import int1, int32
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.builder import Builder, ValueMap, copy_operation
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.types import MbarrierType, ScalarType
from tilewright_compiler.schedule.fetch_groups import (
    FetchGroup,
    Sites,
    groups_inside,
    shared_type,
)
from tilewright_compiler.schedule.loop_range import constant
from tilewright_compiler.schedule.unsuited import Unsuited

_I32 = ScalarType(int32)


@dataclass(frozen=True, slots=True)
class Rings:
    """The shared memory of a group: a ring for each tile, the mbarriers of full and empty slots."""

    tiles: tuple[Value, ...]
    full: Value
    empty: Value


@dataclass(frozen=True, slots=True)
class Counter:
    """Which slot of a group is next, and the parity of the phase in which it becomes full."""

    slot: Value
    parity: Value

    def advanced(self, builder: Builder, slots: int) -> Counter:
        """Return the counter of the slot after this one."""
        one = constant(builder, 1, int32)
        turned = builder.value("xor", [self.parity, one], _I32)
        if slots == 1:
            return replace(self, parity=turned)
        moved = builder.value("add", [self.slot, one], _I32)
        end, zero = constant(builder, slots, int32), constant(builder, 0, int32)
        wraps = builder.value("cmp", [moved, end], ScalarType(int1), predicate="eq")
        return Counter(
            builder.value("select", [wraps, zero, moved], _I32),
            builder.value("select", [wraps, turned, self.parity], _I32),
        )

    def previous_slot(self, builder: Builder, slots: int) -> Value:
        """Return the slot before this one."""
        zero, one = constant(builder, 0, int32), constant(builder, 1, int32)
        is_first = builder.value("cmp", [self.slot, zero], ScalarType(int1), predicate="eq")
        before = builder.value("sub", [self.slot, one], _I32)
        last = constant(builder, slots - 1, int32)
        return builder.value("select", [is_first, last, before], _I32)


class Role(ABC):
    """Rebuilds the blocks of a kernel for one role; `values` maps old values to those of the role.

    Subclasses say what becomes of the operations that the roles do differently.
    """

    def __init__(
        self, sites: Sites, rings: Mapping[FetchGroup, Rings], values: Mapping[Value, Value]
    ) -> None:
        self.sites = sites
        self.rings = rings
        self.values: ValueMap = dict(values)
        self.counters: dict[FetchGroup, Counter] = {}
        self.site_of = {
            tile: site for found in sites.values() for site in found for tile in site.tiles
        }

    def region(self, operations: Sequence[Operation]) -> Block:
        """Return the role's region, which does `operations`."""
        block = Block()
        builder = Builder(block)
        for group in self.rings:
            zero = constant(builder, 0, int32)
            self.counters[group] = Counter(zero, zero)
        for operation in operations:
            self.operation(operation, builder)
        self.end(builder)
        builder.create("yield")
        return block

    @abstractmethod
    def operation(self, operation: Operation, builder: Builder) -> None:
        """Rebuild one operation of a block."""

    @abstractmethod
    def end(self, builder: Builder) -> None:
        """Add what a block needs before its terminator."""

    def copy(self, operation: Operation, builder: Builder) -> None:
        """Rebuild an operation with what is inside it."""
        builder.location = operation.location
        inside = groups_inside(operation, self.sites)
        if not operation.regions:
            copy_operation(operation, self.values, builder)
        elif operation.name == "for":
            self.loop(operation, inside, builder)
        elif operation.name == "if":
            self.branch(operation, inside, builder)
        elif inside:
            msg = f"tensor descriptors are read inside a {operation.name}"
            raise Unsuited(msg, operation)
        else:
            regions = [self._region(region) for region in operation.regions]
            copy_operation(operation, self.values, builder, regions)

    def loop(self, loop: Operation, inside: Sequence[FetchGroup], builder: Builder) -> None:
        """Rebuild a `for`, which carries the counters of the groups inside besides its own."""
        (old,) = loop.regions
        arguments = tuple(Value(argument.type, argument.name) for argument in old.arguments)
        self.values.update(zip(old.arguments, arguments, strict=True))
        initial = [value for group in inside for value in self._counter_values(group)]
        added = tuple(Value(value.type) for value in initial)
        self._set_counters(inside, added)
        body = Block((*arguments, *added))
        inner = Builder(body, loop.location)
        self.loop_body(loop, inner)
        inner.location = old.terminator.location
        yielded = [self.values.get(value, value) for value in old.terminator.operands]
        yielded += [value for group in inside for value in self._counter_values(group)]
        inner.create("yield", yielded)
        operands = [self.values.get(value, value) for value in loop.operands]
        builder.location = loop.location
        new = builder.create(
            "for",
            [*operands, *initial],
            [value.type for value in (*arguments[1:], *added)],
            [body],
            **loop.attributes,
        )
        count = len(loop.results)
        for result, before in zip(new.results, loop.results, strict=False):
            result.name = before.name
        self.values.update(zip(loop.results, new.results[:count], strict=True))
        self._set_counters(inside, new.results[count:])

    def branch(self, operation: Operation, inside: Sequence[FetchGroup], builder: Builder) -> None:
        """Rebuild an `if`, which gives the counters of the groups inside besides its results."""
        before = dict(self.counters)
        regions = []
        for old in operation.regions:
            self.counters = dict(before)
            region = Block()
            inner = Builder(region, operation.location)
            for within in old.operations[:-1]:
                self.operation(within, inner)
            self.end(inner)
            yielded = [self.values.get(value, value) for value in old.terminator.operands]
            yielded += [value for group in inside for value in self._counter_values(group)]
            inner.create("yield", yielded)
            regions.append(region)
        condition = self.values.get(operation.operands[0], operation.operands[0])
        builder.location = operation.location
        types = [value.type for value in regions[0].terminator.operands]
        new = builder.create("if", [condition], types, regions)
        count = len(operation.results)
        for result, old_result in zip(new.results, operation.results, strict=False):
            result.name = old_result.name
        self.values.update(zip(operation.results, new.results[:count], strict=True))
        self.counters = before
        self._set_counters(inside, new.results[count:])

    def loop_body(self, loop: Operation, builder: Builder) -> None:
        """Rebuild the body of a loop but for its terminator."""
        for operation in loop.regions[0].operations[:-1]:
            self.operation(operation, builder)
        self.end(builder)

    def mbarrier(self, ring: Value, slot: Value, builder: Builder) -> Value:
        """Return the mbarrier of a slot."""
        return builder.value("mbarrier_slot", [ring, slot], MbarrierType())

    def place(self, tile: Operation, slot: Value, builder: Builder) -> Value:
        """Return the place of a tile in a slot of its group."""
        site = self.site_of[tile]
        ring = self.rings[site.group].tiles[site.tiles.index(tile)]
        place = builder.value("shared_slot", [ring, slot], shared_type(tile.result), position=0)
        place.name = tile.result.name
        return place

    def _region(self, block: Block) -> Block:
        copy = Block(tuple(Value(argument.type, argument.name) for argument in block.arguments))
        self.values.update(zip(block.arguments, copy.arguments, strict=True))
        builder = Builder(copy)
        for operation in block.operations[:-1]:
            self.operation(operation, builder)
        self.end(builder)
        copy_operation(block.terminator, self.values, builder)
        return copy

    def _counter_values(self, group: FetchGroup) -> tuple[Value, Value]:
        counter = self.counters[group]
        return counter.slot, counter.parity

    def _set_counters(self, groups: Sequence[FetchGroup], values: Sequence[Value]) -> None:
        for index, group in enumerate(groups):
            self.counters[group] = Counter(*values[2 * index : 2 * index + 2])
