"""Loops with dots -> loops whose loads run some iterations ahead, through rings in shared memory.

With S stages, iteration k reads slot k mod S of each ring while the copies of iteration k + S - 1
are on their way into slot k - 1 mod S, which the iteration before has read:

    prologue, i = 0 .. S-2:  if iteration i exists: copy into slot i; commit -> token i
    body:                    wait for the oldest token
                             if iteration k + S - 1 exists: copy into the slot ahead; commit
                             what the iteration computes, reading its slot
                             what was loaded into registers -> the slot ahead

The body runs as often and in the same order as before, so results are equal to the bit. Peeling the
last iterations instead of asking whether there is one ahead would double the code for one branch
that all threads take together. After the loop a wait says what is true already, that nothing is
under way, so that everything behind may reuse the rings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.abi.dtypes import int1, int32
from tilewright_compiler.analysis.axis_info import AxisInfo, analyze
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_block, clone_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.types import ScalarType, SharedType, TokenType, element_dtype
from tilewright_compiler.schedule.loop_range import LoopRange, constant
from tilewright_compiler.schedule.pipelined_loads import (
    PipelinedLoad,
    PipelinedLoop,
    copies_asynchronously,
    plan_loop,
)

_MOVES = ("splat", "broadcast", "expand_dims", "reshape", "transpose", "convert_layout")


def multistage(module: Module, *, max_stages: int) -> Module:
    """Let the loads of loops run ahead, in as many stages as each asks for, at most `max_stages`.

    The module has layouts and no calls. Where no loop gains by it the copy is equal.
    """
    facts, synchronous = analyze(module), set[Operation]()
    while True:
        attempt = _Attempt(module, max_stages, facts, synchronous)
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
        wanted: int = loop.attributes.get("num_stages", self._module.signature.num_stages)
        return plan_loop(
            loop,
            stages=min(wanted, self._max_stages),
            facts=self._facts,
            constants=self._constants,
            synchronous=self._synchronous,
        )

    def _read(self, loaded: Value, operation: Operation, builder: Builder) -> tuple[Value]:
        """Read a slot in the layout that an operation gives its elements in."""
        tile = builder.value("shared_load", [self._slots[loaded]], operation.result.type)
        tile.name = operation.result.name
        return (tile,)

    def _pipeline(
        self, plan: PipelinedLoop, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        """Build the prologue and the loop; return the loop's results without what it added."""
        stages, old = plan.stages, plan.operation.regions[0]
        lower, upper, step, *initial = operands
        known_step = self._facts[plan.operation.operands[2]].constant
        span = LoopRange(lower, upper, step, known_step=known_step)
        rings = [
            _named(builder.value("alloc_shared", [], load.ring), load, "ring")
            for load in plan.loads
        ]
        ahead = {index: initial[index] for index in plan.slice.carried}
        tokens: list[Value] = []
        for stage in range(stages - 1):
            slots = _slots(builder, plan, rings, constant(builder, stage, int32), stage)
            induction = lower
            if stage:
                offset = span.offset(builder, stage)
                induction = builder.value("add", [lower, offset], lower.type)
            exists = span.begins(builder, stage)
            fetch = _Fetch(plan, self._values, slots, self.copies)
            ahead = fetch.build(builder, induction, ahead, exists, stores=True)
            tokens += _commit(builder, plan)
        offset, distance = span.offset(builder, stages - 1), span.distance(builder, stages - 1)
        counters = [constant(builder, 0, int32), constant(builder, stages - 1, int32)]

        added = [*(ahead[index] for index in plan.slice.carried), *tokens, *counters]
        arguments = tuple(Value(a.type, a.name) for a in old.arguments)
        extra = tuple(Value(value.type, value.name) for value in added)
        self._values.update(zip(old.arguments, arguments, strict=True))
        body = Block((*arguments, *extra))
        inner = Builder(body, builder.location)
        *_, read_index, write_index = extra
        ahead = dict(zip(plan.slice.carried, extra, strict=False))
        tokens = list(extra[len(ahead) : -2])
        if tokens:
            inner.create("async_wait", [tokens[0]], pending=stages - 2)
        write = _slots(inner, plan, rings, write_index, stages - 1)
        read = _slots(inner, plan, rings, read_index, 0)
        induction = inner.value("add", [arguments[0], offset], lower.type)
        exists = span.goes_on(inner, arguments[0], distance)
        fetch = _Fetch(plan, self._values, write, self.copies)
        ahead = fetch.build(inner, induction, ahead, exists, stores=False)
        tokens = [*tokens[1:], *_commit(inner, plan)]
        for load, slot in zip(plan.loads, read, strict=True):
            self._slots[load.operation.result] = slot
        for operation in old.operations[:-1]:
            clone_operation(operation, self._values, inner, self._rewrite)
        inner.location = builder.location
        for tile, slot in fetch.unstored:
            inner.create("shared_store", [tile, slot])
        counters = [_next(inner, index, stages) for index in (read_index, write_index)]
        yielded = [self._values.get(value, value) for value in old.terminator.operands]
        yielded += [*(ahead[index] for index in plan.slice.carried), *tokens, *counters]
        inner.create("yield", yielded)

        loop = builder.create(
            "for",
            [lower, upper, step, *initial, *added],
            [value.type for value in (*arguments[1:], *extra)],
            [body],
        )
        if tokens:
            last = loop.results[-3]
            builder.create("async_wait", [last], pending=0)
        results = loop.results[: len(initial)]
        for result, before in zip(results, plan.operation.results, strict=True):
            result.name = before.name
        return results


