"""Tiles in panels, and the operands and fragments of `wgmma`, against the PTX ISA's words."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright_compiler.layout.atoms import ATOMS, Atom, dot_layouts, wgmma
from tilewright_compiler.layout.convert import Identity, RegisterMove, plan_conversion
from tilewright_compiler.layout.linear import NUM_LANES, flatten
from tilewright_compiler.layout.panels import panelled, panels_of
from tilewright_compiler.layout.swizzle import swizzled
from tilewright_compiler.layout.wgmma_operand import WgmmaOperand, plan_wgmma_operand


def hardware_swizzle(address: int, line_bytes: int) -> int:
    """PTX ISA, "Swizzle modes": 16-byte chunks are permuted by the number of the 128-byte row."""
    chunks = line_bytes // 16
    return address ^ ((address >> 7) % chunks) << 4


@pytest.mark.parametrize("size_bytes", [1, 2, 4])
@pytest.mark.parametrize(("line_bytes", "panels"), [(128, 1), (128, 2), (128, 4), (64, 1), (32, 1)])
@pytest.mark.parametrize("rows", [8, 64])
def test_panels_are_boxes_of_bulk_copies(
    size_bytes: int, line_bytes: int, panels: int, rows: int
) -> None:
    """A box is written row by row, each a line long, then swizzled; boxes follow each other."""
    line = line_bytes // size_bytes
    layout = panelled((rows, panels * line), 1, size_bytes=size_bytes)
    assert layout is not None
    for row, column in product(range(rows), range(panels * line)):
        box, within = divmod(column, line)
        address = (box * rows + row) * line_bytes + within * size_bytes
        expected = hardware_swizzle(address, line_bytes)
        assert layout.offset(row * panels * line + column) * size_bytes == expected
    found = panels_of(layout, size_bytes=size_bytes)
    assert found is not None
    assert (found.axis, found.line_bytes, found.rows, found.count) == (1, line_bytes, rows, panels)


def test_narrow_rows_have_no_panels() -> None:
    assert panelled((8, 8), 1, size_bytes=2) is None


def hardware_address(operand: WgmmaOperand, start: int, mn: int, k: int, *, size_bytes: int) -> int:
    """PTX ISA, "Matrix descriptor": where an instruction finds its element, in bytes.

    K-major: 8 rows a line apart, the next 8 at the stride. MN-major: a line of the other axis, the
    next at the leading distance; 8 of k a line apart, the next 8 at the stride.
    """
    descriptor = operand.descriptor
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    line_bytes = {1: 128, 2: 64, 3: 32}[descriptor >> 62]
    if operand.is_k_major:
        address = mn // 8 * stride + mn % 8 * line_bytes + k * size_bytes
    else:
        line = line_bytes // size_bytes
        address = mn // line * leading + mn % line * size_bytes
        address += k // 8 * stride + k % 8 * line_bytes
    return hardware_swizzle(start + address, line_bytes)


OPERANDS = [
    # shape [rows, columns], contiguous along columns; k along the columns or not; bytes
    ((128, 64), True, 2),
    ((64, 128), True, 2),
    ((64, 32), True, 2),
    ((64, 16), True, 2),
    ((256, 32), True, 4),
    ((64, 64), True, 1),
    ((64, 128), False, 2),
    ((32, 256), False, 2),
    ((32, 32), False, 2),
    ((16, 16), False, 2),
]


@pytest.mark.parametrize(("shape", "is_k_major", "size_bytes"), OPERANDS, ids=str)
def test_instructions_find_the_elements(
    shape: tuple[int, int], is_k_major: bool, size_bytes: int
) -> None:
    layout = panelled(shape, 1, size_bytes=size_bytes)
    assert layout is not None
    operand = plan_wgmma_operand(layout, k_axis=1 if is_k_major else 0, size_bytes=size_bytes)
    assert operand is not None
    assert operand.is_k_major == is_k_major
    mn_extent, k_extent = shape if is_k_major else shape[::-1]
    atom_k, atom_mn = 32 // size_bytes, min(mn_extent, 64)
    for mn0, k0 in product(range(0, mn_extent, atom_mn), range(0, k_extent, atom_k)):
        start = operand.offset(mn=mn0, k=k0)
        for mn, k in product(range(atom_mn), range(atom_k)):
            place = (mn0 + mn, k0 + k) if is_k_major else (k0 + k, mn0 + mn)
            expected = layout.offset(flatten(place, shape)) * size_bytes
            assert hardware_address(operand, start, mn, k, size_bytes=size_bytes) == expected


def test_transposed_tiles_are_read_along_the_other_axis() -> None:
    layout = panelled((128, 64), 1, size_bytes=2)
    assert layout is not None
    operand = plan_wgmma_operand(layout.transpose((1, 0)), k_axis=0, size_bytes=2)
    assert operand is not None
    assert operand.is_k_major


def test_what_the_instruction_cannot_read_has_no_plan() -> None:
    bytes_along_n = panelled((32, 64), 1, size_bytes=1)
    assert bytes_along_n is not None
    assert plan_wgmma_operand(bytes_along_n, k_axis=0, size_bytes=1) is None
    of_ldmatrix = swizzled((64, 32), (1, 0), size_bytes=2)
    assert plan_wgmma_operand(of_ldmatrix, k_axis=1, size_bytes=2) is None


# PTX ISA, "Register fragments for wgmma.mma_async": D, and A in registers, of warp 0..3.
def accumulator_place(warp: int, lane: int, i: int) -> tuple[int, int]:
    return 16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + lane % 4 * 2 + i % 2


def operand_place(atom: Atom, warp: int, lane: int, i: int) -> tuple[int, int]:
    per_word = 32 // atom.operand_bits
    word, within = divmod(i, per_word)
    row = 16 * warp + lane // 4 + 8 * (word % 2)
    return row, lane % 4 * per_word + within + 4 * per_word * (word // 2)


@pytest.mark.parametrize("operand_bits", [8, 16, 32])
@pytest.mark.parametrize("n", [8, 64, 256])
def test_fragments_of_one_instruction(n: int, operand_bits: int) -> None:
    atom = wgmma(n, operand_bits=operand_bits)
    layouts = dot_layouts(atom, shape=(64, n, atom.k), warps=(4, 1), num_warps=4)
    for warp, lane in product(range(4), range(NUM_LANES)):
        for i in range(n // 2):
            row, column = accumulator_place(warp, lane, i)
            held = layouts.acc.flat_index(register=i, lane=lane, warp=warp)
            assert held == row * n + column
        for i in range(layouts.a.num_registers):
            row, column = operand_place(atom, warp, lane, i)
            held = layouts.a.flat_index(register=i, lane=lane, warp=warp)
            assert held == row * atom.k + column


def test_warpgroups_divide_rows_then_columns() -> None:
    atom = wgmma(64, operand_bits=16)
    layouts = dot_layouts(atom, shape=(128, 128, 64), warps=(8, 2), num_warps=16)
    assert layouts.acc.flat_index(warp=4) == 64
    assert layouts.acc.flat_index(warp=8) == 64 * 128
    assert layouts.acc.num_registers == 32


@pytest.mark.parametrize("warps", [4, 8])
def test_accumulators_are_first_operands_of_the_next_product(warps: int) -> None:
    """With warpgroups along M only, no value leaves its thread between two products."""
    m = 16 * warps
    first = dot_layouts(
        ATOMS["wgmma.m64n128k16"], shape=(m, 128, 64), warps=(warps, 1), num_warps=warps
    )
    second = dot_layouts(
        ATOMS["wgmma.m64n64k16"], shape=(m, 64, 128), warps=(warps, 1), num_warps=warps
    )
    plan = plan_conversion(first.acc, second.a, size_bytes=2)
    assert isinstance(plan, Identity | RegisterMove)
