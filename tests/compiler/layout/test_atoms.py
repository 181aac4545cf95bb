"""Layouts of dots against the fragments of the PTX ISA, and what follows for chained dots."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tilewright.errors import InternalCompilerError
from tilewright_compiler.layout.atoms import (
    ATOMS,
    FMA,
    MMA_8,
    MMA_16,
    MMA_F64,
    MMA_TF32,
    Atom,
    DotLayouts,
    dot_layouts,
)
from tilewright_compiler.layout.convert import Identity, RegisterMove, plan_conversion
from tilewright_compiler.layout.linear import NUM_LANES, LinearLayout

Place = tuple[int, int]
Fragment = Callable[[int, int], Place]  # lane, element -> row, column

# PTX ISA, "Matrix fragments for mma.m...": the formulas of each figure, element by element.
FRAGMENTS: dict[Atom, dict[str, Fragment]] = {
    MMA_16: {
        "a": lambda lane, i: (lane // 4 + 8 * (i // 2 % 2), lane % 4 * 2 + i % 2 + 8 * (i // 4)),
        "b": lambda lane, i: (lane % 4 * 2 + i % 2 + 8 * (i // 2), lane // 4),
        "acc": lambda lane, i: (lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2),
    },
    MMA_TF32: {
        "a": lambda lane, i: (lane // 4 + 8 * (i % 2), lane % 4 + 4 * (i // 2)),
        "b": lambda lane, i: (lane % 4 + 4 * i, lane // 4),
        "acc": lambda lane, i: (lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2),
    },
    MMA_8: {
        "a": lambda lane, i: (lane // 4 + 8 * (i // 4 % 2), lane % 4 * 4 + i % 4 + 16 * (i // 8)),
        "b": lambda lane, i: (lane % 4 * 4 + i % 4 + 16 * (i // 4), lane // 4),
        "acc": lambda lane, i: (lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2),
    },
    MMA_F64: {
        "a": lambda lane, _: (lane // 4, lane % 4),
        "b": lambda lane, _: (lane % 4, lane // 4),
        "acc": lambda lane, i: (lane // 4, lane % 4 * 2 + i),
    },
}
MMAS = sorted(FRAGMENTS, key=lambda atom: atom.name)
SHAPES = [(1, 1, 1), (2, 1, 2), (4, 4, 2), (8, 2, 1)]  # in atoms
WARPS = [((1, 1), 1), ((1, 1), 4), ((2, 1), 2), ((1, 2), 4), ((2, 2), 4), ((4, 2), 8)]


def shape_in_atoms(atom: Atom, counts: tuple[int, int, int]) -> tuple[int, int, int]:
    return atom.m * counts[0], atom.n * counts[1], atom.k * counts[2]


def named(layouts: DotLayouts) -> dict[str, LinearLayout]:
    return {"a": layouts.a, "b": layouts.b, "acc": layouts.acc}


@pytest.mark.parametrize("atom", MMAS, ids=lambda atom: atom.name)
@pytest.mark.parametrize("operand", ["a", "b", "acc"])
def test_one_instruction_holds_what_the_isa_says(atom: Atom, operand: str) -> None:
    layouts = dot_layouts(atom, shape=(atom.m, atom.n, atom.k), warps=(1, 1), num_warps=1)
    layout, fragment = named(layouts)[operand], FRAGMENTS[atom][operand]
    assert layout.num_registers * NUM_LANES == layout.size
    for lane, register in product(range(NUM_LANES), range(layout.num_registers)):
        assert layout.coordinates(register=register, lane=lane) == fragment(lane, register)


@pytest.mark.parametrize("atom", MMAS, ids=lambda atom: atom.name)
@pytest.mark.parametrize("operand", ["a", "b", "acc"])
def test_fragments_of_a_tile_are_slices_of_registers_that_repeat_the_atom(
    atom: Atom, operand: str
) -> None:
    layouts = dot_layouts(atom, shape=shape_in_atoms(atom, (4, 4, 2)), warps=(2, 2), num_warps=4)
    layout, fragment = named(layouts)[operand], FRAGMENTS[atom][operand]
    extents = {"a": (atom.m, atom.k), "b": (atom.k, atom.n), "acc": (atom.m, atom.n)}[operand]
    size = extents[0] * extents[1] // NUM_LANES
    for warp, first in product(range(4), range(0, layout.num_registers, size)):
        origin = layout.coordinates(register=first, warp=warp)
        assert all(at % extent == 0 for at, extent in zip(origin, extents, strict=True))
        for lane, register in product(range(NUM_LANES), range(size)):
            row, column = fragment(lane, register)
            held = layout.coordinates(register=first + register, lane=lane, warp=warp)
            assert held == (origin[0] + row, origin[1] + column)


@pytest.mark.parametrize("atom", [*MMAS, FMA], ids=lambda atom: atom.name)
@pytest.mark.parametrize("counts", SHAPES, ids=str)
@pytest.mark.parametrize(("warps", "num_warps"), WARPS, ids=str)
def test_every_element_is_held_and_only_warps_left_over_repeat_results(
    atom: Atom, counts: tuple[int, int, int], warps: tuple[int, int], num_warps: int
) -> None:
    if counts[0] < warps[0] or counts[1] < warps[1]:
        with pytest.raises(InternalCompilerError, match=r"warps along [mn] have no"):
            dot_layouts(atom, shape=shape_in_atoms(atom, counts), warps=warps, num_warps=num_warps)
        return
    shape = shape_in_atoms(atom, counts)
    layouts = dot_layouts(atom, shape=shape, warps=warps, num_warps=num_warps)
    for layout in named(layouts).values():
        assert layout.is_surjective
        assert layout.free.register == 0
        assert layout.num_warps == num_warps
    m, n, k = shape
    assert (layouts.a.shape, layouts.b.shape, layouts.acc.shape) == ((m, k), (k, n), (m, n))
    if atom.is_mma:
        assert layouts.acc.free.lane == 0
        assert 1 << layouts.acc.free.warp.bit_count() == num_warps // (warps[0] * warps[1])


@pytest.mark.parametrize("atom", [*MMAS, FMA], ids=lambda atom: atom.name)
def test_a_warp_works_on_a_block_of_its_own(atom: Atom) -> None:
    shape = shape_in_atoms(atom, (8, 8, 2))
    layouts = dot_layouts(atom, shape=shape, warps=(4, 2), num_warps=8)
    for warp in range(8):
        held = {
            layouts.acc.coordinates(register=register, lane=lane, warp=warp)
            for lane in range(NUM_LANES)
            for register in range(layouts.acc.num_registers)
        }
        rows, columns = sorted({row for row, _ in held}), sorted({column for _, column in held})
        assert rows == list(range(rows[0], rows[0] + shape[0] // 4))
        assert columns == list(range(columns[0], columns[0] + shape[1] // 2))
        assert len(held) == len(rows) * len(columns)


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
@pytest.mark.parametrize(("m", "n", "p"), [(128, 64, 64), (128, 128, 32), (128, 16, 256)])
def test_a_result_of_16_bits_is_the_next_operand_without_moving(
    m: int, n: int, p: int, num_warps: int
) -> None:
    warps = (num_warps, 1)
    first = dot_layouts(MMA_16, shape=(m, n, 32), warps=warps, num_warps=num_warps)
    second = dot_layouts(MMA_16, shape=(m, p, n), warps=warps, num_warps=num_warps)
    plan = plan_conversion(first.acc, second.a, size_bytes=2)
    assert isinstance(plan, Identity | RegisterMove)
    # Sums of rows scale the second accumulator where they are.
    assert first.acc.slice(1) == second.acc.slice(1)


def test_a_transposed_result_is_the_second_operand_without_moving_if_warps_turn() -> None:
    first = dot_layouts(MMA_16, shape=(64, 32, 16), warps=(4, 1), num_warps=4)
    second = dot_layouts(MMA_16, shape=(16, 64, 32), warps=(1, 4), num_warps=4)
    plan = plan_conversion(first.acc.transpose((1, 0)), second.b, size_bytes=2)
    assert isinstance(plan, Identity | RegisterMove)


@pytest.mark.parametrize(
    ("m", "n", "rows", "columns"),
    [(64, 32, 8, 8), (32, 64, 8, 8), (32, 32, 8, 4), (16, 64, 8, 4), (4, 8, 1, 1), (8, 8, 1, 2)],
)
def test_a_thread_multiplies_and_adds_a_near_square_part(
    m: int, n: int, rows: int, columns: int
) -> None:
    layouts = dot_layouts(FMA, shape=(m, n, 16), warps=(1, 1), num_warps=1)
    held = [layouts.acc.coordinates(register=r) for r in range(layouts.acc.num_registers)]
    assert layouts.acc.is_injective
    assert len({row for row, _ in held}) == rows
    assert len({column for _, column in held}) == columns
    # Of each operand a thread has what its part needs, for all of k.
    assert layouts.a.num_registers == rows * 16
    assert layouts.b.num_registers == columns * 16


def test_a_thread_has_runs_of_four_along_both_axes() -> None:
    layouts = dot_layouts(FMA, shape=(64, 64, 16), warps=(2, 2), num_warps=4)
    assert {1, 2} <= set(layouts.acc.register)
    assert {64, 128} <= set(layouts.acc.register)
    assert {16, 32} <= set(layouts.a.register)


def test_atoms_are_found_by_name() -> None:
    assert {ATOMS[atom.name] for atom in (*MMAS, FMA)} == set(ATOMS.values())


@pytest.mark.parametrize(
    ("shape", "num_warps"), [((16, 8, 8), 1), ((64, 64, 16), 2)], ids=["k", "warps"]
)
def test_a_tile_that_does_not_fit_is_refused(shape: tuple[int, int, int], num_warps: int) -> None:
    warps = (1, 1) if num_warps == 1 else (2, 2)
    with pytest.raises(InternalCompilerError, match=r"does not fit mma\.m16n8k16"):
        dot_layouts(MMA_16, shape=shape, warps=warps, num_warps=num_warps)
