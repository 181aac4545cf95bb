"""Loops in which one dot feeds the next -> loops that start the second dot of an iteration under
the first of the one after it.

With `first` what leads to the first dot, `late` the second dot and what only it needs, `rest` all
between them, an iteration was first, rest, late. It becomes

    if there is an iteration:  first 0; rest 0
        for the others:        first j; late j - 1; rest j
        late of the last

so that the second dot runs while the results of the first are worked on. What `late` takes from
its iteration is carried. Every operation is done as often as before, and with the same operands: no
bit changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.abi.dtypes import int1
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_block, clone_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.effects import may_wait, may_write
from tilewright_compiler.ir.types import ScalarType, TileType
from tilewright_compiler.layout.atoms import ATOMS
from tilewright_compiler.schedule.loop_range import LoopRange


def rotate_dots(module: Module) -> Module:
    """Rotate the loops of a kernel with layouts where a `wgmma` dot feeds another one."""
    rotation = _Rotation()
    kernel = module.kernel
    body = clone_block(kernel.body, rotation.values, rotation.rewrite)
    function = Function(kernel.name, body, (), is_kernel=True, location=kernel.location)
    return Module({kernel.name: function}, module.signature, dict(module.attributes))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The parts of a loop's body, in order. `late_indices` are the carried values that `late`
    gives, `crossing` the values of an iteration that `late` takes.
    """

    loop: Operation
    first: tuple[Operation, ...]
    rest: tuple[Operation, ...]
    late: tuple[Operation, ...]
    late_indices: tuple[int, ...]
    crossing: tuple[Value, ...]

    @property
    def body(self) -> Block:
        return self.loop.regions[0]


