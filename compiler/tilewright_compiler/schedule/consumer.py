"""The consumers of a specialised kernel: the program itself, on tiles that others copy.

Where a group of tiles is first named, they wait until its slot is full. Dots are asynchronous, and
a slot is given back when the dots that read it are done:

- In a loop whose dots only add to what they carry, each iteration waits for the dots of the one
  before and gives back that one's slot, so that dots follow each other without a gap. The wait for
  the last iteration stands behind the loop.
- Anywhere else, a wait for all dots stands before the first use of any of their results, and at the
  end of the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.abi.dtypes import int1
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.types import ScalarType, SharedType
from tilewright_compiler.layout.atoms import ATOMS
from tilewright_compiler.schedule.fetch_groups import FetchGroup, Groups, uses
from tilewright_compiler.schedule.role import Rings, Role


class Consumer(Role):
    """Rebuilds a kernel's blocks for the warps that compute."""

    def __init__(
        self, groups: Groups, rings: Mapping[FetchGroup, Rings], values: Mapping[Value, Value]
    ) -> None:
        super().__init__(groups, rings, values)
        # Results of dots that may still run, and groups that are to be given back after them.
        self._running: list[Value] = []
        self._left: list[FetchGroup] = []
        # Slots of this iteration, of groups that something will still read.
        self._slots: dict[FetchGroup, Value] = {}
        self._last_users: dict[Operation, list[FetchGroup]] = {}
        self._flowing: set[Operation] = set()

    def operation(self, operation: Operation, builder: Builder) -> None:
        """Rebuild an operation of a block, with the waits that it needs."""
        builder.location = operation.location
        if operation.name == "tma_tile":
            self._await(operation, builder)
            return
        if not self._may_follow(operation):
            self._settle(builder)
        self.copy(operation, builder)
        if is_asynchronous(operation) and operation not in self._flowing:
            self._running.append(operation.result)
        self._left += self._last_users.pop(operation, ())
        if not self._running:
            self._give_back(builder)

    def end(self, builder: Builder) -> None:
        """Wait for what still runs, and give back what is left."""
        self._settle(builder)

    def loop_body(self, loop: Operation, builder: Builder) -> None:
        """Rebuild the body of a loop, with the wait for the dots of the iteration before."""
        (body,) = loop.regions
        groups = self.groups.get(body, ())
        flow = _flow(loop, groups)
        if flow is None:
            self._note_last_users(body, groups)
            super().loop_body(loop, builder)
            return
        self._flowing.update(flow)
        before = {group: self.counters[group] for group in groups}
        super().loop_body(loop, builder)
        builder.location = flow[-1].location
        self._wait(_ends(flow, body), builder, pending=len(flow))
        lower = self.values.get(loop.operands[0], loop.operands[0])
        induction = self.values[body.arguments[0]]
        is_later = builder.value("cmp", [induction, lower], ScalarType(int1), predicate="ne")
        slots = [(g, before[g].previous_slot(builder, g.slots)) for g in groups]
        self._arrive_if(is_later, slots, builder)

    def loop(self, loop: Operation, inside: Sequence[FetchGroup], builder: Builder) -> None:
        """Rebuild a loop, and wait behind it for the dots of its last iteration."""
        super().loop(loop, inside, builder)
        (body,) = loop.regions
        groups = self.groups.get(body, ())
        flow = _flow(loop, groups)
        if flow is None:
            return
        ends = _ends(flow, body)
        yielded = body.terminator.operands
        results = [loop.results[yielded.index(end)] for end in ends]
        self._wait(results, builder, pending=0)
        bounds = [self.values.get(value, value) for value in loop.operands[:2]]
        has_run = builder.value("cmp", bounds, ScalarType(int1), predicate="lt")
        slots = [(g, self.counters[g].previous_slot(builder, g.slots)) for g in groups]
        self._arrive_if(has_run, slots, builder)

    def _await(self, tile: Operation, builder: Builder) -> None:
        group = self.group_of[tile]
        if tile is group.tiles[0]:
            counter = self.counters[group]
            full = self.mbarrier(self.rings[group].full, counter.slot, builder)
            builder.create("mbarrier_wait", [full, counter.parity])
            self._slots[group] = counter.slot
            self.counters[group] = counter.advanced(builder, group.slots)
        self.values[tile.result] = self.place(tile, self._slots[group], builder)

    def _may_follow(self, operation: Operation) -> bool:
        """Whether an operation may run before the dots that are under way are done."""
        if not self._running:
            return True
        if operation.regions:
            return False
        # The hardware keeps the order of dots that add to the same registers.
        read = operation.operands[:2] if is_asynchronous(operation) else operation.operands
        return not any(value in self._running for value in read)

    def _settle(self, builder: Builder) -> None:
        if self._running:
            self._wait(self._running, builder, pending=0)
            self._running.clear()
        self._give_back(builder)

    def _wait(self, dots: Sequence[Value], builder: Builder, *, pending: int) -> None:
        """Wait for dots; their results are what the wait gives from here on."""
        operands = [self.values[value] for value in dots]
        wait = builder.create(
            "dot_wait", operands, [value.type for value in operands], pending=pending
        )
        for value, result in zip(dots, wait.results, strict=True):
            result.name = value.name
            self.values[value] = result

    def _give_back(self, builder: Builder) -> None:
        for group in self._left:
            self._arrive(group, self._slots[group], builder)
        self._left.clear()

    def _arrive(self, group: FetchGroup, slot: Value, builder: Builder) -> None:
        empty = self.mbarrier(self.rings[group].empty, slot, builder)
        builder.create("mbarrier_arrive", [empty])

    def _arrive_if(
        self, condition: Value, slots: Sequence[tuple[FetchGroup, Value]], builder: Builder
    ) -> None:
        then, otherwise = Block(), Block()
        inside = Builder(then, builder.location)
        for group, slot in slots:
            self._arrive(group, slot, inside)
        if not slots:
            return
        inside.create("yield")
        Builder(otherwise, builder.location).create("yield")
        builder.create("if", [condition], (), [then, otherwise])

    def _note_last_users(self, body: Block, groups: Sequence[FetchGroup]) -> None:
        for group in groups:
            of_group = (*group.tiles, *group.users)
            last = max(of_group, key=body.operations.index)
            self._last_users.setdefault(last, []).append(group)


