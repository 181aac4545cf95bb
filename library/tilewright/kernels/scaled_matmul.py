"""Products of 8-bit floats whose scales lie on the device: of arrays, of rows, or of blocks.

A scale is an f32 that a factor's elements are multiplied by: one for the whole of it, one for each
row of A or column of B, or one for each block, of A 1 x 128 along K and of B 128 x 128. All of them
are read alike, by strides that are 0 where a scale repeats. The sum over 128 elements of K is kept
apart, as the products of 8-bit floats are summed anyway, and scaled as it is added to the whole.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.matmul import GROUP_ROWS, tile_origin

# So many elements of K, and columns of B, share a scale.
SCALED = tl.constexpr(128)

# So many steps along K a tile of few rows takes together.
AHEAD = tl.constexpr(4)


@tl.kernel
def rows_of(x, rows, columns, row, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return a descriptor of a matrix whose rows begin at multiples of 16 bytes."""
    unit: tl.constexpr = 16 // x.dtype.element_ty.itemsize
    return tl.make_tensor_descriptor(
        x, [rows, columns], [tl.multiple_of(row, unit), 1], [ROWS, COLUMNS]
    )


@tl.kernel
def scales_of_tile(
    a_scale, b_scale, row, column, step, m, k,
    a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Load the scales of A and of B in a block along K for each row of a tile, 0 for those past M.

    Behind the last block that one is read again. The scale of B is 1 where each column has its own.
    It is loaded for each row: one for all of them would go to a register that all threads share,
    and be waited for before the next product could start.
    """
    lanes = tl.arange(0, BLOCK_M)
    inside = (lanes < tl.minimum(m - row, BLOCK_M).to(tl.int32)) & (k > 0)
    step = tl.minimum(step, tl.cdiv(k, SCALED) - 1)
    rows = a_scale + (row * a_scale_row + step * a_scale_k) + lanes * a_scale_row.to(tl.int32)
    block = b_scale + (step * b_scale_k + column // SCALED * b_scale_block)
    return (
        tl.load(rows, mask=inside, other=0.0),
        tl.load(tl.broadcast_to(block, (BLOCK_M,)), mask=inside & (by_columns == 0), other=1.0),
    )


@tl.kernel
def scaled_product(
    left, right, a_scale, b_scale, row, column, m, k,
    a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Return the tile of A @ B at `row`, `column`, each block along K scaled.

    Scales are read one block ahead of their use.
    """
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    rows, block = scales_of_tile(
        a_scale, b_scale, row, column, 0, m, k,
        a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
    )  # fmt: skip
    scale = rows * block
    for start in range(0, k, SCALED):
        rows, block = scales_of_tile(
            a_scale, b_scale, row, column, start // SCALED + 1, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        )  # fmt: skip
        part = tl.dot(left.load([row, start]), tl.trans(right.load([column, start])))
        total = tl.fma(part, scale[:, None], total)
        scale = rows * block
    return total


@tl.kernel
def scaled_few_rows(
    left, right, a_scale, b_scale, row, column, m, k,
    a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Do as `scaled_product` for a tile of fewer rows than the warpgroup's instruction has.

    It is computed transposed: the columns of B are its rows. A step of so few products is shorter
    than the way of a scale, so `AHEAD` steps are taken together, and their scales read while those
    before them are used. Blocks past K are zeros.
    """
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    scales = scales_of_steps(
        a_scale, b_scale, row, column, 0, m, k,
        a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
    )  # fmt: skip
    for start in range(0, k, AHEAD * SCALED):
        later = scales_of_steps(
            a_scale, b_scale, row, column, start // SCALED + AHEAD, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        )  # fmt: skip
        for index in tl.static_range(AHEAD):
            rows, block = scales[index]
            at = start + index * SCALED
            part = tl.dot(right.load([column, at]), tl.trans(left.load([row, at])))
            total = tl.fma(part, (rows * block)[None, :], total)
        scales = later
    return tl.trans(total)


@tl.kernel
def scales_of_steps(
    a_scale, b_scale, row, column, step, m, k,
    a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Load what `scales_of_tile` gives for `AHEAD` steps."""
    return (
        scales_of_tile(
            a_scale, b_scale, row, column, step, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        ),
        scales_of_tile(
            a_scale, b_scale, row, column, step + 1, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        ),
        scales_of_tile(
            a_scale, b_scale, row, column, step + 2, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        ),
        scales_of_tile(
            a_scale, b_scale, row, column, step + 3, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        ),
    )  # fmt: skip


@tl.kernel
def scaled_halves(
    left, right, a_scale, b_scale, row, column, m, k,
    a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns,
    BLOCK_M: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Return two tiles of A @ B side by side, at `row`, `column`, each block along K scaled.

    A block of A serves both; while one is added to its sum, the registers of the other's block are
    free. Scales are read one block ahead of their use.
    """
    first = tl.zeros((BLOCK_M, HALF), tl.float32)
    second = tl.zeros((BLOCK_M, HALF), tl.float32)
    rows, one = scales_of_tile(
        a_scale, b_scale, row, column, 0, m, k,
        a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
    )  # fmt: skip
    _, other = scales_of_tile(
        a_scale, b_scale, row, column + HALF, 0, m, k,
        a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
    )  # fmt: skip
    of_first, of_second = rows * one, rows * other
    for start in range(0, k, SCALED):
        step = start // SCALED + 1
        rows, one = scales_of_tile(
            a_scale, b_scale, row, column, step, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        )  # fmt: skip
        _, other = scales_of_tile(
            a_scale, b_scale, row, column + HALF, step, m, k,
            a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M,
        )  # fmt: skip
        a_block = left.load([row, start])
        b_block = tl.trans(right.load([column, start]))
        more = tl.trans(right.load([column + HALF, start]))
        first = tl.fma(tl.dot(a_block, b_block), of_first[:, None], first)
        second = tl.fma(tl.dot(a_block, more), of_second[:, None], second)
        of_first, of_second = rows * one, rows * other
    return first, second


@tl.kernel
def halves_scaled_at_the_end(
    left, right, a_scale, b_scale, row, column, m, k, a_scale_row, by_columns,
    BLOCK_M: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Do as `scaled_halves` where no scale depends on the block: a tenth faster."""
    first = tl.zeros((BLOCK_M, HALF), tl.float32)
    second = tl.zeros((BLOCK_M, HALF), tl.float32)
    for start in range(0, k, SCALED):
        a_block = left.load([row, start])
        b_block = tl.trans(right.load([column, start]))
        more = tl.trans(right.load([column + HALF, start]))
        first = tl.dot(a_block, b_block, first)
        second = tl.dot(a_block, more, second)
    rows, block = scales_of_tile(
        a_scale, b_scale, row, column, 0, m, k, a_scale_row, 0, 0, 0, by_columns, BLOCK_M
    )  # fmt: skip
    scale = (rows * block)[:, None]
    first *= scale
    second *= scale
    return first, second


@tl.kernel
def store_scaled(
    out, total, bias, b_scale, row, column, n, b_scale_column, by_columns, has_bias,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Store a tile, its columns scaled, with the bias."""
    columns = tl.arange(0, BLOCK_N)
    inside = columns < tl.minimum(n - column, BLOCK_N).to(tl.int32)
    places = b_scale + (column + columns) * b_scale_column
    scales = tl.load(places, mask=inside & (by_columns != 0), other=1.0)
    shift = tl.load(bias + column + columns, mask=inside & (has_bias != 0), other=0.0)
    total = tl.fma(total, scales[None, :], shift.to(tl.float32)[None, :])
    out.store([row, column], total)


@tl.kernel
def scaled_matmul(
    a, b, c, bias, a_scale, b_scale,
    m, n, k, a_row, b_column, c_row,
    a_scale_row, a_scale_k, b_scale_k, b_scale_block, b_scale_column, by_columns, has_bias,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, IN_HALVES: tl.constexpr,
    BY_BLOCKS: tl.constexpr,
):  # fmt: skip
    """Write `(A * a_scale) @ (B * b_scale) + bias` to `c` `[M, N]`.

    `a` is `[M, K]` and `b` `[N, K]`, the transpose of B, both contiguous along K, a multiple of 16,
    with rows that are multiples of 16 bytes apart, as are those of `c`. The scale of an element of
    A is at its row times `a_scale_row`, of which a tile has less than 2^31, and its block times
    `a_scale_k`; that of B at its block along K times `b_scale_k` and its block along N times
    `b_scale_block` or, if `by_columns`, at its column times `b_scale_column`. `bias` is `[N]`. A
    program computes a tile, with `IN_HALVES` two side by side. Without `BY_BLOCKS` no scale depends
    on the block; only tiles in halves are made so.
    """
    tl.static_assert(BY_BLOCKS or IN_HALVES)
    tl.static_assert(BLOCK_K == SCALED and BLOCK_N <= SCALED)
    k = tl.multiple_of(k, 16)
    left = rows_of(a, m, k, a_row, BLOCK_M, BLOCK_K)
    right = rows_of(b, n, k, b_column, BLOCK_N, BLOCK_K)
    out = rows_of(c, m, n, c_row, BLOCK_M, BLOCK_N)
    if IN_HALVES:
        row, column = tile_origin(m, n, BLOCK_M, 2 * BLOCK_N)
        if BY_BLOCKS:
            first, second = scaled_halves(
                left, right, a_scale, b_scale, row, column, m, k,
                a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        else:
            first, second = halves_scaled_at_the_end(
                left, right, a_scale, b_scale, row, column, m, k, a_scale_row, by_columns,
                BLOCK_M, BLOCK_N,
            )  # fmt: skip
        store_scaled(
            out, first, bias, b_scale, row, column, n, b_scale_column, by_columns, has_bias,
            BLOCK_N,
        )  # fmt: skip
        store_scaled(
            out, second, bias, b_scale, row, column + BLOCK_N, n, b_scale_column, by_columns,
            has_bias, BLOCK_N,
        )  # fmt: skip
    else:
        row, column = tile_origin(m, n, BLOCK_M, BLOCK_N)
        if BLOCK_M < GROUP_ROWS:
            total = scaled_few_rows(
                left, right, a_scale, b_scale, row, column, m, k,
                a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        else:
            total = scaled_product(
                left, right, a_scale, b_scale, row, column, m, k,
                a_scale_row, a_scale_k, b_scale_k, b_scale_block, by_columns, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        store_scaled(
            out, total, bias, b_scale, row, column, n, b_scale_column, by_columns, has_bias,
            BLOCK_N,
        )  # fmt: skip
