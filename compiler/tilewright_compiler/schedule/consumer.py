"""The consumers of a specialised kernel: the program itself, on tiles that others copy.

Where a group of tiles is first named, they wait until its slot is full. Dots are asynchronous, and
a slot is given back when the dots that read it are done:

- In a loop whose dots only add to what they carry, each iteration waits for the dots of the one
  before and gives back that one's slot, so that dots follow each other without a gap. The wait for
  the last iteration stands behind the loop.
- Anywhere else, a wait for a dot stands before the first use of its result, and lets dots that were
  started later run on, a branch that starts none included. At the end of the block all are waited
  for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.abi.dtypes import int1
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.types import ScalarType, SharedType
from tilewright_compiler.schedule.fetch_groups import FetchGroup, Site, Sites, uses
from tilewright_compiler.schedule.role import Rings, Role
from tilewright_compiler.schedule.running_dots import is_asynchronous


@dataclass(frozen=True, slots=True)
class _Left:
    """A slot of a group that nothing will start to read, and the dots that may still read it."""

    group: FetchGroup
    slot: Value
    dots: frozenset[Operation]


class Consumer(Role):
    """Rebuilds a kernel's blocks for the warps that compute."""

    def __init__(
        self, sites: Sites, rings: Mapping[FetchGroup, Rings], values: Mapping[Value, Value]
    ) -> None:
        super().__init__(sites, rings, values)
        # Dots that may still run, in the order of their start; slots to be given back after them.
        self._running: list[Operation] = []
        self._left: list[_Left] = []
        # Slots that something will still read, and the last operations that do.
        self._slots: dict[Site, Value] = {}
        self._last_users: dict[Operation, list[Site]] = {}
        self._flowing: set[Operation] = set()

    def operation(self, operation: Operation, builder: Builder) -> None:
        """Rebuild an operation of a block, with the waits that it needs."""
        builder.location = operation.location
        if operation.name == "tma_tile":
            self._await(operation, builder)
        else:
            self._settle(self._needed(operation), builder)
            self._copy_under_dots(operation, builder)
            if is_asynchronous(operation) and operation not in self._flowing:
                self._running.append(operation)
        for site in self._last_users.pop(operation, ()):
            dots = site.users.intersection(self._running)
            self._left.append(_Left(site.group, self._slots.pop(site), dots))
        self._give_back(builder)

    def _copy_under_dots(self, operation: Operation, builder: Builder) -> None:
        """Rebuild an operation; dots that run on behind it concern nothing inside it."""
        outside = self._running, self._left
        self._running, self._left = [], []
        self.copy(operation, builder)
        self._running, self._left = outside

    def end(self, builder: Builder) -> None:
        """Wait for all that still runs, and give back what is left."""
        self._settle(len(self._running), builder)

    def loop_body(self, loop: Operation, builder: Builder) -> None:
        """Rebuild the body of a loop, with the wait for the dots of the iteration before."""
        (body,) = loop.regions
        sites = self.sites.get(body, ())
        flow = _flow(loop, sites)
        if flow is None:
            super().loop_body(loop, builder)
            return
        self._flowing.update(flow)
        before = {site: self.counters[site.group] for site in sites}
        super().loop_body(loop, builder)
        builder.location = flow[-1].location
        self._wait(_ends(flow, body), builder, pending=len(flow))
        lower = self.values.get(loop.operands[0], loop.operands[0])
        induction = self.values[body.arguments[0]]
        is_later = builder.value("cmp", [induction, lower], ScalarType(int1), predicate="ne")
        slots = [(s.group, before[s].previous_slot(builder, s.group.slots)) for s in sites]
        self._arrive_if(is_later, slots, builder)

    def loop(self, loop: Operation, inside: Sequence[FetchGroup], builder: Builder) -> None:
        """Rebuild a loop, and wait behind it for the dots of its last iteration."""
        super().loop(loop, inside, builder)
        (body,) = loop.regions
        sites = self.sites.get(body, ())
        flow = _flow(loop, sites)
        if flow is None:
            return
        ends = _ends(flow, body)
        yielded = body.terminator.operands
        results = [loop.results[yielded.index(end)] for end in ends]
        self._wait(results, builder, pending=0)
        bounds = [self.values.get(value, value) for value in loop.operands[:2]]
        has_run = builder.value("cmp", bounds, ScalarType(int1), predicate="lt")
        groups = [site.group for site in sites]
        slots = [(g, self.counters[g].previous_slot(builder, g.slots)) for g in groups]
        self._arrive_if(has_run, slots, builder)

    def _await(self, tile: Operation, builder: Builder) -> None:
        site = self.site_of[tile]
        group = site.group
        if tile is site.tiles[0]:
            counter = self.counters[group]
            full = self.mbarrier(self.rings[group].full, counter.slot, builder)
            builder.create("mbarrier_wait", [full, counter.parity])
            self._slots[site] = counter.slot
            self.counters[group] = counter.advanced(builder, group.slots)
            self._note_last_user(site)
        self.values[tile.result] = self.place(tile, self._slots[site], builder)

    def _note_last_user(self, site: Site) -> None:
        """Note after which operation of its block a slot is no longer read; not in a flow."""
        (block,) = (block for block, found in self.sites.items() if site in found)
        if not self._flowing.isdisjoint(block.operations):
            return
        last = max((*site.tiles, *site.users), key=block.operations.index)
        self._last_users.setdefault(last, []).append(site)

    def _needed(self, operation: Operation) -> int:
        """Return how many of the running dots must be done before an operation."""
        inside = [nested for region in operation.regions for nested in region.walk()]
        if operation.name in ("for", "while") or any(map(self._takes_part, inside)):
            return len(self._running)
        # The hardware keeps the order of dots that add to the same registers.
        read = list(operation.operands[:2] if is_asynchronous(operation) else operation.operands)
        read += [value for nested in inside for value in nested.operands]
        needed = [index for index, dot in enumerate(self._running) if dot.result in read]
        return max(needed, default=-1) + 1

    def _takes_part(self, operation: Operation) -> bool:
        """Whether an operation starts dots or takes tiles, which their order is kept for."""
        return is_asynchronous(operation) or operation in self.site_of

    def _settle(self, count: int, builder: Builder) -> None:
        """Wait for the first `count` running dots."""
        done, self._running = self._running[:count], self._running[count:]
        if done:
            self._wait([dot.result for dot in done], builder, pending=len(self._running))
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
        kept = []
        for left in self._left:
            if left.dots.isdisjoint(self._running):
                self._arrive(left.group, left.slot, builder)
            else:
                kept.append(left)
        self._left = kept

    def _arrive(self, group: FetchGroup, slot: Value, builder: Builder) -> None:
        empty = self.mbarrier(self.rings[group].empty, slot, builder)
        builder.create("mbarrier_arrive", [empty])

    def _arrive_if(
        self, condition: Value, slots: Sequence[tuple[FetchGroup, Value]], builder: Builder
    ) -> None:
        if not slots:
            return
        then, otherwise = Block(), Block()
        inside = Builder(then, builder.location)
        for group, slot in slots:
            self._arrive(group, slot, inside)
        inside.create("yield")
        Builder(otherwise, builder.location).create("yield")
        builder.create("if", [condition], (), [then, otherwise])


def _flow(loop: Operation, sites: Sequence[Site]) -> tuple[Operation, ...] | None:
    """Return the dots of a loop if all only add to what it carries, and read what arrives.

    None if there are none, if anything of the loop needs a result within its iteration, if a dot
    takes registers that the next iteration overwrites, or if a slot must be given back at once.
    """
    (body,) = loop.regions
    dots = tuple(operation for operation in body.operations if is_asynchronous(operation))
    inside = [operation for operation in body.walk() if is_asynchronous(operation)]
    if not dots or len(inside) != len(dots) or any(site.group.slots < 2 for site in sites):
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
    for end in _ends(dots, body):
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
