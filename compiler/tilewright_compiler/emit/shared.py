"""Shared memory: exchanges as `layout.shared` plans them, and the CTA barriers that make them safe.

An exchange writes, waits for all warps, and reads. Before it writes, everyone must have read what
lay there: `SharedMemory` keeps the byte ranges read since the last barrier and adds a barrier
only when they overlap, so that two reductions at different offsets in a loop need one barrier
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright_compiler.emit.indices import ThreadIndices
from tilewright_compiler.emit.shared_access import (
    ThreadAddresses,
    load_registers,
    store_fragment,
    symbol_address,
)
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.ir.core import Block, Operation
from tilewright_compiler.ir.types import ElementType, TileType, element_bytes
from tilewright_compiler.layout.convert import plan_conversion
from tilewright_compiler.layout.reduce import plan_reduce
from tilewright_compiler.layout.shared import SharedExchange

ByteRange = tuple[int, int]


class SharedMemory:
    """Emits exchanges and keeps track of which ranges may still be read by other warps."""

    def __init__(self, text: FunctionText, threads: ThreadIndices) -> None:
        """Start with nothing read."""
        self._text = text
        self._threads = threads
        self._pending: frozenset[ByteRange] = frozenset()

    @property
    def pending(self) -> frozenset[ByteRange]:
        """Ranges that other warps may be reading at this point of the program."""
        return self._pending

    def assume(self, pending: Iterable[ByteRange]) -> None:
        """Set the ranges at a point where control flow meets."""
        self._pending = frozenset(pending)

    def barrier(self) -> None:
        """Make all warps meet."""
        self._text.line("nvvm.barrier0")
        self._pending = frozenset()

    def exchange(
        self, plan: SharedExchange, source: Sequence[str], element: ElementType, *, offset: int
    ) -> tuple[str, ...]:
        """Move a fragment through shared memory at byte `offset`; return the new fragment."""
        span = (offset, offset + plan.scratch_bytes)
        if any(low < span[1] and span[0] < high for low, high in self._pending):
            self.barrier()
        size_bytes = plan.size_bytes
        base = symbol_address(self._text, offset)
        written = ThreadAddresses.of(self._text, self._threads, base, plan.write, size_bytes)
        store_fragment(self._text, written, plan.write, source, element)
        self.barrier()
        read = ThreadAddresses.of(self._text, self._threads, base, plan.read, size_bytes)
        loaded = load_registers(self._text, read, plan.read, element)
        self._pending = frozenset({span})
        return tuple(loaded[register] for register in sorted(loaded))


def pending_after(block: Block, pending: frozenset[ByteRange]) -> frozenset[ByteRange]:
    """Return the ranges that may still be read after a block, if these were before it."""
    for operation in block.operations:
        if operation.name == "if":
            branches = [pending_after(region, pending) for region in operation.regions]
            pending = branches[0] | branches[1]
        elif operation.regions:
            inside = pending_in_loop(operation, pending)
            pending = inside | pending_after(operation.regions[0], inside)
        elif "shared_offset" in operation.attributes:
            offset: int = operation.attributes["shared_offset"]
            pending = frozenset({(offset, offset + _scratch_bytes(operation))})
    return pending


def pending_in_loop(loop: Operation, pending: frozenset[ByteRange]) -> frozenset[ByteRange]:
    """Return the ranges that may still be read when an iteration of a loop begins."""
    end = pending
    for region in loop.regions:
        end = pending_after(region, end)
    return pending | end


def _scratch_bytes(operation: Operation) -> int:
    source, target = operation.operands[0].type, operation.result.type
    assert isinstance(source, TileType), "only tiles are exchanged"
    assert source.layout is not None, "only scheduled modules have offsets"
    size_bytes = element_bytes(source)
    if operation.name == "reduce":
        axis = operation.attributes["axis"]
        return plan_reduce(source.layout, axis, size_bytes=size_bytes).scratch_bytes
    assert isinstance(target, TileType), "only tiles are exchanged"
    assert target.layout is not None, "only scheduled modules have offsets"
    return plan_conversion(source.layout, target.layout, size_bytes=size_bytes).scratch_bytes
