"""Shared memory: exchanges as `layout.shared` plans them, and the CTA barriers that make them safe.

An exchange writes, waits for all warps, and reads. Before it writes, everyone must have read what
lay there: `SharedMemory` keeps the byte ranges read since the last barrier and adds a barrier
only when they overlap, so that two reductions at different offsets in a loop need one barrier
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright_compiler.emit.indices import ThreadIndices, add_or_xor
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.emit.types import POINTER, SHARED_POINTER, dtype_text, memory_dtype
from tilewright_compiler.emit.vectors import extract_elements, insert_elements
from tilewright_compiler.ir.core import Block, Operation
from tilewright_compiler.ir.types import ElementType, PointerType, TileType, element_bytes
from tilewright_compiler.layout.convert import plan_conversion
from tilewright_compiler.layout.reduce import plan_reduce
from tilewright_compiler.layout.shared import SharedAccess, SharedExchange

SYMBOL = "tilewright_shared"

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
        stored = [_to_memory(self._text, name, element) for name in source]
        type_ = _memory_type(element)
        for group in plan.write.groups:
            address = self._address(plan.write, group.offset, plan.size_bytes, offset)
            vector, vector_type = insert_elements(
                self._text, [stored[register] for register in group.registers], type_
            )
            alignment = plan.write.vector * plan.size_bytes
            self._text.line(
                f"llvm.store {vector}, {address} {{alignment = {alignment} : i64}} : "
                f"{vector_type}, {SHARED_POINTER}"
            )
        self.barrier()
        loaded: dict[int, str] = {}
        for group in plan.read.groups:
            address = self._address(plan.read, group.offset, plan.size_bytes, offset)
            count = plan.read.vector
            vector_type = type_ if count == 1 else f"vector<{count}x{type_}>"
            vector = self._text.value(
                f"llvm.load {address} {{alignment = {count * plan.size_bytes} : i64}} : "
                f"{SHARED_POINTER} -> {vector_type}"
            )
            elements = extract_elements(self._text, vector, type_, count)
            loaded.update(zip(group.registers, elements, strict=True))
        self._pending = frozenset({span})
        return tuple(
            _from_memory(self._text, loaded[register], element) for register in sorted(loaded)
        )

    def _address(
        self, access: SharedAccess, group_offset: int, size_bytes: int, shared_offset: int
    ) -> str:
        text = self._text
        base = text.value(f"llvm.mlir.addressof @{SYMBOL} : {SHARED_POINTER}")
        thread = self._threads.linear(
            lane=[column * size_bytes for column in access.lane],
            warp=[column * size_bytes for column in access.warp],
        )
        constant = group_offset * size_bytes
        if thread is not None and not access.is_additive and constant:
            thread = add_or_xor(text, thread, text.i32(constant), disjoint=False)
            constant = 0
        if thread is not None:
            base = text.value(
                f"llvm.getelementptr {base}[{thread}] : "
                f"({SHARED_POINTER}, i32) -> {SHARED_POINTER}, i8"
            )
        if constant + shared_offset == 0:
            return base
        return text.value(
            f"llvm.getelementptr {base}[{constant + shared_offset}] : "
            f"({SHARED_POINTER}) -> {SHARED_POINTER}, i8"
        )


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


def _memory_type(element: ElementType) -> str:
    return "i64" if isinstance(element, PointerType) else dtype_text(memory_dtype(element.dtype))


def _to_memory(text: FunctionText, name: str, element: ElementType) -> str:
    if isinstance(element, PointerType):
        return text.value(f"llvm.ptrtoint {name} : {POINTER} to i64")
    return text.value(f"llvm.zext {name} : i1 to i8") if element.dtype.bits == 1 else name


def _from_memory(text: FunctionText, name: str, element: ElementType) -> str:
    if isinstance(element, PointerType):
        return text.value(f"llvm.inttoptr {name} : i64 to {POINTER}")
    return text.value(f"llvm.trunc {name} : i8 to i1") if element.dtype.bits == 1 else name
