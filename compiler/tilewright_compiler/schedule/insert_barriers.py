"""Scheduled tile IR -> the same with a `barrier` wherever a thread must wait for others.

A forward walk keeps what was touched since the last barrier. An operation that meets some of it
(`accesses`) gets a barrier before itself. An exchange between threads has one inside: what it
leaves behind is only its reading. An asynchronous copy is out of a barrier's reach until a wait
covers its group; then it is a write of the threads that copied.

Loops are walked until what an iteration leaves to the next is known, with the barriers that this
asks for; those of the last walk are inserted. What a walk of a block finds depends on nothing but
what was left before it, and is remembered: each loop and branch walks what is inside several
times, so that without a memory the time would grow exponentially with the depth of nesting.

Two rules save barriers:

- before rather than inside an `if`, if that makes fewer inside: then the other branch and what
  follows have had theirs too. An exchange alone keeps its barrier inside, next to its own one,
  unless a written tile waits for a barrier anyway;
- before rather than inside a loop, where only what precedes the loop makes it necessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.schedule.accesses import Access, Accesses, SharedPlace
from tilewright_compiler.schedule.running_dots import is_asynchronous

State = frozenset[Access]

_WAITS = ("async_wait", "tma_store_wait", "dot_wait")

# How often a loop is taken to run when barriers inside it are weighed against each other.
_LOOP_WEIGHT = 16


def insert_barriers(module: Module) -> Module:
    """Insert the barriers that a module with places in shared memory needs.

    Raises InternalCompilerError if memory is touched while a copy to or from it is under way.
    """
    found = _Walk(module).block(module.kernel.body, frozenset())
    for operation in found.early:
        msg = f"{operation.name} touches memory whose asynchronous copy nobody has waited for"
        raise InternalCompilerError(msg)

    def rewrite(operation: Operation, _operands: tuple[Value, ...], builder: Builder) -> None:
        groups = found.barriers.get(operation)
        if groups is None:
            return
        barrier = builder.create("barrier")
        if groups > 1:
            barrier.attributes["groups"] = groups

    return rewrite_module(module, rewrite)


@dataclass(slots=True, eq=False)
class _Found:
    """What a walk found so far, and `left` without a barrier.

    `barriers` are the operations that need one before themselves, and of how many groups of warps
    each: 1 is a barrier of all. `cost` is how many they are, those inside loops weighted.
    """

    left: State
    barriers: dict[Operation, int] = field(default_factory=dict)
    early: list[Operation] = field(default_factory=list)
    cost: int = 0

    def meet(self, operation: Operation, *, groups: int = 1) -> None:
        """Put a barrier before an operation."""
        self.barriers[operation] = groups
        self.cost += 1
        self.left = _met(self.left, groups=groups)

    def include(self, inside: _Found, *, weight: int = 1) -> None:
        """Add what was found inside an operation, but for what that left."""
        self.barriers |= inside.barriers
        self.early += inside.early
        self.cost += weight * inside.cost


class _Walk:
    """One analysis of a module."""

    def __init__(self, module: Module) -> None:
        self._accesses = Accesses(module)
        self._known: dict[tuple[Block, State], _Found] = {}
        operations = list(module.kernel.body.walk())
        waits = [o.attributes["pending"] for o in operations if o.name in _WAITS]
        # Beyond this no wait tells counts of groups apart.
        self._most_groups: int = max(waits, default=0) + 1

    def block(self, block: Block, state: State) -> _Found:
        """Return what a walk of a block finds that begins with `state`."""
        known = self._known.get((block, state))
        if known is None:
            known = self._known[block, state] = self._walked(block, state)
        return known

    def _walked(self, block: Block, state: State) -> _Found:
        found = _Found(state)
        for operation in block.operations:
            match operation.name:
                case "if":
                    self._if(operation, found)
                case "for" | "while":
                    self._loop(operation, found)
                case "roles":
                    # The producer writes what mbarriers guard; a barrier is one of the consumers.
                    _, consumers = operation.regions
                    inside = self.block(consumers, found.left)
                    found.include(inside)
                    found.left = inside.left
                case "barrier":
                    found.left = _met(found.left, groups=operation.attributes.get("groups", 1))
                case "async_commit":
                    found.left = self._committed(found.left, dots=False)
                case "tma_store":
                    self._operation(operation, found)
                    found.left = self._committed(found.left, dots=False)
                case "dot" if is_asynchronous(operation):
                    self._operation(operation, found)
                    found.left = self._committed(found.left, dots=True)
                case "async_wait" | "tma_store_wait" | "dot_wait":
                    pending: int = operation.attributes["pending"]
                    dots = operation.name == "dot_wait"
                    arrived = (_arrived(access, pending, dots=dots) for access in found.left)
                    found.left = frozenset(arrived)
                case _:
                    self._operation(operation, found)
        return found

    def _operation(self, operation: Operation, found: _Found) -> None:
        if not self._accesses.of(operation):
            return
        own = self._accesses.before(operation)
        conflict = self._accesses.conflict
        pairs = [(a, before) for a in own for before in found.left if conflict(a, before)]
        due = [pair for pair in pairs if pair[1].groups is None]
        if due:
            found.meet(operation, groups=_groups(due))
        if len(due) < len(pairs):
            found.early.append(operation)
        if self._accesses.is_exchange(operation):
            found.left = _met(found.left)
        found.left = found.left.union(self._accesses.left_by(operation))

    def _if(self, branch: Operation, found: _Found) -> None:
        inside = self._branches(branch, found.left)
        if inside.cost and (any(map(_waits, found.left)) or self._is_due(inside)):
            after_meeting = self._branches(branch, _met(found.left))
            if after_meeting.cost < inside.cost:
                found.meet(branch)
                inside = after_meeting
        found.include(inside)
        found.left = inside.left

    def _is_due(self, inside: _Found) -> bool:
        """Whether anything but an exchange inside a branch needs a barrier."""
        return not all(map(self._accesses.is_exchange, inside.barriers))

    def _branches(self, branch: Operation, state: State) -> _Found:
        then, otherwise = (self.block(region, state) for region in branch.regions)
        inside = _Found(then.left | otherwise.left)
        inside.include(then)
        inside.include(otherwise)
        return inside

    def _loop(self, loop: Operation, found: _Found) -> None:
        inside = self._settle(loop, found.left)
        if inside.cost and _met(found.left) != found.left:
            after_meeting = self._settle(loop, _met(found.left))
            if after_meeting.cost < inside.cost:
                found.meet(loop)
                inside = after_meeting
        found.include(inside, weight=_LOOP_WEIGHT)
        found.left = inside.left

    def _settle(self, loop: Operation, state: State) -> _Found:
        """Walk a loop until an iteration adds nothing to what the next begins with."""
        begin = state
        while True:
            inside, end = self._iterate(loop, begin)
            if end <= begin:
                break
            begin |= end
        # Early rounds saw fewer barriers, so `begin` may hold what is never left: try without.
        less = state | end
        if less != begin:
            inside_less, end_less = self._iterate(loop, less)
            if end_less <= less:
                inside = inside_less
        left = (self._accesses.after_loop(access, loop) for access in inside.left)
        inside.left = frozenset(left)
        return inside

    def _iterate(self, loop: Operation, begin: State) -> tuple[_Found, State]:
        """Return what an iteration finds, with what is left where the loop may end, and what the
        next iteration begins with.
        """
        inside = _Found(begin)
        if loop.name == "while":
            condition = self.block(loop.regions[0], begin)
            inside.include(condition)
            inside.left = condition.left
        body = self.block(loop.regions[-1], inside.left)
        inside.include(body)
        end = (self._accesses.next_iteration(access, loop) for access in body.left)
        return inside, frozenset(access for access in end if access is not None)

    def _committed(self, state: State, *, dots: bool) -> State:
        """Return what is under way after one more group of dots, or of copies."""

        def counted(access: Access) -> Access:
            if access.groups is None or access.by_dot != dots:
                return access
            return replace(access, groups=min(access.groups + 1, self._most_groups))

        return frozenset(map(counted, state))


def _met(state: State, *, groups: int = 1) -> State:
    """Return what a barrier leaves: copies under way, and for other warps what its groups did."""
    if groups == 1:
        return frozenset(access for access in state if access.groups is not None)
    return frozenset(_settled(access, groups) for access in state)


def _settled(access: Access, groups: int) -> Access:
    """Return what an access is after the warps of each group have met."""
    place = access.place
    is_divided = isinstance(place, SharedPlace) and place.groups == groups
    return replace(access, is_settled=True) if is_divided and access.groups is None else access


def _groups(pairs: Sequence[tuple[Access, Access]]) -> int:
    """Return how many groups of warps may meet by themselves, where these accesses meet."""
    if not all(access.divides_like(before) for access, before in pairs):
        return 1
    divided = {access.place.groups for access, _ in pairs if isinstance(access.place, SharedPlace)}
    return divided.pop() if len(divided) == 1 else 1


def _arrived(access: Access, pending: int, *, dots: bool) -> Access:
    """Return what a copy, or a dot, is after a wait that leaves `pending` groups under way."""
    if access.groups is None or access.by_dot != dots or access.groups <= pending:
        return access
    return replace(access, groups=None)


def _waits(access: Access) -> bool:
    """Whether someone wrote to shared memory and a reader will need a barrier for it."""
    return access.is_write and access.groups is None and isinstance(access.place, SharedPlace)