class _Rotation:
    """One rebuild of a module; `values` maps its values to the new ones."""

    def __init__(self) -> None:
        self.values: ValueMap = {}

    def rewrite(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> Sequence[Value] | None:
        """Rotate a loop that asks for it."""
        plan = _plan(operation) if operation.name == "for" else None
        return None if plan is None else self._rotated(plan, operands, builder)

    def _rotated(
        self, plan: _Plan, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        lower, upper, step, *initial = operands
        arguments = plan.body.arguments
        ends = plan.body.terminator.operands
        early = [index for index in range(len(initial)) if index not in plan.late_indices]
        span = LoopRange(lower, upper, step, known_step=None)
        exists = builder.value("cmp", [lower, upper], ScalarType(int1), predicate="lt")

        then, otherwise = Block(), Block()
        inside = Builder(then, builder.location)
        local = dict(self.values)
        local.update(zip(arguments, (lower, *initial), strict=True))
        self._clone((*plan.first, *plan.rest), local, inside)
        carried = [local.get(value, value) for value in plan.crossing]
        carried += [local.get(ends[index], ends[index]) for index in early]
        inside.location = builder.location
        goes_on = span.begins(inside, 1)
        second = inside.value("add", [lower, step], lower.type)
        start = inside.value("select", [goes_on, second, upper], lower.type)
        results = self._loop(plan, (start, upper, step), carried, inside)
        last = dict(self.values)
        last.update(zip(plan.crossing, results, strict=False))
        self._clone(plan.late, last, inside)
        of_early = dict(zip(early, results[len(plan.crossing) :], strict=True))
        given = [
            of_early[index] if index in of_early else last[ends[index]]
            for index in range(len(initial))
        ]
        inside.location = builder.location
        inside.create("yield", given)
        Builder(otherwise, builder.location).create("yield", initial)
        types = [value.type for value in given]
        branch = builder.create("if", [exists], types, [then, otherwise])
        for result, before in zip(branch.results, plan.loop.results, strict=True):
            result.name = before.name
        return branch.results

    def _loop(
        self,
        plan: _Plan,
        bounds: tuple[Value, Value, Value],
        carried: Sequence[Value],
        builder: Builder,
    ) -> tuple[Value, ...]:
        """Build the loop over the iterations but the first; return what it carries at its end."""
        arguments = plan.body.arguments
        ends = plan.body.terminator.operands
        early = [i for i in range(len(arguments) - 1) if i not in plan.late_indices]
        names = [*(value.name for value in plan.crossing), *(arguments[1 + i].name for i in early)]
        added = [Value(value.type, name) for value, name in zip(carried, names, strict=True)]
        induction = Value(bounds[0].type, arguments[0].name)
        body = Block((induction, *added))
        inner = Builder(body, plan.loop.location)
        here, before = dict(self.values), dict(self.values)
        here[arguments[0]] = induction
        before.update(zip(plan.crossing, added, strict=False))
        here.update(
            zip((arguments[1 + i] for i in early), added[len(plan.crossing) :], strict=True)
        )
        self._clone(plan.first, here, inner)
        self._clone(plan.late, before, inner)
        here.update((arguments[1 + i], before[ends[i]]) for i in plan.late_indices)
        self._clone(plan.rest, here, inner)
        yielded = [here.get(value, value) for value in plan.crossing]
        yielded += [here.get(ends[index], ends[index]) for index in early]
        inner.location = plan.loop.location
        inner.create("yield", yielded)
        types = [value.type for value in added]
        attributes = plan.loop.attributes
        return builder.create("for", [*bounds, *carried], types, [body], **attributes).results

    def _clone(
        self,
        operations: Iterable[Operation],
        values: ValueMap,
        builder: Builder,
    ) -> None:
        for operation in operations:
            copy = clone_operation(operation, values, builder)
            assert copy is not None, "nothing rewrites here"


def _plan(loop: Operation) -> _Plan | None:
    """Return how to rotate a loop; None if it has not two dots of which one feeds the other, or if
    what the second needs cannot be carried.
    """
    (body,) = loop.regions
    dots = [operation for operation in body.operations if operation.name == "dot"]
    inner = [operation for operation in body.walk() if operation.name == "dot"]
    if len(dots) != 2 or len(inner) != 2 or may_write(loop) or may_wait(loop):
        return None
    first_dot, second_dot = dots
    if not all(ATOMS[dot.attributes["atom"]].is_wgmma for dot in dots):
        return None
    slices = _Slices(body)
    if first_dot not in slices.backward(second_dot.operands[:1]):
        return None
    late = slices.forward(second_dot)
    first = slices.backward([first_dot.result])
    # Tiles in shared memory are not carried: they are fetched where they are read.
    for operation in reversed(body.operations[:-1]):
        is_shared = operation.name in ("tma_tile", "shared_transpose")
        users = slices.users.get(operation.results[0], set()) if is_shared else set()
        if is_shared and users and users <= late and operation not in first:
            late.add(operation)
    rest = [o for o in body.operations[:-1] if o not in first and o not in late]
    ends, arguments = body.terminator.operands, body.arguments
    given = {result for operation in late for result in operation.results}
    late_indices = tuple(index for index, end in enumerate(ends) if end in given)
    of_late = {arguments[1 + index] for index in late_indices}
    needed_first = {operand for o in first for inner in o.walk() for operand in inner.operands}
    if of_late & needed_first or late & first:
        return None
    own = {*arguments, *(result for o in (*first, *rest) for result in o.results)}
    crossing = dict.fromkeys(
        operand
        for operation in body.operations
        if operation in late
        for within in operation.walk()
        for operand in within.operands
        if operand in own
    )
    if not all(isinstance(value.type, TileType | ScalarType) for value in crossing):
        return None
    in_order = [operation for operation in body.operations if operation in late]
    leading = [operation for operation in body.operations if operation in first]
    return _Plan(loop, tuple(leading), tuple(rest), tuple(in_order), late_indices, tuple(crossing))


class _Slices:
    """What operations of a block need of it, and what needs them."""

    def __init__(self, block: Block) -> None:
        self._definitions = {
            result: operation for operation in block.operations for result in operation.results
        }
        self.users: dict[Value, set[Operation]] = {}
        for operation in block.operations[:-1]:
            for inner in operation.walk():
                for operand in inner.operands:
                    self.users.setdefault(operand, set()).add(operation)

    def backward(self, values: Iterable[Value]) -> set[Operation]:
        """Return the operations that values are computed from within the iteration."""
        found: set[Operation] = set()
        pending = list(values)
        while pending:
            operation = self._definitions.get(pending.pop())
            if operation is not None and operation not in found:
                found.add(operation)
                pending += [operand for inner in operation.walk() for operand in inner.operands]
        return found

    def forward(self, start: Operation) -> set[Operation]:
        """Return an operation with all that is computed from it within the iteration."""
        found, pending = {start}, [start]
        while pending:
            for result in pending.pop().results:
                for user in self.users.get(result, set()) - found:
                    found.add(user)
                    pending.append(user)
        return found
