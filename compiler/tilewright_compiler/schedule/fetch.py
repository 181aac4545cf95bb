"""One iteration's loads -> copies into its slots, under the guard that the iteration exists.

What only gives the next carried values, and cannot be noticed, stands before the guard: inside it,
each such value would have to pass through the branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.abi.dtypes import int1
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_operation
from tilewright_compiler.ir.core import Block, Operation, Value
from tilewright_compiler.ir.types import element_dtype
from tilewright_compiler.schedule.loop_range import constant
from tilewright_compiler.schedule.pipelined_loads import PipelinedLoad, PipelinedLoop


class Fetch:
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


def _zeros(builder: Builder, tile: Value) -> Value:
    dtype = element_dtype(tile.type)
    zero = 0.0 if dtype.is_float else (False if dtype == int1 else 0)
    return builder.value("splat", [constant(builder, zero, dtype)], tile.type)
