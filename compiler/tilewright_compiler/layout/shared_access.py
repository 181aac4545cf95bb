"""Moving a tile between registers and a place in shared memory whose layout is given.

`layout.shared` chooses a layout for two sides; here it is there already, a slot of a ring say, and
the question is how wide a thread's accesses may be: as many of the lowest offset bits as are
directions of its registers alone.
"""

from __future__ import annotations

from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout, log2
from tilewright_compiler.layout.shared import MAX_VECTOR_BYTES, SharedAccess, shared_access
from tilewright_compiler.layout.swizzle import SharedLayout


def plan_shared_access(
    layout: LinearLayout,
    shared: SharedLayout,
    *,
    size_bytes: int,
    max_bytes: int = MAX_VECTOR_BYTES,
) -> SharedAccess:
    """Plan how a tile of elements of `size_bytes` in `layout` reaches a tile in shared memory.

    An access covers at most `max_bytes`. Registers that repeat others of their thread take no part;
    lanes and warps that repeat others do the same as they.
    """
    if layout.shape != shared.shape:
        msg = f"{layout} and {shared} are tiles of different shapes"
        raise InternalCompilerError(msg)
    limit = log2(max(1, max_bytes // size_bytes))
    return shared_access(
        layout,
        vector_directions(layout, shared)[:limit],
        shared.offsets,
        skipped_registers=layout.free.register,
    )


def vector_directions(layout: LinearLayout, shared: SharedLayout) -> tuple[int, ...]:
    """Return the elements at offsets 1, 2, 4, ... as far as each thread holds whole runs of them.

    They are xor distances of flat element indices.
    """
    at_offset = gf2.inverse(shared.offsets)
    assert at_offset is not None, "a shared layout is a bijection"
    registers = gf2.Elimination(layout.register)
    moving = 0
    for basis in (*layout.lane, *layout.warp):
        moving |= shared.offset(basis)
    directions = []
    for bit, direction in enumerate(at_offset):
        if moving >> bit & 1 or direction not in registers:
            break
        directions.append(direction)
    return tuple(directions)
