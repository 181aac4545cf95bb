"""Products whose kernels load through pointers, as Triton kernels are written."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel(divisible=("n", "k"))
def rows_and_columns(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `a @ b`, row-major; rows and columns are masked wherever they are used."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + rows[:, None] * k + depth[None, :], mask=(rows < m)[:, None] & (depth < k)[None, :]
        )
        right = tl.load(
            b + depth[:, None] * n + columns[None, :],
            mask=(depth < k)[:, None] & (columns < n)[None, :],
        )
        total = tl.dot(left, right, total)
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype), mask=mask)


@tl.kernel
def tile_of_group(m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return the program's row and column of tiles, as Triton's tutorial deals them out."""
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = program // (GROUP * tiles_n) * GROUP
    inside = program % (GROUP * tiles_n)
    width = tl.minimum(tiles_m - first, GROUP)
    return first + inside % width, inside // width


@tl.kernel(divisible=("a_row", "b_row", "c_row"))
def moving_pointers(
    a, b, c, m, n, k, a_row, b_row, c_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Write `a @ b`, of pointers that the loop moves, in groups of rows of tiles."""
    tile_m, tile_n = tile_of_group(m, n, BLOCK_M, BLOCK_N, GROUP)
    tl.assume(tile_m >= 0)
    tl.assume(tile_n >= 0)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    lefts = a + (rows[:, None] * a_row + depth[None, :])
    rights = b + (depth[:, None] * b_row + columns[None, :])
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(k, BLOCK_K)):
        left_over = k - step * BLOCK_K
        left = tl.load(lefts, mask=(rows[:, None] < m) & (depth[None, :] < left_over), other=0.0)
        right = tl.load(
            rights, mask=(depth[:, None] < left_over) & (columns[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total)
        lefts += BLOCK_K
        rights += BLOCK_K * b_row
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + c_row * rows[:, None] + columns[None, :], total.to(c.dtype), mask=mask)


@tl.kernel(divisible=("n", "k", "a_batch", "b_batch", "c_batch"))
def batched_turned(
    a, b, c, m, n, k, a_batch, b_batch, c_batch,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `a[i] @ b[i].T` for each i of a batch, `b[i]` `[N, K]`."""
    batch = tl.program_id(2)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + batch * a_batch + rows[:, None] * k + depth[None, :],
            mask=(rows < m)[:, None] & (depth < k)[None, :],
        )
        right = tl.load(
            b + batch * b_batch + depth[:, None] + columns[None, :] * k,
            mask=(depth < k)[:, None] & (columns < n)[None, :],
        )
        total = tl.dot(left, right, total)
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    target = c + batch * c_batch + rows[:, None] * n + columns[None, :]
    tl.store(target, total.to(c.dtype), mask=mask)


@tl.kernel(divisible=("n", "k"))
def block_pointers(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `a @ b` by block pointers, which the loop advances."""
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    left = tl.make_block_ptr(a, (m, k), (k, 1), (row, 0), (BLOCK_M, BLOCK_K), (1, 0))
    right = tl.make_block_ptr(b, (k, n), (n, 1), (0, column), (BLOCK_K, BLOCK_N), (1, 0))
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, k, BLOCK_K):
        tile = tl.load(left, boundary_check=(0, 1))
        total = tl.dot(tile, tl.load(right, boundary_check=(0, 1)), total)
        left = tl.advance(left, (0, BLOCK_K))
        right = tl.advance(right, (BLOCK_K, 0))
    out = tl.make_block_ptr(c, (m, n), (n, 1), (row, column), (BLOCK_M, BLOCK_N), (1, 0))
    tl.store(out, total.to(c.dtype), boundary_check=(0, 1))


@tl.kernel(divisible=("n", "k"))
def stored_again(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    """Write `a @ b` to memory that is written before it, "first zeros", or "every step"."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    outside = (rows[:, None] < m) & (columns[None, :] < n)
    places = c + rows[:, None] * n + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if HOW == "first zeros":
        tl.store(places, total.to(c.dtype.element_ty), mask=outside)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + rows[:, None] * k + depth[None, :],
            mask=(rows < m)[:, None] & (depth < k)[None, :],
            other=0.0,
        )
        right = tl.load(
            b + depth[:, None] * n + columns[None, :],
            mask=(depth < k)[:, None] & (columns < n)[None, :],
            other=0.0,
        )
        total = tl.dot(left, right, total)
        if HOW == "every step":
            tl.store(places, total.to(c.dtype.element_ty), mask=outside)
    if HOW == "first zeros":
        tl.store(places, total.to(c.dtype.element_ty), mask=outside)


@tl.kernel(divisible=("n", "k"))
def gathered_rows(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    BY_BLOCKS: tl.constexpr,
):  # fmt: skip
    """Write `a[::-1] @ b`: rows of `a` from the last on, which no block has.

    With `BY_BLOCKS` a descriptor reads `b`.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left = tl.load(
            a + (m - 1 - rows[:, None]) * k + depth[None, :],
            mask=(rows < m)[:, None] & (depth < k)[None, :],
            other=0.0,
        )
        if BY_BLOCKS:
            blocks = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
            right = blocks.load([start, tl.program_id(1) * BLOCK_N])
        else:
            right = tl.load(
                b + depth[:, None] * n + columns[None, :],
                mask=(depth < k)[:, None] & (columns < n)[None, :],
                other=0.0,
            )
        total = tl.dot(left, right, total)
    outside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), mask=outside)


@tl.kernel(divisible=("a_row", "b_row", "c_row"))
def wrapping_pointers(
    a, b, c, m, n, k, a_row, b_row, c_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Write `a @ b`, without its negative numbers, of rows and columns that wrap at the edges."""
    tile_m, tile_n = tile_of_group(m, n, BLOCK_M, BLOCK_N, GROUP)
    tl.assume(tile_m >= 0)
    tl.assume(tile_n >= 0)
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    columns = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    depth = tl.arange(0, BLOCK_K)
    lefts = a + (rows[:, None] * a_row + depth[None, :])
    rights = b + (depth[:, None] * b_row + columns[None, :])
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(k, BLOCK_K)):
        left_over = k - step * BLOCK_K
        left = tl.load(lefts, mask=depth[None, :] < left_over, other=0.0)
        right = tl.load(rights, mask=depth[:, None] < left_over, other=0.0)
        total = tl.dot(left, right, total)
        lefts += BLOCK_K
        rights += BLOCK_K * b_row
    result = tl.where(total >= 0, total, 0.0).to(c.dtype)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + c_row * rows[:, None] + columns[None, :], result, mask=mask)


@tl.kernel(divisible=("n", "k"))
def clamped_rows(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `a @ b`, of rows and columns that are 0 beyond the edges."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    left_rows = tl.where(rows < m, rows, 0)
    right_columns = tl.where(columns < n, columns, 0)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = start + depth < k
        left = tl.load(
            a + left_rows[:, None] * k + (start + depth)[None, :], mask=inside[None, :], other=0.0
        )
        right = tl.load(
            b + (start + depth)[:, None] * n + right_columns[None, :],
            mask=inside[:, None],
            other=0.0,
        )
        total = tl.dot(left, right, total)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype), mask=mask)
