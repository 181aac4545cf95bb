"""A dot of one warp: the part of `acc + a @ b` that its accumulator fragment holds.

A warp takes the rows of a and the columns of b that its part needs from its own fragments, or from
shared memory. That the fragments are those of the instruction is the layouts' matter
(`layout.atoms`): they must be exactly the ones that the dot's `atom` and `warps` ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops import COMPUTE as TILE_COMPUTE
from tilewright_compiler.interpret.warp.fragments import read_fragment
from tilewright_compiler.interpret.warp.moves import Compute
from tilewright_compiler.interpret.warp.places import elements
from tilewright_compiler.interpret.warp.state import SharedTile, Warp
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import TileType, shape_of
from tilewright_compiler.layout.atoms import ATOMS, DotLayouts, dot_layouts
from tilewright_compiler.layout.linear import LinearLayout


def _dot(warp: Warp, operation: Operation) -> Array:
    warp.copies.let_some_arrive()
    a, b, acc = operation.operands
    layouts = _native_layouts(warp, operation)
    for value, layout in ((a, layouts.a), (b, layouts.b), (acc, layouts.acc)):
        if isinstance(value.type, TileType) and value.type.layout != layout:
            raise warp.error(operation, f"an operand is {value.type}, the dot takes {layout}")
    rows, columns = _part(layouts.acc, warp.index)
    depth = np.arange(shape_of(a.type)[1])
    left = _operand(warp, operation, a, layouts.a, rows[:, None] * depth.size + depth)
    width = shape_of(b.type)[1]
    right = _operand(warp, operation, b, layouts.b, depth[:, None] * width + columns)
    held = elements(layouts.acc, warp.index)
    inside = np.searchsorted(rows, held // width), np.searchsorted(columns, held % width)
    before = np.empty((rows.size, columns.size), warp.array(acc).dtype)
    before[inside] = warp.array(acc)
    compute = TILE_COMPUTE["dot"]
    after = compute(operation, (left[None], right[None], before[None]), warp.program.batch)
    assert after is not None, "a dot has a result"
    result: Array = after[0][inside]
    warp.agree(operation, result)
    return result


def _native_layouts(warp: Warp, operation: Operation) -> DotLayouts:
    name, warps = operation.attributes.get("atom"), operation.attributes.get("warps")
    if name not in ATOMS or warps is None:
        raise warp.error(operation, f"atom {name!r} and warps {warps!r} name no instruction")
    (m, k), (_, n) = (shape_of(value.type) for value in operation.operands[:2])
    return _layouts(name, (m, n, k), warps, warp.program.num_warps)


@lru_cache(256)
def _layouts(
    name: str, shape: tuple[int, int, int], warps: tuple[int, int], num_warps: int
) -> DotLayouts:
    return dot_layouts(ATOMS[name], shape=shape, warps=warps, num_warps=num_warps)


def _part(acc: LinearLayout, warp: int) -> tuple[Array, Array]:
    """Return the rows and the columns of the accumulator that a warp holds, in order."""
    held = elements(acc, warp)
    width = acc.shape[1]
    return np.unique(held // width), np.unique(held % width)


def _operand(
    warp: Warp, operation: Operation, value: Value, layout: LinearLayout, wanted: Array
) -> Array:
    """Return the elements of an operand at flat indices `wanted`."""
    held = warp.held[value]
    fragment = (
        read_fragment(warp, operation, held, layout)
        if isinstance(held, SharedTile)
        else warp.array(value)
    )
    tile = np.zeros(layout.size, fragment.dtype)
    is_held = np.zeros(layout.size, np.bool_)
    own = elements(layout, warp.index)
    tile[own], is_held[own] = fragment, True
    if not is_held[wanted].all():
        raise warp.error(operation, f"the warp holds no part of {layout} that its sums need")
    return tile[wanted]


COMPUTE: Mapping[str, Compute] = MappingProxyType({"dot": _dot})
