"""What one thread knows of an element -> all threads that hold it, through shared memory.

Of the places that hold an element one counts: the one whose free bits are 0 (`LinearLayout.free`).
It alone writes, every place reads.
"""

from __future__ import annotations

from tilewright_compiler.layout.linear import LinearLayout, log2
from tilewright_compiler.layout.shared import SharedExchange, shared_access


def plan_share(layout: LinearLayout, *, size_bytes: int) -> SharedExchange | None:
    """Plan how places learn elements of `size_bytes`; None where each thread has its own.

    Only threads whose lane and warp have no free bits write.
    """
    free = layout.free
    if not free.lane and not free.warp:
        return None
    offsets = tuple(1 << bit for bit in range(log2(layout.size)))
    return SharedExchange(
        write=shared_access(layout, (), offsets, skipped_registers=free.register),
        read=shared_access(layout, (), offsets, skipped_registers=free.register),
        size_bytes=size_bytes,
        scratch_bytes=layout.size * size_bytes,
    )
