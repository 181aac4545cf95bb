"""Matrix products by blocks whose sums along K several programs share.

Of a result with few tiles, or of few rows, each tile is the sum of `parts` programs' products, so
that all of a GPU reads the factors. Every program leaves its part in `partial`; the one that comes
last to a tile adds all parts up in their order and writes the result, so no bit depends on who came
last. `arrived` counts for each tile; it is 0 before a launch, and again behind it.

The warpgroup's instruction has 64 rows. Where `BLOCK_M` has fewer, the transposed product is
computed: the columns of B are its rows.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.matmul import (
    eights,
    epilogue,
    factors,
    origin_of_tile,
    product_of_blocks,
    store_tile,
)

# Rows of the warpgroup's instruction.
GROUP_ROWS = tl.constexpr(64)

# So many parts are read at a time, and so many elements of each: what registers hold.
PARTS_AT_ONCE = tl.constexpr(4)
ELEMENTS_AT_ONCE = tl.constexpr(4096)


@tl.kernel
def sum_of_parts(
    partial, parts, row, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr
):
    """Return the sum of a tile's parts, in their order, of `ROWS` rows from `row` on."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, BLOCK_N)
    offsets = (row + rows)[:, None] * BLOCK_N + columns[None, :]
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for first in range(0, parts, PARTS_AT_ONCE):
        for index in tl.static_range(PARTS_AT_ONCE):
            part = first + index
            inside = tl.full((ROWS, BLOCK_N), part < parts, tl.int1)
            total += tl.load(partial + part * (BLOCK_M * BLOCK_N) + offsets, mask=inside)
    return total


@tl.kernel(unit=("a_inner", "b_inner", "c_column", "gate_column", "residual_column"))
def matmul_parts(
    a, b, c, bias, gate, residual, partial, arrived,
    m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, a_inner,  # noqa: ARG001  # as `matmul` takes them
    b_batch0, b_batch1, b_outer, b_inner,  # noqa: ARG001
    c_batch0, c_batch1, c_row, c_column,
    gate_batch0, gate_batch1, gate_row, gate_column,
    residual_batch0, residual_batch1, residual_row, residual_column, parts,
    alpha, activation, has_bias, has_gate, has_residual,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Do as `matmul_blocks`, each tile by `parts` programs of grid axis 0.

    N and all strides of C must be multiples of 8, too. `partial` has as many tiles in f32, of any
    content, `arrived` an i32 for each tile.
    """
    batch0, batch1 = tl.program_id(2), tl.program_id(1)
    tiles = (tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)).to(tl.int32)
    program = tl.program_id(0).to(tl.int32)
    part = program // tiles
    row, column = origin_of_tile(program % tiles, m, n, BLOCK_M, BLOCK_N)
    left, right = factors(
        a, b, m, n, k, a_extent, b_extent,
        a_batch0, a_batch1, a_outer, b_batch0, b_batch1, b_outer,
        A_UNIT, B_UNIT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    length = tl.cdiv(tl.cdiv(k, BLOCK_K), parts) * BLOCK_K
    first = part * length
    last = tl.minimum(k, first + length)
    if BLOCK_M < GROUP_ROWS:
        turned = product_of_blocks(
            tl.zeros((BLOCK_N, BLOCK_M), tl.float32), right, left, column, row, first, last,
            "m" if B_UNIT == "n" else "k", "n" if A_UNIT == "m" else "k", PRECISION, BLOCK_K,
        )  # fmt: skip
        total = tl.trans(turned)
    else:
        total = product_of_blocks(
            tl.zeros((BLOCK_M, BLOCK_N), tl.float32), left, right, row, column, first, last,
            A_UNIT, B_UNIT, PRECISION, BLOCK_K,
        )  # fmt: skip
    ROWS: tl.constexpr = min(BLOCK_M, ELEMENTS_AT_ONCE // BLOCK_N)
    number = (batch0 * tl.num_programs(1) + batch1) * tiles + program % tiles
    sums = partial + number.to(tl.int64) * parts * (BLOCK_M * BLOCK_N)
    offsets = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(sums + part * (BLOCK_M * BLOCK_N) + offsets, total)
    if tl.atomic_add(arrived + number, 1) == parts - 1:
        tl.store(arrived + number, 0)
        for start in range(0, BLOCK_M, ROWS):
            result = epilogue(
                sum_of_parts(sums, parts, start, BLOCK_M, BLOCK_N, ROWS),
                bias, gate, residual, row + start, column, m, eights(n),
                eights(gate_batch0), eights(gate_batch1), eights(gate_row), gate_column,
                eights(residual_batch0), eights(residual_batch1), eights(residual_row),
                residual_column,
                alpha, activation, has_bias, has_gate, has_residual, ROWS, BLOCK_N,
            )  # fmt: skip
            origin = c + batch0 * eights(c_batch0) + batch1 * eights(c_batch1)
            store_tile(
                origin, result, row + start, column, m, eights(n), eights(c_row), c_column,
                ROWS, BLOCK_N,
            )  # fmt: skip
