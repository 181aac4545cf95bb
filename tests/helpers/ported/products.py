"""Matrix products: grouped order, descriptors, experts, quantised operands, images."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def grouped_tile(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return row and column of a tile's origin, walked by groups of `GROUP` rows of tiles."""
    tiles_n = tl.cdiv(n, BLOCK_N)
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tl.cdiv(m, BLOCK_M) - first, GROUP)
    inside = tile % (GROUP * tiles_n)
    return (first + inside % height) * BLOCK_M, inside // height * BLOCK_N


@tl.kernel(divisible=("n", "k"))
def matmul_leaky_relu(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """`a @ b` in grouped order, with an activation that a compile-time argument chooses."""
    row, column = grouped_tile(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    rows = (row + tl.arange(0, BLOCK_M)) % m
    columns = (column + tl.arange(0, BLOCK_N)) % n
    depth = tl.arange(0, BLOCK_K)
    a_pointers = a + (rows[:, None] * k + depth[None, :])
    b_pointers = b + (depth[:, None] * n + columns[None, :])
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(k, BLOCK_K)):
        left = k - step * BLOCK_K
        a_tile = tl.load(a_pointers, mask=depth[None, :] < left, other=0.0)
        b_tile = tl.load(b_pointers, mask=depth[:, None] < left, other=0.0)
        total = tl.dot(a_tile, b_tile, total)
        a_pointers += BLOCK_K
        b_pointers += BLOCK_K * n
    if ACTIVATION == "leaky_relu":
        total = tl.where(total >= 0, total, 0.01 * total)
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=mask)


