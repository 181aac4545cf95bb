"""Removes what nothing observable depends on, carried values and results of `if` included.

Liveness starts at writes, calls and returned values and flows backwards over uses. A carried value
is live only if its result is, or its argument is used by something live, so that a loop-carried
value that feeds nothing but itself goes with all that computes it. An atomic operation whose result
is dead stays without it. Loops are taken to end, so one
without effects and without live results is removed, but for a `while` that reads memory: it may
wait for another program.

    for:    initial i -> argument i -> yield i -> result i       all four live together
    while:  initial i -> before argument i, after's yield i      carried
            condition operand j -> after argument j -> result j  passed
    if:     yield i of both branches -> result i
    reduce_with, scan:  all of them and what the region yields live together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright_compiler.ir.builder import Builder, ValueMap, copy_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.effects import may_wait, may_write
from tilewright_compiler.ir.ops import combine


def dce(module: Module) -> Module:
    """Return the module without dead operations, carried values and results."""
    functions = {name: _remove_dead(function) for name, function in module.functions.items()}
    return Module(functions, module.signature, dict(module.attributes))


def _remove_dead(function: Function) -> Function:
    liveness = _Liveness(function)
    values: ValueMap = {}
    body = _copy_block(
        function.body,
        values,
        liveness,
        function.body.arguments,
        function.body.terminator.operands,
    )
    return Function(
        function.name, body, function.result_types, function.is_kernel, function.location
    )


class _Liveness:
    """The live values and operations of a function, found with a work list."""

    def __init__(self, function: Function) -> None:
        self.values: set[Value] = set()
        self.operations: set[Operation] = set()
        self._pending: list[Value] = []
        # The operation that defines a value, and the values that live when it does.
        self._needs: dict[Value, tuple[Operation, tuple[Value, ...]]] = {}
        for operation in function.body.walk():
            self._index(operation)
        for operation in function.body.walk():
            if operation.name == "return" or may_write(operation) or may_wait(operation):
                self._need_operation(operation)
        # What is assumed of every run of a kernel is read when it is scheduled.
        for operation in function.body.operations if function.is_kernel else ():
            if operation.name == "assume":
                self._need_operation(operation)
        while self._pending:
            value = self._pending.pop()
            if value in self._needs:
                operation, values = self._needs[value]
                self._need_operation(operation)
                for needed in values:
                    self._need(needed)

    def _index(self, operation: Operation) -> None:
        """Note what each result and region argument needs to live, by the groups drawn above."""
        results = operation.results
        match operation.name:
            case "for":
                (body,) = operation.regions
                carried = body.arguments[1:]
                yielded = body.terminator.operands
                self._tie(operation, carried, operation.operands[3:], yielded, results)
                self._tie(operation, results, carried)
            case "while":
                before, after = operation.regions
                yielded = after.terminator.operands
                self._tie(operation, before.arguments, operation.operands, yielded)
                forwarded = before.terminator.operands[1:]
                self._tie(operation, after.arguments, forwarded, results)
                self._tie(operation, results, after.arguments)
            case "if":
                then, other = (region.terminator.operands for region in operation.regions)
                self._tie(operation, results, then, other)
            case _:
                self._tie(operation, results)

    def _tie(
        self, operation: Operation, defined: Sequence[Value], *needed: Sequence[Value]
    ) -> None:
        """Make each of `defined` need its operation and its counterparts in `needed`."""
        for index, value in enumerate(defined):
            self._needs[value] = operation, tuple(group[index] for group in needed)

    def _need(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self._pending.append(value)

    def _need_operation(self, operation: Operation) -> None:
        if operation in self.operations:
            return
        self.operations.add(operation)
        for value in _always_needed(operation):
            self._need(value)


def _always_needed(operation: Operation) -> Sequence[Value]:
    """Return the values that a live operation needs whatever of it is used."""
    match operation.name:
        case "for":
            return operation.operands[:3]
        case "while":
            return operation.regions[0].terminator.operands[:1]
        case name if name in combine.NAMES:
            return (*operation.operands, *operation.regions[0].terminator.operands)
        case _:
            return operation.operands


def _copy_block(
    block: Block,
    values: ValueMap,
    liveness: _Liveness,
    arguments: Sequence[Value],
    ends: Sequence[Value],
) -> Block:
    """Copy the live operations, with these arguments and these operands of the terminator."""
    copy = Block(tuple(Value(argument.type, argument.name) for argument in arguments))
    values.update(zip(arguments, copy.arguments, strict=True))
    builder = Builder(copy)
    for operation in block.operations[:-1]:
        if operation in liveness.operations:
            _copy_live(operation, values, liveness, builder)
    terminator = replace(block.terminator, operands=tuple(ends))
    copy_operation(terminator, values, builder)
    return copy


def _copy_live(
    operation: Operation, values: ValueMap, liveness: _Liveness, builder: Builder
) -> None:
    """Copy a live operation without its dead carried values and what results it can do without."""

    def live(group: Sequence[Value], witnesses: Sequence[Value]) -> tuple[Value, ...]:
        """Return the values of `group` whose counterparts among `witnesses` live."""
        pairs = zip(group, witnesses, strict=True)
        return tuple(value for value, witness in pairs if witness in liveness.values)

    results, operands = operation.results, operation.operands
    regions: list[Block] = []
    match operation.name:
        case "for":
            (body,) = operation.regions
            operands = (*operands[:3], *live(operands[3:], results))
            arguments = (body.arguments[0], *live(body.arguments[1:], results))
            ends = live(body.terminator.operands, results)
            regions = [_copy_block(body, values, liveness, arguments, ends)]
            results = live(results, results)
        case "while":
            before, after = operation.regions
            carried, passed = before.arguments, after.arguments
            operands = live(operands, carried)
            condition, *forwarded = before.terminator.operands
            ends = (condition, *live(forwarded, passed))
            regions = [
                _copy_block(before, values, liveness, live(carried, carried), ends),
                _copy_block(
                    after,
                    values,
                    liveness,
                    live(passed, passed),
                    live(after.terminator.operands, carried),
                ),
            ]
            results = live(results, passed)
        case "if":
            regions = [
                _copy_block(region, values, liveness, (), live(region.terminator.operands, results))
                for region in operation.regions
            ]
            results = live(results, results)
        case "roles":
            regions = [
                _copy_block(region, values, liveness, (), ()) for region in operation.regions
            ]
        case "atomic_rmw" | "atomic_cas":
            results = live(results, results)
        case name if name in combine.NAMES:
            (region,) = operation.regions
            ends = region.terminator.operands
            regions = [_copy_block(region, values, liveness, region.arguments, ends)]
    copy_operation(replace(operation, operands=operands, results=results), values, builder, regions)
