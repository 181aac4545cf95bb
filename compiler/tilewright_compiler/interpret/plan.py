"""Prepares blocks for evaluation: implementations looked up, and what each step may forget.

Without the forgetting, an unrolled kernel would hold every intermediate tile of a batch until its
end.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.alias import READING, WRITING, arguments_of, pointer_roots
from tilewright_compiler.interpret.memory import Memory
from tilewright_compiler.interpret.ops import COMPUTE, CONTROL, Compute, Control
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops import SPECS


@dataclass(frozen=True, slots=True)
class Step:
    """An operation with its implementation; `dead` are values that nothing reads afterwards."""

    operation: Operation
    compute: Compute | None
    control: Control | None
    dead: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A block without its terminator; `captured` are the outer values that it reads."""

    steps: tuple[Step, ...]
    captured: tuple[Value, ...]


def plan_block(block: Block) -> BlockPlan:
    """Prepare one block; inner blocks are prepared when they first run."""
    last_use: dict[Value, int] = dict.fromkeys(block.arguments, 0)
    for index, operation in enumerate(block.operations):
        last_use.update(dict.fromkeys(operation.results, index))
        last_use.update((value, index) for value in _reads(operation) if value in last_use)
    dead: list[list[Value]] = [[] for _ in block.operations]
    for value, index in last_use.items():
        dead[index].append(value)
    steps = tuple(
        _step(operation, tuple(values))
        for operation, values in zip(block.operations[:-1], dead, strict=False)
    )
    return BlockPlan(steps, _captured(block))


def may_wait(module: Module, memory: Memory) -> bool:
    """Return whether programs may wait for each other: a `while` reads what the kernel writes."""
    roots = pointer_roots(module)
    written = arguments_of(module, module.kernel.body, WRITING, roots)
    loops = (
        operation
        for function in module.functions.values()
        for operation in function.body.walk()
        if operation.name == "while"
    )
    return any(
        memory.share(read, write)
        for loop in loops
        for region in loop.regions
        for read in arguments_of(module, region, READING, roots)
        for write in written
    )


def largest_tile(module: Module) -> int:
    """Return the number of elements of the largest tile of a module."""
    values = (
        value
        for function in module.functions.values()
        for operation in function.body.walk()
        for value in operation.results
    )
    return max((getattr(value.type, "size", 1) for value in values), default=1)


def _step(operation: Operation, dead: tuple[Value, ...]) -> Step:
    compute, control = COMPUTE.get(operation.name), CONTROL.get(operation.name)
    if compute is None and control is None:
        what = "has no implementation" if operation.name in SPECS else "is not in the operation set"
        msg = f"operation {operation.name!r} {what}, so the interpreter cannot run it"
        raise InternalCompilerError(msg)
    return Step(operation, compute, control, dead)


def _reads(operation: Operation) -> Iterator[Value]:
    for inner in operation.walk():
        yield from inner.operands


def _captured(block: Block) -> tuple[Value, ...]:
    inside: set[Value] = set(block.arguments)
    read: dict[Value, None] = {}  # a set with an order
    for operation in block.walk():
        read.update(dict.fromkeys(operation.operands))
        inside.update(operation.results)
        for region in operation.regions:
            inside.update(region.arguments)
    return tuple(value for value in read if value not in inside)