def is_asynchronous(operation: Operation) -> bool:
    """Whether an operation is a dot that runs on after it was started."""
    return operation.name == "dot" and ATOMS[operation.attributes["atom"]].is_wgmma


def _flow(loop: Operation, groups: Sequence[FetchGroup]) -> tuple[Operation, ...] | None:
    """Return the dots of a loop if all only add to what it carries, and read what arrives.

    None if there are none, if anything of the loop needs a result within its iteration, if a dot
    takes registers that the next iteration overwrites, or if a slot must be given back at once.
    """
    (body,) = loop.regions
    dots = tuple(operation for operation in body.operations if is_asynchronous(operation))
    inside = [operation for operation in body.walk() if is_asynchronous(operation)]
    if not dots or len(inside) != len(dots) or any(group.slots < 2 for group in groups):
        return None
    used = uses(body)
    for dot in dots:
        is_read = all(isinstance(value.type, SharedType) for value in dot.operands[:2])
        follows = used.get(dot.result, [])
        if not is_read or len(follows) != 1:
            return None
        (user,) = follows
        adds = user in dots and user.operands[2] is dot.result
        if not adds and user is not body.terminator:
            return None
    ends = _ends(dots, body)
    for end in ends:
        index = body.terminator.operands.index(end)
        start = body.arguments[1 + index]
        chain = _chain(end, dots)
        if chain[0].operands[2] is not start or used.get(start, []) != [chain[0]]:
            return None
    return dots


def _ends(dots: Sequence[Operation], body: Block) -> list[Value]:
    """Return the results of dots that the body yields."""
    return [dot.result for dot in dots if dot.result in body.terminator.operands]


def _chain(end: Value, dots: Sequence[Operation]) -> list[Operation]:
    """Return the dots that add to the registers of `end`, the first one first."""
    by_result = {dot.result: dot for dot in dots}
    chain = []
    value = end
    while value in by_result:
        chain.append(by_result[value])
        value = by_result[value].operands[2]
    return chain[::-1]
