"""Moves operations whose operands a loop does not change to before the loop.

Only pure operations at the top of a loop's body move: they cost registers, never correctness, even
if the loop then runs no iteration (integer division by zero gives any value, it does not trap).
What an `if` guards stays inside it.

Loads stay, with one exception. Moved before a loop that runs no iteration, a load could read
outside its argument; moved over a write, it could read too early; and a `while` may wait for what
another program writes. So a load moves only out of a `for` whose constant bounds give an iteration
and which writes nothing.
"""

from __future__ import annotations

from tilewright_compiler.ir.builder import Builder, ValueMap, copy_operation
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
from tilewright_compiler.ir.effects import is_pure, is_read, may_wait, may_write


def licm(module: Module) -> Module:
    """Return the module with loop-invariant operations before their loops."""
    functions = {name: _Hoister().function(function) for name, function in module.functions.items()}
    return Module(functions, module.signature, dict(module.attributes))


class _Hoister:
    """Copies one function, inner loops first, so that what leaves one can leave the next."""

    def __init__(self) -> None:
        self._values: ValueMap = {}
        self._constants: dict[Value, int] = {}

    def function(self, function: Function) -> Function:
        body = self._block(function.body)
        return Function(
            function.name, body, function.result_types, function.is_kernel, function.location
        )

    def _block(self, block: Block) -> Block:
        copy = Block(tuple(Value(argument.type, argument.name) for argument in block.arguments))
        self._values.update(zip(block.arguments, copy.arguments, strict=True))
        builder = Builder(copy)
        for operation in block.operations:
            regions = tuple(self._block(region) for region in operation.regions)
            if operation.name in ("for", "while"):
                self._hoist(operation, regions, copy)
            results = copy_operation(operation, self._values, builder, regions).results
            if operation.name == "constant":
                self._constants[results[0]] = operation.attributes["value"]
        return copy

    def _hoist(self, loop: Operation, regions: tuple[Block, ...], target: Block) -> None:
        """Move what does not depend on the loop from its copied regions to the end of `target`."""
        keeps_memory = not may_write(loop) and not may_wait(loop)
        moves_loads = self._surely_runs(loop) and keeps_memory
        inside: set[Value] = set()
        for region in regions:
            inside.update(region.arguments)
            kept: list[Operation] = []
            for operation in region.operations:
                movable = is_pure(operation) or (moves_loads and _is_plain_read(operation))
                # What a loop assumes holds where the loop runs.
                movable = movable and operation.name != "assume"
                if movable and inside.isdisjoint(operation.operands):
                    target.operations.append(operation)
                else:
                    inside.update(operation.results)
                    kept.append(operation)
            region.operations[:] = kept

    def _surely_runs(self, loop: Operation) -> bool:
        if loop.name != "for":
            return False
        lower, upper = (self._constants.get(self._values[value]) for value in loop.operands[:2])
        return lower is not None and upper is not None and lower < upper


def _is_plain_read(operation: Operation) -> bool:
    """Whether it reads, and is not a load that its author wants in its loop."""
    return is_read(operation) and not operation.attributes.get("ahead")
