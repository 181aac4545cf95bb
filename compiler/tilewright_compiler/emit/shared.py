"""Exchanges through shared memory, as `layout.shared` plans them: write, make all warps meet, read.

That what lay there before has been read by everyone is the schedule's to see to: it inserts a
barrier before an exchange that needs one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tilewright_compiler.emit.indices import ThreadIndices
from tilewright_compiler.emit.shared_access import (
    ThreadAddresses,
    load_registers,
    store_fragment,
    symbol_address,
)
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.ir.types import ElementType
from tilewright_compiler.layout.shared import SharedExchange

# The hardware has 16 barriers; 0 is that of the whole program, behind this are those of groups.
_ROLE_BARRIER = 1


class SharedMemory:
    """Emits exchanges and barriers of one kernel."""

    def __init__(self, text: FunctionText, threads: ThreadIndices) -> None:
        self._text = text
        self._threads = threads
        self._role_threads: int | None = None

    @contextmanager
    def role(self, *, num_threads: int) -> Iterator[None]:
        """Let the barriers of what is written inside be those of these threads alone."""
        self._role_threads = num_threads
        yield
        self._role_threads = None

    def barrier(self) -> None:
        """Make all warps meet: of the program, or of the role being written."""
        if self._role_threads is None:
            self._text.line("nvvm.barrier0")
        else:
            self._named(self._text.i32(_ROLE_BARRIER), self._role_threads)

    def group_barrier(self, group: str, num_threads: int) -> None:
        """Make all warps of a group meet; `group` is an i32, its number from 0 on."""
        text = self._text
        first = text.i32(_ROLE_BARRIER + 1)
        self._named(text.value(f"llvm.add {group}, {first} overflow<nsw, nuw> : i32"), num_threads)

    def _named(self, number: str, num_threads: int) -> None:
        count = self._text.i32(num_threads)
        self._text.line(f"nvvm.barrier id = {number} number_of_threads = {count}")

    def exchange(
        self, plan: SharedExchange, source: Sequence[str], element: ElementType, *, offset: int
    ) -> tuple[str, ...]:
        """Move a fragment through shared memory at byte `offset`; return the new fragment."""
        loaded: dict[int, str] = {}
        for turn, part in enumerate(plan.rounds):
            if turn:
                self.barrier()
            self.write(part, source, element, offset=offset)
            self.barrier()
            loaded |= self._loaded(part, element, offset=offset)
        return _in_order(loaded)

    def write(
        self, plan: SharedExchange, source: Sequence[str], element: ElementType, *, offset: int
    ) -> None:
        """Write a fragment, as the first half of an exchange at byte `offset`."""
        base = symbol_address(self._text, offset)
        written = ThreadAddresses.of(self._text, self._threads, base, plan.write, plan.size_bytes)
        store_fragment(self._text, written, plan.write, source, element)

    def read(self, plan: SharedExchange, element: ElementType, *, offset: int) -> tuple[str, ...]:
        """Read a fragment, as the second half of an exchange at byte `offset`."""
        return _in_order(self._loaded(plan, element, offset=offset))

    def _loaded(self, plan: SharedExchange, element: ElementType, *, offset: int) -> dict[int, str]:
        base = symbol_address(self._text, offset)
        read = ThreadAddresses.of(self._text, self._threads, base, plan.read, plan.size_bytes)
        return load_registers(self._text, read, plan.read, element)


def _in_order(loaded: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(loaded[register] for register in sorted(loaded))
