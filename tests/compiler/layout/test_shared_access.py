"""Plans for a tile of a given shared layout: every element once, aligned, as wide as can be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.layouts import layouts, shapes
from helpers.simulated_threads import bank_ways, flat_indices, linear
from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.atoms import MMA_8, MMA_16, MMA_TF32, Atom, dot_layouts
from tilewright_compiler.layout.blocked import blocked
from tilewright_compiler.layout.linear import LinearLayout, log2
from tilewright_compiler.layout.matrix_load import MatrixLoad, plan_matrix_load
from tilewright_compiler.layout.shared import SharedAccess
from tilewright_compiler.layout.shared_access import plan_shared_access
from tilewright_compiler.layout.swizzle import SharedLayout, swizzled


@st.composite
def _tiles(draw: st.DrawFn) -> tuple[LinearLayout, SharedLayout]:
    """A layout in registers, and one in shared memory with axes in some order and some xors."""
    shape = draw(shapes())
    layout = draw(layouts(shape, warp_bits=draw(st.integers(0, 2))))
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(shape))))
        return layout, swizzled(shape, order, size_bytes=draw(st.sampled_from([1, 2, 4, 8])))
    columns = list(draw(st.permutations([1 << bit for bit in range(log2(layout.size))])))
    for _ in range(3 if len(columns) > 1 else 0):
        into, source = draw(st.permutations(range(len(columns))))[:2]
        columns[into] ^= columns[source]
    return layout, SharedLayout(shape, tuple(columns))


def _reached(layout: LinearLayout, shared: SharedLayout, plan: SharedAccess) -> set[int]:
    """Check each access of every thread; return the registers that take part."""
    elements = flat_indices(layout)
    offsets = linear(shared.offsets)
    thread = linear(plan.warp)[:, None] ^ linear(plan.lane)[None, :]
    seen: set[int] = set()
    for group in plan.groups:
        start = group.offset ^ thread
        assert (start % plan.vector == 0).all()
        for index, register in enumerate(group.registers):
            assert register not in seen
            seen.add(register)
            np.testing.assert_array_equal(offsets[elements[:, :, register]], start + index)
    return seen


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tile=_tiles(), size_bytes=st.sampled_from([1, 2, 4, 8]))
def test_registers_that_are_no_replicas_are_reached_once(
    tile: tuple[LinearLayout, SharedLayout], size_bytes: int
) -> None:
    layout, shared = tile
    plan = plan_shared_access(layout, shared, size_bytes=size_bytes)
    free = layout.free.register
    wanted = {r for r in range(layout.num_registers) if not r & free}
    assert _reached(layout, shared, plan) == wanted
    assert plan.vector * size_bytes <= 16
    for group, warp in product(plan.groups[:2], range(layout.num_warps)):
        ways = bank_ways(plan, group.offset, warp, size_bytes)
        assert ways == plan.conflict_ways(size_bytes=size_bytes)


def test_rows_of_a_blocked_tile_go_in_vectors_of_16_bytes() -> None:
    layout = blocked((64, 64), (1, 0), vector=8, num_warps=4)
    rows = swizzled((64, 64), (1, 0), size_bytes=2)
    plan = plan_shared_access(layout, rows, size_bytes=2)
    assert (plan.vector, plan.conflict_ways(size_bytes=2)) == (8, 1)
    assert plan_shared_access(layout, rows, size_bytes=2, max_bytes=8).vector == 4
    columns = swizzled((64, 64), (0, 1), size_bytes=2)
    assert plan_shared_access(layout, columns, size_bytes=2).vector == 1


def test_tiles_of_different_shapes_are_refused() -> None:
    layout = blocked((64, 64), (1, 0), vector=8, num_warps=4)
    with pytest.raises(InternalCompilerError, match="different shapes"):
        plan_shared_access(layout, swizzled((32, 128), (1, 0), size_bytes=2), size_bytes=2)


_Lanes = list[list[int]]


def _words_of_a_warp(plan: MatrixLoad, warp: int, size_bytes: int) -> dict[tuple[int, ...], _Lanes]:
    """Execute `ldmatrix` on memory that holds offsets; return the offsets in each lane's words.

    After the PTX ISA: lane l has halves 2 (l % 4) and the next of row l / 4, or, transposed, of
    column l / 4.
    """
    per_row = 16 // size_bytes
    words: dict[tuple[int, ...], _Lanes] = {}
    for group in plan.groups:
        starts = group.offset ^ linear(plan.lane) ^ gf2.apply(plan.warp, warp)
        assert (starts % per_row == 0).all()
        for matrix, registers in enumerate(group.words):
            rows = starts[8 * matrix : 8 * matrix + 8]
            lanes = []
            for lane in range(32):
                if plan.is_transposed:
                    pair = [rows[2 * (lane % 4) + half] + lane // 4 for half in (0, 1)]
                else:
                    first = rows[lane // 4] + lane % 4 * (4 // size_bytes)
                    pair = [first + index for index in range(len(registers))]
                lanes.append([int(offset) for offset in pair])
            words[registers] = lanes
    return words


@pytest.mark.parametrize("order", [(1, 0), (0, 1)], ids=["rows", "columns"])
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize(
    ("atom", "size_bytes"), [(MMA_16, 2), (MMA_TF32, 4), (MMA_8, 1)], ids=["16", "32", "8"]
)
@pytest.mark.parametrize(
    ("shape", "warps"), [((128, 128, 32), (2, 2)), ((16, 64, 128), (1, 4)), ((64, 8, 64), (4, 1))]
)
def test_matrices_give_the_fragments_of_a_dot(
    atom: Atom,
    size_bytes: int,
    side: str,
    order: tuple[int, int],
    shape: tuple[int, int, int],
    warps: tuple[int, int],
) -> None:
    layout: LinearLayout = getattr(dot_layouts(atom, shape=shape, warps=warps, num_warps=4), side)
    shared = swizzled(layout.shape, order, size_bytes=size_bytes)
    plan = plan_matrix_load(layout, shared, size_bytes=size_bytes)
    along_k = order == ((1, 0) if side == "a" else (0, 1))
    if not along_k and size_bytes != 2:
        assert plan is None  # .trans moves halves
        return
    assert plan is not None
    assert plan.is_transposed != along_k
    assert plan.matrices == min(4, layout.num_registers * size_bytes // 4)
    assert plan.conflict_ways(size_bytes=size_bytes) == 1
    offsets, elements = linear(shared.offsets), flat_indices(layout)
    for warp in range(4):
        words = _words_of_a_warp(plan, warp, size_bytes)
        assert sorted(r for word in words for r in word) == list(range(layout.num_registers))
        for registers, lanes in words.items():
            np.testing.assert_array_equal(offsets[elements[warp][:, list(registers)]], lanes)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), side=st.sampled_from("ab"), order=st.permutations(range(2)))
def test_any_arrangement_of_whole_rows_can_be_read(
    data: st.DataObject, side: str, order: tuple[int, int]
) -> None:
    layouts_ = dot_layouts(MMA_16, shape=(64, 32, 32), warps=(2, 1), num_warps=4)
    layout: LinearLayout = getattr(layouts_, side)
    plain = swizzled(layout.shape, order, size_bytes=2)
    # Chunks of 16 bytes change places by any linear map that leaves each one whole.
    moves = list(data.draw(st.permutations([8 << bit for bit in range(log2(layout.size) - 3)])))
    for _ in range(4):
        into, source = data.draw(st.permutations(range(len(moves))))[:2]
        moves[into] ^= moves[source]
    columns = [offset & 7 | gf2.apply(moves, offset >> 3) for offset in plain.offsets]
    shared = SharedLayout(layout.shape, tuple(columns))
    plan = plan_matrix_load(layout, shared, size_bytes=2)
    assert plan is not None
    offsets, elements = linear(shared.offsets), flat_indices(layout)
    for warp in range(layout.num_warps):
        for registers, lanes in _words_of_a_warp(plan, warp, 2).items():
            np.testing.assert_array_equal(offsets[elements[warp][:, list(registers)]], lanes)


def test_eight_bytes_are_no_matrix() -> None:
    layout = blocked((64, 64), (1, 0), vector=2, num_warps=4)
    assert plan_matrix_load(layout, swizzled((64, 64), (1, 0), size_bytes=8), size_bytes=8) is None
