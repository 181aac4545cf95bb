"""Scheduled IR whose warps wait for dots -> the same with scalars computed during the wait.

Where a program is, in memory and among the others, takes several divisions; the consumers of a
specialised kernel need it behind their loop, not before. So what a loop of dots does not need moves
behind it, in front of the wait for its last dots: there the warps have nothing else to do. The
tensor cores stand still between two programs, and this shortens that time.
"""

from __future__ import annotations

from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.effects import is_pure
from tilewright_compiler.ir.types import PointerType, ScalarType


def delay_scalars(module: Module) -> Module:
    """Move pure operations on scalars behind loops of dots that do not need them."""
    result = rewrite_module(module)
    for block in _blocks(result.kernel.body):
        for wait in [o for o in block.operations if o.name == "dot_wait"]:
            _delay(block, block.operations.index(wait))
    return result


def _blocks(block: Block) -> list[Block]:
    inner = [region for operation in block.operations for region in operation.regions]
    return [block, *(found for region in inner for found in _blocks(region))]


def _delay(block: Block, position: int) -> None:
    """Move what can be behind the loop in front of the wait at `position`."""
    before = block.operations[:position]
    loops = [index for index, operation in enumerate(before) if operation.name == "for"]
    if not loops or not any(o.name == "dot" for o in before[loops[-1]].walk()):
        return
    needed: set[Value] = set()
    staying: list[Operation] = []
    moving: list[Operation] = []
    for operation in reversed(before[: loops[-1] + 1]):
        if _is_scalar(operation) and needed.isdisjoint(operation.results):
            moving.append(operation)
            continue
        staying.append(operation)
        needed.update(value for inner in operation.walk() for value in inner.operands)
    # What stands between the loop and the wait may need what moves.
    block.operations = [
        *reversed(staying),
        *reversed(moving),
        *block.operations[loops[-1] + 1 :],
    ]


def _is_scalar(operation: Operation) -> bool:
    values = (*operation.operands, *operation.results)
    return is_pure(operation) and all(isinstance(v.type, ScalarType | PointerType) for v in values)
