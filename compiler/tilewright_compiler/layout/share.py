"""What one thread knows of an element -> all threads that hold it, through shared memory.

Of the places that hold an element one counts: the one whose free bits are 0 (`LinearLayout.free`).
It alone writes, every place reads. A scalar is held by all threads and counts in the first.
"""

from __future__ import annotations

from tilewright_compiler.layout.linear import LinearLayout, log2
from tilewright_compiler.layout.shared import (
    SharedAccess,
    SharedExchange,
    SharedGroup,
    shared_access,
)

_SCALAR = SharedAccess(vector=1, groups=(SharedGroup(0, (0,)),), lane=(), warp=())


def plan_share(layout: LinearLayout | None, *, size_bytes: int) -> SharedExchange | None:
    """Plan how places learn elements of `size_bytes`; None where each thread has its own.

    Without a layout the plan is that of a scalar. Only threads that count for an element write it,
    and a thread's other registers with that element take no part.
    """
    if layout is None:
        return SharedExchange(_SCALAR, _SCALAR, size_bytes, scratch_bytes=size_bytes)
    free = layout.free
    if not free.lane and not free.warp:
        return None
    offsets = tuple(1 << bit for bit in range(log2(layout.size)))
    access = shared_access(layout, (), offsets, skipped_registers=free.register)
    return SharedExchange(access, access, size_bytes, scratch_bytes=layout.size * size_bytes)
