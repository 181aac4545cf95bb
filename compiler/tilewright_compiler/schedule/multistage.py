"""Loops with dots -> loops whose loads run some iterations ahead, through rings in shared memory.

With S stages, iteration k reads slot k mod S of each ring while the copies of iteration k + S - 1
are on their way into slot k - 1 mod S, which the iteration before has read:

    prologue, i = 0 .. S-2:  if iteration i exists: copy into slot i; commit -> token i
    body:                    wait for the oldest token
                             what the iteration computes, reading its slot; in between
                             if iteration k + S - 1 exists: copy into the slot ahead; commit
                             what was loaded into registers -> the slot ahead

The body runs as often and in the same order as before, so results are equal to the bit. Peeling the
last iterations instead of asking whether there is one ahead would double the code for one branch
that all threads take together. After the loop a wait says what is true already, that nothing is
under way, so that everything behind may reuse the rings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.abi.dtypes import int1, int32
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.axis_info import AxisInfo, analyze
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_block, clone_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import ScalarType, SharedType, TokenType
from tilewright_compiler.schedule.fetch import Fetch
from tilewright_compiler.schedule.loop_range import LoopRange, constant
from tilewright_compiler.schedule.pipelined_loads import (
    PipelinedLoad,
    PipelinedLoop,
    copies_asynchronously,
    must_run_ahead,
    plan_loop,
    require_ahead,
)

_MOVES = ("splat", "broadcast", "expand_dims", "reshape", "transpose", "convert_layout")


def multistage(module: Module, *, max_stages: int) -> Module:
    """Let the loads of loops run ahead, in as many stages as each asks for, at most `max_stages`.

    The module has layouts and no calls. Where no loop gains by it the copy is equal.
    """
    facts, synchronous = analyze(module), set[Operation]()
    while True:
        attempt = _Attempt(module, max_stages, facts, synchronous)
        attempt.require_ahead()
        result = attempt.module()
        if not attempt.copies:
            return result
        # Addresses ahead are others than those that the plan saw, and less may be known of them.
        new_facts = analyze(result)
        slow = {load for copy, load in attempt.copies if not _is_plannable(copy, new_facts)}
        if not slow:
            return result
        synchronous |= slow


def most_stages(module: Module) -> int:
    """Return the most stages that a loop of the module asks for, at least 1."""
    asked = [
        operation.attributes.get("num_stages", module.signature.num_stages)
        for operation in module.kernel.body.walk()
        if operation.name == "for"
    ]
    return max(asked, default=1)


def _is_plannable(copy: Operation, facts: Mapping[Value, AxisInfo]) -> bool:
    pointer, slot, *mask = copy.operands
    assert isinstance(slot.type, SharedType)
    return copies_asynchronously(pointer, mask[0] if mask else None, slot.type.layout, facts)


class _Attempt:
    """One rebuild of a module. `copies` are the asynchronous copies made, with their loads."""

    def __init__(
        self,
        module: Module,
        max_stages: int,
        facts: Mapping[Value, AxisInfo],
        synchronous: set[Operation],
    ) -> None:
        self._module = module
        self._max_stages = max_stages
        self._facts = facts
        self._synchronous = synchronous
        self._constants = _constants(module)
        self._values: ValueMap = {}
        # The slot that holds a pipelined load's tile, while its iteration is rebuilt.
        self._slots: dict[Value, Value] = {}
        self.copies: list[tuple[Operation, Operation]] = []

    def require_ahead(self) -> None:
        """Raise KernelValueError where a load that must run ahead does not."""
        body = self._module.kernel.body
        if not any(must_run_ahead(operation) for operation in body.walk()):
            return
        loops = [operation for operation in body.walk() if operation.name == "for"]
        require_ahead(body, {o: self._plan(o) for o in loops if self._stages(o) > 1})

    def module(self) -> Module:
        """Return the rebuilt module."""
        kernel = self._module.kernel
        body = clone_block(kernel.body, self._values, self._rewrite)
        function = Function(kernel.name, body, (), is_kernel=True, location=kernel.location)
        attributes = dict(self._module.attributes)
        return Module({kernel.name: function}, self._module.signature, attributes)

    def _rewrite(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> Sequence[Value] | None:
        match operation.name:
            case "for":
                plan = self._plan(operation)
                return None if plan is None else self._pipeline(plan, operands, builder)
            case "load" if operation.result in self._slots:
                return self._read(operation.result, operation, builder)
            case "convert_layout" if operation.operands[0] in self._slots:
                return self._read(operation.operands[0], operation, builder)
        return None

    def _plan(self, loop: Operation) -> PipelinedLoop | None:
        return plan_loop(
            loop,
            stages=self._stages(loop),
            facts=self._facts,
            constants=self._constants,
            synchronous=self._synchronous,
        )

    def _stages(self, loop: Operation) -> int:
        wanted: int = loop.attributes.get("num_stages", self._module.signature.num_stages)
        return min(wanted, self._max_stages)

    def _read(self, loaded: Value, operation: Operation, builder: Builder) -> tuple[Value]:
        """Read a slot in the layout that an operation gives its elements in."""
        tile = builder.value("shared_load", [self._slots[loaded]], operation.result.type)
        tile.name = operation.result.name
        return (tile,)

    def _pipeline(
        self, plan: PipelinedLoop, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        """Build the prologue and the loop; return the loop's results without what it added."""
        lower, upper, step, *initial = operands
        known_step = self._facts[plan.operation.operands[2]].constant
        span = LoopRange(lower, upper, step, known_step=known_step)
        rings = [
            _named(builder.value("alloc_shared", [], load.ring), load, "ring")
            for load in plan.loads
        ]
        ahead = {index: initial[index] for index in plan.slice.carried}
        turn = self._prologue(plan, span, rings, ahead, lower, builder)
        offset = span.offset(builder, plan.stages - 1)
        distance = span.distance(builder, plan.stages - 1)

        old = plan.operation.regions[0]
        arguments = tuple(Value(a.type, a.name) for a in old.arguments)
        self._values.update(zip(old.arguments, arguments, strict=True))
        inside = tuple(Value(value.type, value.name) for value in turn.values)
        body = Block((*arguments, *inside))
        inner = Builder(body, builder.location)
        begun = turn.renamed(inside)
        induction = arguments[0]
        if begun.tokens:
            inner.create("async_wait", [begun.tokens[0]], pending=plan.stages - 2)
        exists = span.goes_on(inner, induction, distance)
        induction = inner.value("add", [induction, offset], lower.type)
        ended = self._iteration(plan, rings, begun, induction, exists, inner)
        yielded = [self._values.get(value, value) for value in old.terminator.operands]
        inner.create("yield", [*yielded, *ended.values])

        carried = [*initial, *turn.values]
        types = [value.type for value in carried]
        loop = builder.create("for", [lower, upper, step, *carried], types, [body])
        results = loop.results[: len(initial)]
        if turn.tokens:
            last = turn.renamed(loop.results[len(initial) :]).tokens[-1]
            builder.create("async_wait", [last], pending=0)
        for result, before in zip(results, plan.operation.results, strict=True):
            result.name = before.name
        return results

    def _prologue(
        self,
        plan: PipelinedLoop,
        span: LoopRange,
        rings: Sequence[Value],
        ahead: Mapping[int, Value],
        lower: Value,
        builder: Builder,
    ) -> _Turn:
        """Fetch for the iterations that the first one finds on their way."""
        tokens: list[Value] = []
        for stage in range(plan.stages - 1):
            slots = _slots(builder, plan, rings, constant(builder, stage, int32), stage)
            induction = lower
            if stage:
                offset = span.offset(builder, stage)
                induction = builder.value("add", [lower, offset], lower.type)
            fetch = Fetch(plan, self._values, slots, self.copies)
            exists = span.begins(builder, stage)
            ahead = fetch.build(builder, induction, ahead, exists, stores=True)
            tokens += _commit(builder, plan)
        read, write = constant(builder, 0, int32), constant(builder, plan.stages - 1, int32)
        return _Turn(dict(ahead), tuple(tokens), read, write)

    def _iteration(
        self,
        plan: PipelinedLoop,
        rings: Sequence[Value],
        turn: _Turn,
        induction: Value,
        exists: Value,
        builder: Builder,
    ) -> _Turn:
        """Compute what the loop's body does, and fetch for the iteration of `induction`."""
        location = builder.location
        write = _slots(builder, plan, rings, turn.write, plan.stages - 1)
        read = _slots(builder, plan, rings, turn.read, 0)
        for load, slot in zip(plan.loads, read, strict=True):
            self._slots[load.operation.result] = slot
        operations = plan.operation.regions[0].operations[:-1]
        place = _place_of_fetch(plan, operations)
        for operation in operations[:place]:
            clone_operation(operation, self._values, builder, self._rewrite)
        builder.location = location
        fetch = Fetch(plan, self._values, write, self.copies)
        ahead = fetch.build(builder, induction, turn.ahead, exists, stores=False)
        tokens = (*turn.tokens[1:], *_commit(builder, plan))
        for operation in operations[place:]:
            clone_operation(operation, self._values, builder, self._rewrite)
        builder.location = location
        for tile, slot in fetch.unstored:
            builder.create("shared_store", [tile, slot])
        counters = (_next(builder, index, plan.stages) for index in (turn.read, turn.write))
        return _Turn(ahead, tokens, *counters)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a pipelined loop carries besides what it did before.

    The carried values that addresses need, of the iteration to fetch for; the tokens of the
    iterations on their way, oldest first; the indices of the slots to read and to write.
    """

    ahead: dict[int, Value]
    tokens: tuple[Value, ...]
    read: Value
    write: Value

    @property
    def values(self) -> tuple[Value, ...]:
        """All of them, in the order that the loop carries them in."""
        return (*self.ahead.values(), *self.tokens, self.read, self.write)

    def renamed(self, values: Sequence[Value]) -> _Turn:
        """Return the same with other values: arguments or results of the loop."""
        *others, read, write = values
        ahead = dict(zip(self.ahead, others, strict=False))
        return _Turn(ahead, tuple(others[len(ahead) :]), read, write)


def _place_of_fetch(plan: PipelinedLoop, operations: Sequence[Operation]) -> int:
    """Return before which operation of the body to fetch.

    Behind the first dot: its instructions then wait for no address, and the copies still have more
    than an iteration to arrive. With two stages they would have less, and what goes through
    registers waits there until the end of the body: both are fetched first of all.
    """
    if plan.stages == 2 or not all(load.is_async for load in plan.loads):
        return 0
    dots = (index for index, operation in enumerate(operations, 1) if operation.name == "dot")
    return next(dots, 0)


def _slots(
    builder: Builder, plan: PipelinedLoop, rings: Sequence[Value], index: Value, position: int
) -> list[Value]:
    return [
        _named(
            builder.value("shared_slot", [ring, index], _tile_of(load.ring), position=position),
            load,
            "slot",
        )
        for ring, load in zip(rings, plan.loads, strict=True)
    ]


def _tile_of(ring: SharedType) -> SharedType:
    return SharedType(ring.shape, ring.dtype, ring.layout)


def _named(value: Value, load: PipelinedLoad, suffix: str) -> Value:
    name = load.operation.result.name
    value.name = f"{name}_{suffix}" if name else ""
    return value


def _commit(builder: Builder, plan: PipelinedLoop) -> list[Value]:
    return [builder.value("async_commit", [], TokenType())] if plan.has_async else []


def _next(builder: Builder, index: Value, stages: int) -> Value:
    """Return the index of the next slot, without a division."""
    moved = builder.value("add", [index, constant(builder, 1, int32)], index.type)
    end = constant(builder, stages, int32)
    wraps = builder.value("cmp", [moved, end], ScalarType(int1), predicate="eq")
    return builder.value("select", [wraps, constant(builder, 0, int32), moved], index.type)


def _constants(module: Module) -> dict[Value, object]:
    """Return the values that are one constant, or a tile of it."""
    found: dict[Value, object] = {}
    for operation in module.kernel.body.walk():
        if operation.name == "constant":
            found[operation.result] = operation.attributes["value"]
        elif operation.name in _MOVES and operation.operands[0] in found:
            found[operation.result] = found[operation.operands[0]]
    return found
