"""A warp's part of a tile in shared memory, read and written as `layout` plans the instructions:
vectors of each thread, or `ldmatrix`, whose rows one lane addresses and others receive.

So the plans are executed and not only trusted: a wrong one gives wrong values.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.places import fixed, images, threads
from tilewright_compiler.interpret.warp.state import SharedTile, Warp
from tilewright_compiler.interpret.warp.traces import SEVERAL
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import PointerType, Type, element_dtype, element_type
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout
from tilewright_compiler.layout.matrix_load import WORD_BYTES, MatrixLoad, plan_matrix_load
from tilewright_compiler.layout.shared import SharedAccess
from tilewright_compiler.layout.shared_access import plan_shared_access
from tilewright_compiler.layout.swizzle import CHUNK_BYTES, SharedLayout

_CACHED = 1024
_ROWS = 8  # of a matrix


def read_fragment(
    warp: Warp, operation: Operation, tile: SharedTile, layout: LinearLayout
) -> Array:
    """Return what the warp holds of a shared tile in `layout`, [lanes, registers]."""
    plan = plan_read(layout, tile.type.layout, tile.type.dtype.size_bytes)
    if isinstance(plan, MatrixLoad):
        values = _read_matrices(warp, operation, tile, plan)
    else:
        values = _read_vectors(warp, operation, tile, plan)
    return values[:, _held(layout)]


def write_fragment(
    warp: Warp, operation: Operation, tile: SharedTile, layout: LinearLayout, values: Array
) -> None:
    """Write what the warp holds of a tile in `layout` to a shared tile."""
    size = tile.type.dtype.size_bytes
    plan = plan_vectors(layout, tile.type.layout, size)
    offsets, registers = vector_offsets(plan, warp.index)
    warp.program.shared.write(
        tile.start + offsets * size,
        values[:, registers],
        threads(warp.index),
        access=warp.access(operation, tile.allocation),
    )


@lru_cache(_CACHED)
def plan_read(
    layout: LinearLayout, shared: SharedLayout, size_bytes: int
) -> SharedAccess | MatrixLoad:
    """Return the plan that emission takes: `ldmatrix` wherever it can read the tile."""
    matrices = plan_matrix_load(layout, shared, size_bytes=size_bytes)
    return matrices or plan_vectors(layout, shared, size_bytes)


@lru_cache(_CACHED)
def plan_vectors(layout: LinearLayout, shared: SharedLayout, size_bytes: int) -> SharedAccess:
    """Return the plan of a tile's accesses thread by thread."""
    return plan_shared_access(layout, shared, size_bytes=size_bytes)


@lru_cache(_CACHED)
def vector_offsets(plan: SharedAccess, warp: int) -> tuple[Array, Array]:
    """Return the offsets of all elements that the lanes reach, [lanes, n], and their registers."""
    base = images(plan.lane) ^ gf2.apply(plan.warp, warp)
    starts = [base ^ group.offset for group in plan.groups]
    assert not any((start % plan.vector).any() for start in starts), "plans keep vectors aligned"
    columns = [start + index for start in starts for index in range(plan.vector)]
    registers = [register for group in plan.groups for register in group.registers]
    return fixed(np.stack(columns, axis=1)), fixed(np.array(registers))


def to_bytes(values: Array) -> Array:
    """Return the bytes of each value, along a new last axis."""
    return np.ascontiguousarray(values)[..., None].view(np.uint8)


def from_bytes(stored: Array, type_: Type) -> Array:
    """Return the values of the elements of a type; the last axis of `stored` is the bytes of one.

    A pointer is its address.
    """
    is_pointer = isinstance(element_type(type_), PointerType)
    dtype = np.dtype(np.int64) if is_pointer else to_numpy(element_dtype(type_))
    result: Array = np.ascontiguousarray(stored).view(dtype)[..., 0]
    return result


def _read_vectors(warp: Warp, operation: Operation, tile: SharedTile, plan: SharedAccess) -> Array:
    size = tile.type.dtype.size_bytes
    offsets, registers = vector_offsets(plan, warp.index)
    stored = warp.program.shared.read(
        tile.start + offsets * size,
        threads(warp.index),
        size,
        access=warp.access(operation, tile.allocation),
    )
    return _placed(from_bytes(stored, tile.type), registers)


def _read_matrices(warp: Warp, operation: Operation, tile: SharedTile, plan: MatrixLoad) -> Array:
    """Execute `ldmatrix` (PTX ISA): lanes 8 i .. 8 i + 7 address the rows of matrix i."""
    size = tile.type.dtype.size_bytes
    rows = tile.start + _matrix_rows(plan, warp.index, size)
    # Any lane may receive any byte, so none of them alone is the reader.
    stored = warp.program.shared.read(
        rows, np.array(SEVERAL), size, access=warp.access(operation, tile.allocation)
    )
    matrices = stored.reshape(len(plan.groups), plan.matrices, _ROWS, CHUNK_BYTES)
    words = _transposed(matrices) if plan.is_transposed else matrices
    words = words.reshape(*words.shape[:2], NUM_LANES, WORD_BYTES)
    elements = from_bytes(words.reshape(*words.shape[:3], -1, size), tile.type)
    groups, matrix, parts, registers = _received(plan)
    return _placed(elements[groups, matrix, :, parts].T, registers)


@lru_cache(_CACHED)
def _matrix_rows(plan: MatrixLoad, warp: int, size_bytes: int) -> Array:
    """Return the byte of each element of the rows that lanes address, [groups, lanes, elements]."""
    base = images(plan.lane) ^ gf2.apply(plan.warp, warp)
    addressing = base[: _ROWS * plan.matrices]
    offsets = np.stack([addressing ^ group.offset for group in plan.groups])
    rows: Array = offsets[..., None] * size_bytes + np.arange(0, CHUNK_BYTES, size_bytes)
    return fixed(rows)


@lru_cache(_CACHED)
def _received(plan: MatrixLoad) -> tuple[Array, ...]:
    """Return group, matrix and part of a word of all that a lane receives, and its register."""
    found = [
        (index, matrix, part, register)
        for index, group in enumerate(plan.groups)
        for matrix, members in enumerate(group.words)
        for part, register in enumerate(members)
    ]
    return tuple(fixed(np.array(column)) for column in zip(*found, strict=True))


def _transposed(matrices: Array) -> Array:
    """Exchange rows and columns of 16-bit halves."""
    halves = np.ascontiguousarray(matrices).view(np.uint16)
    return np.ascontiguousarray(halves.swapaxes(-1, -2)).view(np.uint8)


def _placed(values: Array, registers: Array) -> Array:
    result = np.zeros((NUM_LANES, max(registers) + 1), values.dtype)
    result[:, registers] = values
    return result


@lru_cache(_CACHED)
def _held(layout: LinearLayout) -> list[int]:
    """Return for each register the one of its thread that was read for both."""
    free = layout.free.register
    read: dict[int, int] = {}
    for register in range(layout.num_registers):
        if not register & free:
            read[gf2.apply(layout.register, register)] = register
    return [read[gf2.apply(layout.register, register)] for register in range(layout.num_registers)]
