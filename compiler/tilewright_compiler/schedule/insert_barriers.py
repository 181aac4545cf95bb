"""Scheduled tile IR -> the same with a `barrier` wherever a thread must wait for others.

A forward walk keeps what was touched since the last barrier. An operation that meets some of it
(`accesses`) gets a barrier before itself. An exchange between threads has one inside: what it
leaves behind is only its reading. An asynchronous copy is out of a barrier's reach until a wait
covers its group; then it is a write of the threads that copied.

Loops are walked until what an iteration leaves to the next is known, with the barriers that this
asks for; those of the last walk are inserted. Two rules save barriers:

- before rather than inside an `if`, if that makes fewer inside: then the other branch and what
  follows have had theirs too. An exchange alone keeps its barrier inside, next to its own one,
  unless a written tile waits for a barrier anyway;
- before rather than inside a loop, where only what precedes the loop makes it necessary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilewright.errors import InternalCompilerError
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
    walk = _Walk(module)
    walk.block(module.kernel.body, frozenset())
    for operation in walk.early:
        msg = f"{operation.name} touches memory whose asynchronous copy nobody has waited for"
        raise InternalCompilerError(msg)

    def rewrite(operation: Operation, _operands: tuple[Value, ...], builder: Builder) -> None:
        groups = walk.barriers.get(operation)
        if groups is None:
            return
        barrier = builder.create("barrier")
        if groups > 1:
            barrier.attributes["groups"] = groups

    return rewrite_module(module, rewrite)


class _Walk:
    """One analysis of a module. `barriers` are the operations that need one before themselves, and
    of how many groups of warps each: 1 is a barrier of all.
    """

    def __init__(self, module: Module) -> None:
        self.barriers: dict[Operation, int] = {}
        self.early: dict[Operation, None] = {}
        self._accesses = Accesses(module)
        operations = list(module.kernel.body.walk())
        waits = [o.attributes["pending"] for o in operations if o.name in _WAITS]
        # Beyond this no wait tells counts of groups apart.
        self._most_groups: int = max(waits, default=0) + 1

    def block(self, block: Block, state: State) -> State:
        """Return what is left without a barrier behind a block that begins with `state`."""
        for operation in block.operations:
            match operation.name:
                case "if":
                    state = self._if(operation, state)
                case "for" | "while":
                    state = self._loop(operation, state)
                case "roles":
                    # The producer writes what mbarriers guard; a barrier is one of the consumers.
                    _, consumers = operation.regions
                    state = self.block(consumers, state)
                case "barrier":
                    state = _met(state, groups=operation.attributes.get("groups", 1))
                case "async_commit":
                    state = self._committed(state, dots=False)
                case "tma_store":
                    state = self._committed(self._operation(operation, state), dots=False)
                case "dot" if is_asynchronous(operation):
                    state = self._committed(self._operation(operation, state), dots=True)
                case "async_wait" | "tma_store_wait" | "dot_wait":
                    pending: int = operation.attributes["pending"]
                    dots = operation.name == "dot_wait"
                    state = frozenset(_arrived(access, pending, dots=dots) for access in state)
                case _:
                    state = self._operation(operation, state)
        return state

    def _operation(self, operation: Operation, state: State) -> State:
        if not self._accesses.of(operation):
            return state
        own = self._accesses.before(operation)
        met = [before for before in state if any(access.meets(before) for access in own)]
        due = [before for before in met if before.groups is None]
        if self._decide(operation, bool(due), groups=_groups(own, due)):
            state = _met(state, groups=self.barriers[operation])
        if any(before.groups is not None for before in met):
            self.early[operation] = None
        else:
            self.early.pop(operation, None)
        if self._accesses.is_exchange(operation):
            state = _met(state)
        return state.union(self._accesses.left_by(operation))

    def _if(self, branch: Operation, state: State) -> State:
        self._decide(branch, needs_barrier=False)
        after = self._branches(branch, state)
        inside = self._cost(branch.regions)
        if not inside or not (any(map(_waits, state)) or self._is_due(branch)):
            return after
        after_meeting = self._branches(branch, _met(state))
        if self._decide(branch, self._cost(branch.regions) < inside):
            return after_meeting
        return self._branches(branch, state)

    def _is_due(self, branch: Operation) -> bool:
        """Whether anything but an exchange inside a branch needs a barrier."""
        inside = (inner for inner in branch.walk() if inner in self.barriers)
        return any(not self._accesses.is_exchange(inner) for inner in inside)

    def _branches(self, branch: Operation, state: State) -> State:
        then, otherwise = (self.block(region, state) for region in branch.regions)
        return then | otherwise

    def _loop(self, loop: Operation, state: State) -> State:
        self._decide(loop, needs_barrier=False)
        after = self._settle(loop, state)
        inside = self._cost(loop.regions)
        if not inside or _met(state) == state:
            return after
        after_meeting = self._settle(loop, _met(state))
        if self._decide(loop, self._cost(loop.regions) < inside):
            return after_meeting
        return self._settle(loop, state)

    def _settle(self, loop: Operation, state: State) -> State:
        """Walk a loop until an iteration adds nothing to what the next begins with."""
        begin = state
        while True:
            left, end = self._iterate(loop, begin)
            if end <= begin:
                break
            begin |= end
        # Early rounds saw fewer barriers, so `begin` may hold what is never left: try without.
        if state | end != begin:
            less = state | end
            left_less, end_less = self._iterate(loop, less)
            if end_less <= less:
                left = left_less
            else:
                left, _ = self._iterate(loop, begin)
        return frozenset(self._accesses.after_loop(access, loop) for access in left)

    def _iterate(self, loop: Operation, begin: State) -> tuple[State, State]:
        """Return what is left where the loop may end, and what the next iteration begins with."""
        left = begin
        if loop.name == "while":
            left = self.block(loop.regions[0], begin)
        end = self.block(loop.regions[-1], left)
        return left, frozenset(self._accesses.next_iteration(access, loop) for access in end)

    def _decide(self, operation: Operation, needs_barrier: bool, *, groups: int = 1) -> bool:
        if needs_barrier:
            self.barriers[operation] = groups
        else:
            self.barriers.pop(operation, None)
        return needs_barrier

    def _cost(self, regions: Iterable[Block]) -> int:
        cost = 0
        for region in regions:
            for operation in region.operations:
                weight = _LOOP_WEIGHT if operation.name in ("for", "while") else 1
                cost += (operation in self.barriers) + weight * self._cost(operation.regions)
        return cost

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


def _groups(own: Iterable[Access], due: Iterable[Access]) -> int:
    """Return how many groups of warps may meet by themselves, where `own` meets what is `due`."""
    pairs = [(access, before) for access in own for before in due if access.meets(before)]
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
