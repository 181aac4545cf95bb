"""Swizzled tiles keep chunks whole and meet different banks, whichever way they are accessed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.layouts import shapes
from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout.atoms import (
    FMA,
    MMA_8,
    MMA_16,
    MMA_F64,
    MMA_TF32,
    Atom,
    dot_layouts,
)
from tilewright_compiler.layout.linear import flatten, unflatten
from tilewright_compiler.layout.matrix_load import plan_matrix_load
from tilewright_compiler.layout.shared_access import plan_shared_access
from tilewright_compiler.layout.swizzle import CHUNK_BYTES, SharedLayout, swizzled

SIZES = [1, 2, 4, 8]
OPERANDS = {MMA_16: 2, MMA_TF32: 4, MMA_8: 1, MMA_F64: 8, FMA: 4}  # bytes of an element
TILES = [(rows, columns) for rows in (8, 16, 32, 64, 256) for columns in (1, 4, 16, 32, 64, 256)]


def tiles(size_bytes: int) -> list[tuple[int, int]]:
    """Tiles whose rows hold whole chunks."""
    return [(r, c) for r, c in TILES if c * size_bytes >= CHUNK_BYTES]


def places(layout: SharedLayout, elements: Iterable[Sequence[int]]) -> list[int]:
    return [layout.offset(flatten(element, layout.shape)) for element in elements]


def busiest_bank(offsets: Iterable[int], size_bytes: int) -> int:
    """Count the words that one bank serves for accesses of one element each."""
    words = {offset * size_bytes // 4 for offset in offsets}
    words |= {word + 1 for word in words if size_bytes == 8}
    banks = [word % 32 for word in words]
    return max(banks.count(bank) for bank in set(banks))


@pytest.mark.parametrize("size_bytes", SIZES)
def test_chunks_stay_whole_and_aligned(size_bytes: int) -> None:
    chunk = CHUNK_BYTES // size_bytes
    for rows, columns in tiles(size_bytes):
        layout = swizzled((rows, columns), (1, 0), size_bytes=size_bytes)
        for row, column in product(range(rows), range(0, columns, chunk)):
            run = places(layout, [(row, column + i) for i in range(chunk)])
            assert run == list(range(run[0], run[0] + chunk))
            assert run[0] % chunk == 0


@pytest.mark.parametrize("size_bytes", SIZES)
def test_eight_chunks_along_a_row_and_across_rows_are_in_different_banks(size_bytes: int) -> None:
    chunk = CHUNK_BYTES // size_bytes
    for rows, columns in tiles(size_bytes):
        layout = swizzled((rows, columns), (1, 0), size_bytes=size_bytes)
        chunks = [(r, c) for r in range(rows) for c in range(0, columns, chunk)]
        for first in range(0, len(chunks), 8):
            written = places(layout, chunks[first : first + 8])
            assert len({offset // chunk % 8 for offset in written}) == 8, (rows, columns)
        for row, column in product(range(0, rows, 8), range(0, columns, chunk)):
            read = places(layout, [(row + i, column) for i in range(8)])
            assert len({offset // chunk % 8 for offset in read}) == 8, (rows, columns)


@pytest.mark.parametrize(("size_bytes", "packed"), [(1, 4), (4, 1), (8, 1)])
def test_fragments_across_rows_are_read_without_conflicts(size_bytes: int, packed: int) -> None:
    """Four lanes along rows, of which a word packs some, and eight along columns (mma.sync)."""
    lanes_a_phase = 16 if size_bytes == 8 else 32
    for rows, columns in [(r, c) for r, c in tiles(size_bytes) if r >= 4 * packed and c >= 8]:
        layout = swizzled((rows, columns), (1, 0), size_bytes=size_bytes)
        lanes = [(packed * (lane % 4), lane // 4) for lane in range(32)]
        for first in range(0, 32, lanes_a_phase):
            read = places(layout, lanes[first : first + lanes_a_phase])
            assert busiest_bank(read, size_bytes) == 1, (rows, columns)


def test_fragments_of_f64_along_rows_are_read_without_conflicts() -> None:
    for rows, columns in [(r, c) for r, c in tiles(8) if c >= 4]:
        layout = swizzled((rows, columns), (1, 0), size_bytes=8)
        for first in (0, 16):
            lanes = [(lane // 4, lane % 4) for lane in range(first, first + 16)]
            assert busiest_bank(places(layout, lanes), 8) == 1, (rows, columns)


def test_vectors_of_multiply_adds_across_rows_are_read_without_conflicts() -> None:
    """Lanes that take four columns each read vectors along k: rows 4, 8, 16 apart."""
    for rows, columns in [(r, c) for r, c in tiles(4) if r >= 32]:
        layout = swizzled((rows, columns), (1, 0), size_bytes=4)
        read = places(layout, [(4 * lane, 0) for lane in range(8)])
        assert len({offset // 4 % 8 for offset in read}) == 8, (rows, columns)


@pytest.mark.parametrize(("atom", "size_bytes"), list(OPERANDS.items()), ids=str)
@pytest.mark.parametrize("order", [(1, 0), (0, 1)], ids=["rows", "columns"])
def test_a_dot_reads_its_operands_without_conflicts(
    atom: Atom, size_bytes: int, order: tuple[int, int]
) -> None:
    """As `emit` reads them: with `ldmatrix` where that can, else with the widest plain accesses."""
    extents = product((32, 128), (8, 16, 64, 128), (atom.k, 32, 128))
    for (m, n, k), warps in product(extents, ((1, 1), (2, 1), (1, 2))):
        if k < atom.k or n < warps[1] * atom.n:
            continue
        layouts = dot_layouts(atom, shape=(m, n, k), warps=warps, num_warps=2)
        for layout in (layouts.a, layouts.b):
            shared = swizzled(layout.shape, order, size_bytes=size_bytes)
            plan = plan_matrix_load(layout, shared, size_bytes=size_bytes) or plan_shared_access(
                layout, shared, size_bytes=size_bytes
            )
            assert plan.conflict_ways(size_bytes=size_bytes) == 1, (m, n, k, warps, layout)


@pytest.mark.parametrize("size_bytes", SIZES)
def test_another_fastest_axis_is_the_transposed_layout(size_bytes: int) -> None:
    for rows, columns in TILES:
        layout = swizzled((columns, rows), (0, 1), size_bytes=size_bytes)
        assert layout == swizzled((rows, columns), (1, 0), size_bytes=size_bytes).transpose((1, 0))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shape=shapes(), size_bytes=st.sampled_from(SIZES), data=st.data())
def test_every_swizzle_is_a_bijection_and_its_views_move_no_element(
    shape: tuple[int, ...], size_bytes: int, data: st.DataObject
) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    layout = swizzled(shape, order, size_bytes=size_bytes)
    assert sorted(map(layout.offset, range(layout.size))) == list(range(layout.size))
    assert SharedLayout.parse(str(layout)) == layout
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    turned = layout.transpose(axes)
    back = tuple(axes.index(axis) for axis in range(len(axes)))
    assert turned.transpose(back) == layout
    assert layout.reshape((layout.size,)).reshape(shape) == layout
    for flat_index in range(layout.size):
        moved = [unflatten(flat_index, shape)[axis] for axis in axes]
        assert turned.offset(flatten(moved, turned.shape)) == layout.offset(flat_index)


@pytest.mark.parametrize("text", ["#shared<4x2; 1,2>", "#shared<4x2; 1,2,3>"])
def test_what_is_no_bijection_is_refused(text: str) -> None:
    with pytest.raises(InternalCompilerError, match="is no bijection"):
        SharedLayout.parse(text)


def test_what_is_no_layout_is_refused() -> None:
    with pytest.raises(InternalCompilerError, match="not a shared layout"):
        SharedLayout.parse("#shared<4x2>")
