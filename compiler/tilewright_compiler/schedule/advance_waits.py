"""Scheduled IR that waits for bulk stores -> the same, waiting where warps meet anyway.

Before a buffer of bulk stores is written again, the thread that sent it waits, and then the warps
must hear of that. Where a block hands another tile to the copy engine or to matrix instructions
before, its warps meet behind that one's `async_fence`: a wait in front of it needs no meeting of
its own.
"""

from __future__ import annotations

from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Block, Module

_WAIT = "tma_store_wait"
# A wait counts the stores before it, so that it moves over none.
_ENDS = (_WAIT, "tma_store")


def advance_waits(module: Module) -> Module:
    """Move waits for bulk stores in front of the store to shared memory before, if there is one."""
    result = rewrite_module(module)
    _advance(result.kernel.body)
    return result


def _advance(block: Block) -> None:
    for operation in block.operations:
        for region in operation.regions:
            _advance(region)
    for wait in [operation for operation in block.operations if operation.name == _WAIT]:
        here = block.operations.index(wait)
        place = _fenced_store_before(block, here)
        if place is not None:
            block.operations.insert(place, block.operations.pop(here))


def _fenced_store_before(block: Block, position: int) -> int | None:
    """Return where a fenced store stands before a position, behind what no wait moves over."""
    is_fenced = False
    for index in range(position - 1, -1, -1):
        operation = block.operations[index]
        if operation.name in _ENDS or operation.regions:
            return None
        is_fenced |= operation.name == "async_fence"
        if operation.name == "shared_store" and is_fenced:
            return index
    return None
