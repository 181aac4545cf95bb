"""What the compiler claims of an access to global memory, held against the addresses that occur.

Emission moves whole vectors where axis analysis proves that they lie together. Here the addresses
and masks are known, so that a wrong claim is found although the values would be right.
"""

from __future__ import annotations

import numpy as np

from tilewright_compiler.analysis.access_plan import SCALAR, AccessPlan, plan_access
from tilewright_compiler.analysis.axis_info import analyze
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.places import elements, offsets
from tilewright_compiler.interpret.warp.state import SharedTile, Warp, layout_of
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.types import TileType, element_dtype
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.swizzle import SharedLayout

# What cp.async can move (PTX ISA).
_COPY_BYTES = (4, 8, 16)
# Which operand is the mask of an access.
_MASK_POSITIONS = {"load": 1, "store": 2, "async_copy": 2, "atomic_rmw": 2}


def plan_accesses(module: Module) -> dict[Operation, AccessPlan]:
    """Return how each access of a scheduled kernel to global memory groups into vectors."""
    facts = analyze(module)
    plans = {}
    for operation in module.kernel.body.walk():
        position = _MASK_POSITIONS.get(operation.name)
        if position is None:
            continue
        pointer = operation.operands[0]
        mask = operation.operands[position] if len(operation.operands) > position else None
        plans[operation] = SCALAR
        if isinstance(pointer.type, TileType):
            plans[operation] = plan_access(
                layout_of(pointer.type),
                facts[pointer],
                None if mask is None else facts[mask],
                size_bytes=element_dtype(pointer.type).size_bytes,
            )
    return plans


def check_vectors(warp: Warp, operation: Operation, addresses: Array, mask: Array | None) -> None:
    """Demand that each vector of a tile access lies together, is aligned and, where the plan says
    so, has one mask. Raises ScheduleError.
    """
    type_ = operation.operands[0].type
    plan = warp.program.vectors[operation]
    if not isinstance(type_, TileType) or plan.vector == 1:
        return
    groups, size = np.array(plan.groups), element_dtype(type_).size_bytes
    vectors = addresses[:, groups]
    starts = vectors[..., :1]
    wrong = (vectors != starts + np.arange(plan.vector) * size).any(-1)
    wrong |= starts[..., 0] % (plan.vector * size) != 0
    if mask is not None:
        masks = np.broadcast_to(mask, addresses.shape)[:, groups]
        wrong &= masks.all(-1)
        if plan.mask_is_uniform and (masks.any(-1) != masks.all(-1)).any():
            raise warp.error(operation, "the mask differs within a vector, where it is said not to")
    if wrong.any():
        lane = int(np.argwhere(wrong)[0][0])
        what = f"lane {lane}: {plan.vector} elements do not lie together, or are not aligned so"
        raise warp.error(operation, what)


def check_copy(warp: Warp, operation: Operation, tile: SharedTile) -> None:
    """Demand that the hardware can copy the vectors of a plan, or equal parts of them.

    Raises ScheduleError.
    """
    plan, size = warp.program.vectors[operation], tile.type.dtype.size_bytes
    layout = layout_of(operation.operands[0].type)
    length = copy_length(plan, layout, tile.type.layout, warp=warp.index)
    if length * size not in _COPY_BYTES or not plan.mask_is_uniform:
        masks = "one mask" if plan.mask_is_uniform else "masks that may differ"
        what = f"a vector has {length * size} bytes and {masks}; the copy takes 4, 8 or 16"
        raise warp.error(operation, what)


def copy_length(plan: AccessPlan, layout: LinearLayout, shared: SharedLayout, *, warp: int) -> int:
    """Return how many elements of a vector of global memory lie together in shared memory too."""
    targets = offsets(shared)[elements(layout, warp)[:, np.array(plan.groups)]]
    length = plan.vector
    while length > 1 and not _lie_together(targets, length):
        length //= 2
    return length


def _lie_together(targets: Array, length: int) -> bool:
    """Return whether each `length` offsets of the last axis follow each other, aligned."""
    parts = targets.reshape(*targets.shape[:-1], -1, length)
    starts = parts[..., :1]
    return bool((parts == starts + np.arange(length)).all() and not (starts % length).any())