class _Fetch:
    """One iteration's copies into its slots. `unstored` are tiles still in registers after it."""

    def __init__(
        self,
        plan: PipelinedLoop,
        values: ValueMap,
        slots: Sequence[Value],
        copies: list[tuple[Operation, Operation]],
    ) -> None:
        self._plan = plan
        self._outer = values
        self._slots = slots
        self._copies = copies
        self.unstored: list[tuple[Value, Value]] = []

    def build(
        self,
        builder: Builder,
        induction: Value,
        ahead: Mapping[int, Value],
        exists: Value,
        *,
        stores: bool,
    ) -> dict[int, Value]:
        """Fetch for the iteration of `induction`, whose carried values are `ahead`, if it exists.

        With `stores`, what goes through registers is stored at once. Returns the carried values
        of the iteration after it.
        """
        plan, slice_ = self._plan, self._plan.slice
        (body,) = plan.operation.regions
        local = dict(self._outer)
        local[body.arguments[0]] = induction
        for index, value in ahead.items():
            local[body.arguments[1 + index]] = value
        for operation in slice_.operations:
            if operation in slice_.ahead_of_guard:
                clone_operation(operation, local, builder)

        then, otherwise = Block(), Block()
        inside = Builder(then, builder.location)
        for operation in slice_.operations:
            if operation not in slice_.ahead_of_guard:
                clone_operation(operation, local, inside)
        waiting = []
        for load, slot in zip(plan.loads, self._slots, strict=True):
            tile = self._fetch(load, slot, local, inside)
            if tile is not None and stores:
                inside.create("shared_store", [tile, slot])
            elif tile is not None:
                waiting.append((tile, slot))
        guarded = [index for index in slice_.carried if index in slice_.carried_in_guard]
        yielded = body.terminator.operands
        results = [
            *(tile for tile, _ in waiting),
            *(local.get(yielded[index], yielded[index]) for index in guarded),
        ]
        inside.create("yield", results)
        other = Builder(otherwise, builder.location)
        kept = [*(_zeros(other, tile) for tile, _ in waiting), *(ahead[i] for i in guarded)]
        other.create("yield", kept)
        branch = builder.create("if", [exists], [v.type for v in results], [then, otherwise])
        for result, value in zip(branch.results, results, strict=True):
            result.name = value.name
        self.unstored = [
            (result, slot) for result, (_, slot) in zip(branch.results, waiting, strict=False)
        ]
        moved = dict(zip(guarded, branch.results[len(waiting) :], strict=True))
        return {
            index: moved.get(index, local.get(yielded[index], yielded[index])) for index in ahead
        }

    def _fetch(
        self, load: PipelinedLoad, slot: Value, values: ValueMap, builder: Builder
    ) -> Value | None:
        """Copy a tile into its slot, or load it into registers and return it."""
        operation = load.operation
        builder.location = operation.location
        if not load.is_async:
            copy = clone_operation(operation, dict(values), builder)
            assert copy is not None, "nothing rewrites here"
            return copy.result
        pointer, *mask = (values.get(value, value) for value in operation.operands[:2])
        hints = {name: operation.attributes[name] for name in ("cache", "eviction")}
        copy = builder.create("async_copy", [pointer, slot, *mask], **hints)
        self._copies.append((copy, operation))
        return None


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


def _zeros(builder: Builder, tile: Value) -> Value:
    dtype = element_dtype(tile.type)
    zero = 0.0 if dtype.is_float else (False if dtype == int1 else 0)
    return builder.value("splat", [constant(builder, zero, dtype)], tile.type)


def _constants(module: Module) -> dict[Value, object]:
    """Return the values that are one constant, or a tile of it."""
    found: dict[Value, object] = {}
    for operation in module.kernel.body.walk():
        if operation.name == "constant":
            found[operation.result] = operation.attributes["value"]
        elif operation.name in _MOVES and operation.operands[0] in found:
            found[operation.result] = found[operation.operands[0]]
    return found
