"""A dot of one warp: the part of `acc + a @ b` that its accumulator fragment holds.

A warp takes the rows of a and the columns of b that its part needs from its own fragments, or from
shared memory. That the fragments are those of the instruction is the layouts' matter
(`layout.atoms`): they must be exactly the ones that the dot's `atom` and `warps` ask for.

A warpgroup's dot runs on: its result is `Running` until a `dot_wait` that names it, and what it
reads of shared memory is being read until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import numpy as np

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.ops import COMPUTE as TILE_COMPUTE
from tilewright_compiler.interpret.warp.fragments import from_bytes, read_fragment
from tilewright_compiler.interpret.warp.moves import Compute
from tilewright_compiler.interpret.warp.places import elements, fixed, offsets
from tilewright_compiler.interpret.warp.state import Held, Running, SharedTile, Warp
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import TileType, shape_of
from tilewright_compiler.layout.atoms import ATOMS, DotLayouts, dot_layouts
from tilewright_compiler.layout.linear import LinearLayout

_CACHED = 256

Side = Literal["a", "b"]
Wait = Callable[[Warp, Operation], tuple[Held, ...]]


def _dot(warp: Warp, operation: Operation) -> Held:
    warp.copies.let_some_arrive()
    a, b, acc = operation.operands
    layouts = _native_layouts(warp, operation)
    is_asynchronous = ATOMS[operation.attributes["atom"]].is_wgmma
    if is_asynchronous:
        warp.dots += 1
        warp.reading[warp.dots] = []
    for value, layout in ((a, layouts.a), (b, layouts.b), (acc, layouts.acc)):
        if isinstance(value.type, TileType) and value.type.layout != layout:
            raise warp.error(operation, f"an operand is {value.type}, the dot takes {layout}")
    rows, columns, inside = _part(layouts.acc, warp.index)
    left = _operand(warp, operation, a, layouts, "a")
    right = _operand(warp, operation, b, layouts, "b")
    # Dots that add to the same registers follow each other without a wait.
    added = warp.held[acc]
    addend = added.values if is_asynchronous and isinstance(added, Running) else warp.array(acc)
    before = np.empty((rows.size, columns.size), addend.dtype)
    before[inside] = addend
    compute = TILE_COMPUTE["dot"]
    after = compute(operation, (left[None], right[None], before[None]), warp.program.batch)
    assert after is not None, "a dot has a result"
    result: Array = after[0][inside]
    warp.agree(operation, result)
    return Running(result, warp.dots) if is_asynchronous else result


def _dot_wait(warp: Warp, operation: Operation) -> tuple[Held, ...]:
    """Wait for all dots of the warp but the last ones, and give what has become readable."""
    done = warp.dots - operation.attributes["pending"]
    for group in [group for group in warp.reading if group <= done]:
        for units in warp.reading.pop(group):
            warp.program.shared.end_reading(units, warp.index)
    results: list[Held] = []
    for value in operation.operands:
        held = warp.held[value]
        if isinstance(held, Running) and held.group <= done:
            held = held.values
        results.append(held)
    return tuple(results)


def _native_layouts(warp: Warp, operation: Operation) -> DotLayouts:
    name, warps = operation.attributes.get("atom"), operation.attributes.get("warps")
    if name not in ATOMS or warps is None:
        raise warp.error(operation, f"atom {name!r} and warps {warps!r} name no instruction")
    (m, k), (_, n) = (shape_of(value.type) for value in operation.operands[:2])
    return _layouts(name, (m, n, k), warps, warp.program.num_warps)


@lru_cache(_CACHED)
def _layouts(
    name: str, shape: tuple[int, int, int], warps: tuple[int, int], num_warps: int
) -> DotLayouts:
    return dot_layouts(ATOMS[name], shape=shape, warps=warps, num_warps=num_warps)


@lru_cache(_CACHED)
def _part(acc: LinearLayout, warp: int) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return the rows and the columns of the accumulator that a warp holds, in order, and where
    among them each of its elements is.
    """
    row, column = np.divmod(elements(acc, warp), acc.shape[1])
    rows, columns = np.unique(row), np.unique(column)
    inside = fixed(np.searchsorted(rows, row)), fixed(np.searchsorted(columns, column))
    return fixed(rows), fixed(columns), inside


@lru_cache(_CACHED)
def _wanted(acc: LinearLayout, warp: int, side: Side, depth: int) -> Array:
    """Return the flat indices of the elements of an operand that a warp's part is made of."""
    rows, columns, _ = _part(acc, warp)
    along = np.arange(depth)
    if side == "a":
        return fixed(rows[:, None] * depth + along)
    return fixed(along[:, None] * acc.shape[1] + columns)


@lru_cache(_CACHED)
def _places(
    layout: LinearLayout, acc: LinearLayout, warp: int, side: Side, depth: int
) -> Array | None:
    """Return where in a warp's fragment the elements of `_wanted` are; None if it lacks one."""
    own = elements(layout, warp)
    place = np.full(layout.size, -1)
    place[own] = np.arange(own.size).reshape(own.shape)
    places: Array = place[_wanted(acc, warp, side, depth)]
    return None if (places < 0).any() else fixed(places)


def _operand(
    warp: Warp, operation: Operation, value: Value, layouts: DotLayouts, side: Side
) -> Array:
    """Return the elements of an operand that the warp's part of the accumulator is made of."""
    held, depth = warp.held[value], shape_of(operation.operands[0].type)[1]
    if isinstance(held, SharedTile) and ATOMS[operation.attributes["atom"]].is_wgmma:
        return _read_behind(warp, operation, held, _wanted(layouts.acc, warp.index, side, depth))
    layout = layouts.a if side == "a" else layouts.b
    fragment = (
        read_fragment(warp, operation, held, layout)
        if isinstance(held, SharedTile)
        else warp.array(value)
    )
    places = _places(layout, layouts.acc, warp.index, side, depth)
    if places is None:
        raise warp.error(operation, f"the warp holds no part of {layout} that its sums need")
    return fragment.take(places)


def _read_behind(warp: Warp, operation: Operation, tile: SharedTile, wanted: Array) -> Array:
    """Let the instruction read elements of a shared tile, until the warp waits for it."""
    size = tile.type.dtype.size_bytes
    starts = (tile.start + offsets(tile.type.layout)[wanted] * size).ravel()
    access = warp.access(operation, tile.allocation)
    shared = warp.program.shared
    warp.reading[warp.dots].append(shared.begin_reading(starts, size, access=access))
    return from_bytes(shared.peek(starts, size), tile.type).reshape(wanted.shape)


COMPUTE: Mapping[str, Compute] = MappingProxyType({"dot": _dot})
WAITS: Mapping[str, Wait] = MappingProxyType({"dot_wait": _dot_wait})
