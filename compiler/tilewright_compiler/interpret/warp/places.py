"""Layouts as arrays: which element of a tile each lane and register of a warp holds, and where it
lies in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout
from tilewright_compiler.layout.swizzle import SharedLayout

_CACHED = 4096


def images(columns: Sequence[int]) -> Array:
    """Return what the map of these columns gives for 0, 1, 2, ..."""
    result = np.zeros(1, np.int64)
    for column in columns:
        result = np.concatenate([result, result ^ column])
    return result


@lru_cache(_CACHED)
def elements(layout: LinearLayout, warp: int) -> Array:
    """Return the flat index of the element at each place of a warp, [lanes, registers]."""
    return fixed(
        images(layout.lane)[:, None]
        ^ images(layout.register)[None, :]
        ^ gf2.apply(layout.warp, warp)
    )


@lru_cache(_CACHED)
def owned(layout: LinearLayout, warp: int) -> Array:
    """Return which places of a warp hold the one copy that counts, [lanes, registers]."""
    free = layout.free
    lanes, registers = np.arange(NUM_LANES), np.arange(layout.num_registers)
    is_owner = (lanes & free.lane == 0)[:, None] & (registers & free.register == 0)[None, :]
    return fixed(is_owner & (warp & free.warp == 0))


@lru_cache(_CACHED)
def is_injective(layout: LinearLayout) -> bool:
    """Return whether no two places of a program hold one element."""
    return layout.is_injective


@lru_cache(_CACHED)
def offsets(layout: SharedLayout) -> Array:
    """Return the offset in shared memory of each element of a tile, by flat index."""
    return fixed(images(layout.offsets))


@lru_cache(_CACHED)
def threads(warp: int) -> Array:
    """Return the number of each thread of a warp, [lanes, 1]."""
    return fixed((warp * NUM_LANES + np.arange(NUM_LANES))[:, None])


def spread(values: Array, shape: tuple[int, ...]) -> Array:
    """Return values repeated to a shape, which most have already."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def fixed(array: Array) -> Array:
    """Keep callers from writing to what the cache shares."""
    array.setflags(write=False)
    return array