@tl.kernel(divisible=("n", "k"))
def persistent_matmul(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """`a @ b.T` by blocks of tensor descriptors; each program computes every so many-th tile."""
    a_blocks = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    b_blocks = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
    c_blocks = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = grouped_tile(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            a_tile = a_blocks.load([row, start])
            b_tile = b_blocks.load([column, start])
            total = tl.dot(a_tile, b_tile.T, total)
        c_blocks.store([row, column], total.to(tl.float16))


@tl.kernel(divisible=("n", "k"))
def grouped_gemm(
    x, weights, out, offsets, experts, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Products of different heights in one launch: rows `offsets[e]` on by `weights[e]`.

    A fixed number of programs walks over the tiles of all the experts, which only the device
    knows.
    """
    tile = tl.program_id(0)
    passed = 0
    tiles_n = tl.cdiv(n, BLOCK_N)
    for expert in range(experts):
        first, last = tl.load(offsets + expert), tl.load(offsets + expert + 1)
        tiles = tl.cdiv(last - first, BLOCK_M) * tiles_n
        while tile < passed + tiles:
            inside = tile - passed
            rows = first + inside // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = inside % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for start in range(0, k, BLOCK_K):
                depth = start + tl.arange(0, BLOCK_K)
                left = tl.load(
                    x + rows[:, None] * k + depth[None, :],
                    mask=(rows < last)[:, None] & (depth < k)[None, :],
                )
                right = tl.load(
                    weights + expert * k * n + depth[:, None] * n + columns[None, :],
                    mask=(depth < k)[:, None] & (columns < n)[None, :],
                )
                total = tl.dot(left, right, total)
            mask = (rows < last)[:, None] & (columns < n)[None, :]
            tl.store(out + rows[:, None] * n + columns[None, :], total, mask=mask)
            tile += tl.num_programs(0)
        passed += tiles


@tl.kernel(divisible=("n", "k"))
def four_bit_matmul(
    x, packed, scales, zeros, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Half-precision `x` by 4-bit weights `[k / 2, n]`, two rows a byte, scaled by `GROUP` rows."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_column = columns < n
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(k // GROUP):
        depth = group * GROUP + tl.arange(0, GROUP)
        left = tl.load(x + rows[:, None] * k + depth[None, :], mask=(rows < m)[:, None])
        bytes_ = group * (GROUP // 2) + tl.arange(0, GROUP // 2)
        pairs = tl.load(
            packed + bytes_[:, None] * n + columns[None, :], mask=is_column[None, :], other=0
        )
        low, high = pairs & 0xF, pairs >> 4
        # [GROUP / 2, BLOCK_N, 2] -> [GROUP, BLOCK_N], the low half of a byte first.
        numbers = tl.reshape(tl.permute(tl.join(low, high), 0, 2, 1), (GROUP, BLOCK_N))
        zero = tl.load(zeros + group * n + columns, mask=is_column, other=0)
        scale = tl.load(scales + group * n + columns, mask=is_column, other=0.0)
        weights = (numbers.to(tl.int32) - zero.to(tl.int32)[None, :]).to(tl.float16)
        total += tl.dot(left, weights) * scale.to(tl.float32)[None, :]
    mask = (rows < m)[:, None] & is_column[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=mask)


@tl.kernel(divisible=("n", "k"))
def block_scaled_matmul(
    a, b, a_scales, b_scales, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """8-bit floats, `a` `[m, k]` scaled by row and block of k, `b` `[n, k]` by square block."""
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    blocks = tl.cdiv(k, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(blocks):
        depth = block * BLOCK_K + tl.arange(0, BLOCK_K)
        is_inside = (depth < k)[None, :]
        left = tl.load(a + rows[:, None] * k + depth[None, :], (rows < m)[:, None] & is_inside)
        right = tl.load(
            b + columns[:, None] * k + depth[None, :], (columns < n)[:, None] & is_inside
        )
        left_scale = tl.load(a_scales + rows * blocks + block, mask=rows < m)
        right_scale = tl.load(b_scales + tl.program_id(1) * blocks + block)
        total += tl.dot(left, right.T) * (left_scale * right_scale)[:, None]
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=mask)


@tl.kernel
def convolution(
    x, weight, out, channels, height, width, filters,
    SIDE: tl.constexpr, PAD: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """2-D convolution of an image `[channels, height, width]` as a product: pixels by filters.

    The inner axis runs over channels and the places of the window, as `weight` `[filters, channels,
    SIDE, SIDE]` has them; what the image lacks is 0.
    """
    pixels = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    chosen = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    y, x_place = pixels // width, pixels % width
    depth_end = channels * SIDE * SIDE
    total = tl.zeros((BLOCK_P, BLOCK_F), tl.float32)
    for start in range(0, depth_end, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        channel, tap = depth // (SIDE * SIDE), depth % (SIDE * SIDE)
        rows = y[:, None] + (tap // SIDE - PAD)[None, :]
        columns = x_place[:, None] + (tap % SIDE - PAD)[None, :]
        is_inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        patch = tl.load(
            x + (channel[None, :] * height + rows) * width + columns,
            mask=is_inside & (depth < depth_end)[None, :],
        )
        taps = tl.load(
            weight + chosen[None, :] * depth_end + depth[:, None],
            mask=(depth < depth_end)[:, None] & (chosen < filters)[None, :],
        )
        total = tl.dot(patch, taps, total)
    mask = (pixels < height * width)[:, None] & (chosen < filters)[None, :]
    tl.store(out + chosen[None, :] * height * width + pixels[:, None], total, mask=mask)


@tl.kernel
def max_pool(x, out, places, height, width, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Max pooling by windows of `SIDE` squared, with the place of each maximum in its window."""
    out_height, out_width = height // SIDE, width // SIDE
    pixels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = pixels < out_height * out_width
    corner = pixels // out_width * SIDE * width + pixels % out_width * SIDE
    window = tl.arange(0, tl.next_power_of_2(SIDE * SIDE))
    offsets = window // SIDE * width + window % SIDE
    image = tl.program_id(1)
    values = tl.load(
        x + image * height * width + corner[:, None] + offsets[None, :],
        mask=mask[:, None] & (window < SIDE * SIDE)[None, :],
        other=-float("inf"),
    )
    largest, place = tl.max(values, axis=1, return_indices=True)
    target = image * out_height * out_width + pixels
    tl.store(out + target, largest, mask=mask)
    tl.store(places + target, place, mask=mask)
