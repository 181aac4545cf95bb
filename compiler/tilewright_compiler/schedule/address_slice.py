"""A loop's body -> the part of it that addresses need: what can run ahead of the iteration.

The slice of a load is all that its pointer, mask and `other` are computed from within an iteration,
and across iterations the updates of the carried values among that. A loop may run its slice some
iterations early, with copies of those carried values, if the slice only computes and reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.effects import is_pure, may_wait, may_write
from tilewright_compiler.ir.types import element_dtype
from tilewright_compiler.schedule.scratch import EXCHANGES

# These read or exchange, so that running them where the iteration does not exist is wrong or slow;
# integer division by zero is not defined.
_GUARDED = ("load", *EXCHANGES, "div", "rem")


@dataclass(frozen=True, slots=True)
class AddressSlice:
    """Operations of a loop's body, in their order, and the indices of the carried values used.

    `ahead_of_guard` are those operations that give the next carried values and may run although
    the iteration does not exist: nothing they do can be noticed. `carried_in_guard` are the carried
    values that other operations give.
    """

    operations: tuple[Operation, ...]
    carried: tuple[int, ...]
    ahead_of_guard: frozenset[Operation]
    carried_in_guard: frozenset[int]


def address_slice(loop: Operation, roots: Iterable[Value]) -> AddressSlice | None:
    """Return what of a `for` loop's body computes `roots`; None if that cannot run ahead."""
    body = _Body(loop)
    found = body.close(roots, across_iterations=True)
    if found is None:
        return None
    operations, carried = found
    ahead: set[Operation] = set()
    guarded: set[int] = set()
    for index in sorted(carried):
        update = body.close([body.yielded[index]], across_iterations=False)
        assert update is not None, "an update is part of the slice"
        if all(_may_run_in_vain(operation) for operation in update[0]):
            ahead |= update[0]
        else:
            guarded.add(index)
    return AddressSlice(
        operations=tuple(o for o in loop.regions[0].operations if o in operations),
        carried=tuple(sorted(carried)),
        ahead_of_guard=frozenset(ahead),
        carried_in_guard=frozenset(guarded),
    )


class _Body:
    """Where the values of a loop's body come from."""

    def __init__(self, loop: Operation) -> None:
        (body,) = loop.regions
        self.yielded = body.terminator.operands
        self._carried = {argument: i for i, argument in enumerate(body.arguments[1:])}
        self._definitions = {
            result: operation for operation in body.operations for result in operation.results
        }

    def close(
        self, roots: Iterable[Value], *, across_iterations: bool
    ) -> tuple[set[Operation], set[int]] | None:
        """Return the operations and carried values that `roots` need; None if one cannot run ahead.

        Across iterations, the updates of the carried values are needed too.
        """
        operations: set[Operation] = set()
        carried: set[int] = set()
        pending = list(roots)
        while pending:
            value = pending.pop()
            index, operation = self._carried.get(value), self._definitions.get(value)
            if index is not None and index not in carried:
                carried.add(index)
                if across_iterations:
                    pending.append(self.yielded[index])
            elif operation is not None and operation not in operations:
                if not _may_run_ahead(operation):
                    return None
                operations.add(operation)
                pending += [operand for inner in operation.walk() for operand in inner.operands]
        return operations, carried


def _may_run_ahead(operation: Operation) -> bool:
    if may_write(operation) or may_wait(operation):
        return False
    return all(inner.name != "dot" for inner in operation.walk())


def _may_run_in_vain(operation: Operation) -> bool:
    if operation.name in ("div", "rem") and element_dtype(operation.result.type).is_float:
        return True
    return is_pure(operation) and operation.name not in _GUARDED
