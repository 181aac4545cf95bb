"""Matrix products `[M, K] @ [K, N]`, batched, of any strides, with an epilogue chosen at run time.

A program computes one tile of the result; grid axes 1 and 2 are the batch. `A_UNIT` and `B_UNIT`
name the axis along which an operand is contiguous ("m" or "k", "k" or "n"), so that a transposed
operand is read along its rows too; "any" takes any strides. Rows and columns past the edge repeat
those inside, whose results are not stored, so that the loop masks along K alone.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.elementwise import gelu_value

# Tiles are walked in groups of so many rows of tiles: what programs in flight read stays in L2.
GROUP_M = tl.constexpr(8)

# The activations by number, as `tensor.matmul` passes them.
RELU = tl.constexpr(1)
GELU = tl.constexpr(2)
SILU = tl.constexpr(3)
SIGMOID = tl.constexpr(4)

# Rows of the warpgroup's instruction.
GROUP_ROWS = tl.constexpr(64)

# So many parts are read at a time: what registers hold.
PARTS_AT_ONCE = tl.constexpr(4)

MINUS_LOG2_E = tl.constexpr(-1.4426950408889634)


@tl.kernel
def tile_origin(m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the first row and the first column of this program's tile, in grouped order."""
    return origin_of_tile(tl.program_id(0).to(tl.int32), m, n, BLOCK_M, BLOCK_N)


@tl.kernel
def origin_of_tile(program, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the first row and the first column of a tile by its place in grouped order."""
    tiles_m = tl.cdiv(m, BLOCK_M).to(tl.int32)
    group = tl.cdiv(n, BLOCK_N).to(tl.int32) * GROUP_M
    first = program // group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    inside = program % group
    tile_m = first + inside % height
    tile_n = inside // height
    return tile_m.to(tl.int64) * BLOCK_M, tile_n.to(tl.int64) * BLOCK_N


@tl.kernel
def repeated_lanes(first, extent, BLOCK: tl.constexpr):
    """Return the lanes of a tile that starts at `first`, those past `extent` repeating from it.

    Unsigned and relative to the tile: an aligned run stays one where the extent is divisible.
    """
    inside = tl.minimum(extent - first, BLOCK).to(tl.uint32)
    return tl.arange(0, BLOCK).to(tl.uint32) % inside


@tl.kernel
def load_a(a, rows, start, k, outer, inner, UNIT: tl.constexpr, BLOCK_K: tl.constexpr):
    """Load `[rows, BLOCK_K]` of A from column `start` on, zeros from `k` on."""
    depth = tl.arange(0, BLOCK_K)
    inside = depth < tl.minimum(k - start, BLOCK_K).to(tl.int32)
    if UNIT == "m":
        offsets = depth[:, None] * outer + rows[None, :]
        tile = tl.trans(tl.load(a + start * outer + offsets, mask=inside[:, None]))
    elif UNIT == "k":
        tile = tl.load(a + start + (rows[:, None] * outer + depth[None, :]), mask=inside[None, :])
    else:
        offsets = rows[:, None] * outer + depth[None, :] * inner
        tile = tl.load(a + start * inner + offsets, mask=inside[None, :])
    return tile


@tl.kernel
def load_b(b, columns, start, k, outer, inner, UNIT: tl.constexpr, BLOCK_K: tl.constexpr):
    """Load `[BLOCK_K, columns]` of B from row `start` on, zeros from `k` on."""
    depth = tl.arange(0, BLOCK_K)
    inside = depth < tl.minimum(k - start, BLOCK_K).to(tl.int32)
    if UNIT == "k":
        offsets = columns[:, None] * outer + depth[None, :]
        tile = tl.trans(tl.load(b + start + offsets, mask=inside[None, :]))
    elif UNIT == "n":
        offsets = depth[:, None] * outer + columns[None, :]
        tile = tl.load(b + start * outer + offsets, mask=inside[:, None])
    else:
        offsets = depth[:, None] * outer + columns[None, :] * inner
        tile = tl.load(b + start * outer + offsets, mask=inside[:, None])
    return tile


@tl.kernel
def product(
    total, a, b, row, column, m, n, k, a_extent, b_extent,
    a_outer, a_inner, b_outer, b_inner,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Add to `total` the tile of A @ B whose first element is at `row`, `column`."""
    if A_UNIT == "m":
        rows = repeated_lanes(row, a_extent, BLOCK_M)
        a_tile, a_k = a + row, k
    else:
        rows = repeated_lanes(row, m, BLOCK_M)
        a_tile, a_k = a + row * a_outer, a_extent
    if B_UNIT == "k":
        columns = repeated_lanes(column, n, BLOCK_N)
        b_tile, b_k = b + column * b_outer, b_extent
    else:
        columns = repeated_lanes(column, b_extent, BLOCK_N)
        b_k = k
        b_tile = b + column if B_UNIT == "n" else b + column * b_inner
    for start in range(0, k, BLOCK_K):
        left = load_a(a_tile, rows, start, a_k, a_outer, a_inner, A_UNIT, BLOCK_K)
        right = load_b(b_tile, columns, start, b_k, b_outer, b_inner, B_UNIT, BLOCK_K)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@tl.kernel
def logistic(x):
    """Return `1 / (1 + e ** -x)`, f32, by approximate division: the exact one takes registers."""
    return tl.fdiv(1.0, 1.0 + tl.exp2(x * MINUS_LOG2_E))


@tl.kernel
def activated(x, activation):
    """Return the activation of that number of an f32 tile; of 0, the tile.

    Each replaces the tile, so that it is in registers once.
    """
    if activation == RELU:
        x = tl.maximum(x, 0.0)
    if activation == GELU:
        x = gelu_value(x)
    if activation == SILU:
        x = x * logistic(x)
    if activation == SIGMOID:
        x = logistic(x)
    return x


@tl.kernel
def epilogue(
    total, bias, gate, residual, row, column, m, n,
    gate_batch0, gate_batch1, gate_row, gate_column,
    residual_batch0, residual_batch1, residual_row, residual_column,
    alpha, activation, has_bias, has_gate, has_residual,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Return what `matmul` writes of the tile at `row`, `column`, whose product is `total`."""
    batch0, batch1 = tl.program_id(2), tl.program_id(1)
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    inside_n = columns < tl.minimum(n - column, BLOCK_N).to(tl.int32)
    inside = (rows < tl.minimum(m - row, BLOCK_M).to(tl.int32))[:, None] & inside_n[None, :]
    result = total * alpha
    if has_bias:
        shift = tl.load(bias + column + columns, mask=inside_n)
        result = result + shift.to(tl.float32)[None, :]
    result = activated(result, activation)
    if has_gate:
        origin = gate + batch0 * gate_batch0 + batch1 * gate_batch1
        offsets = rows[:, None] * gate_row + columns[None, :] * gate_column
        factor = tl.load(origin + row * gate_row + column * gate_column + offsets, mask=inside)
        result = result * factor.to(tl.float32)
    if has_residual:
        origin = residual + batch0 * residual_batch0 + batch1 * residual_batch1
        offsets = rows[:, None] * residual_row + columns[None, :] * residual_column
        origin = origin + row * residual_row + column * residual_column
        result = result + tl.load(origin + offsets, mask=inside).to(tl.float32)
    return result


@tl.kernel
def store_tile(
    c, tile, row, column, m, n, c_row, c_column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Store what of a tile at `row`, `column` lies inside the matrix `[m, n]` at `c`."""
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    inside_n = columns < tl.minimum(n - column, BLOCK_N).to(tl.int32)
    inside = (rows < tl.minimum(m - row, BLOCK_M).to(tl.int32))[:, None] & inside_n[None, :]
    origin = c + row * c_row + column * c_column
    offsets = rows[:, None] * c_row + columns[None, :] * c_column
    tl.store(origin + offsets, tile, mask=inside)


@tl.kernel(
    divisible=(
        "n", "a_extent", "b_extent",
        "a_batch0", "a_batch1", "a_outer", "b_batch0", "b_batch1", "b_outer",
        "c_batch0", "c_batch1", "c_row", "gate_batch0", "gate_batch1", "gate_row",
        "residual_batch0", "residual_batch1", "residual_row",
    ),
    unit=("a_inner", "b_inner", "c_column", "gate_column", "residual_column"),
)  # fmt: skip
def matmul(
    a, b, c, bias, gate, residual,
    m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, a_inner,
    b_batch0, b_batch1, b_outer, b_inner,
    c_batch0, c_batch1, c_row, c_column,
    gate_batch0, gate_batch1, gate_row, gate_column,
    residual_batch0, residual_batch1, residual_row, residual_column,
    alpha, activation, has_bias, has_gate, has_residual,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `activation(alpha * A @ B + bias) * gate + residual` to `c`, all of it in f32.

    `a_outer` and `a_inner` are the strides of A along M and K, the other way round if `A_UNIT` is
    "m"; likewise of B along K and N, the other way round if `B_UNIT` is "k". `a_extent` and
    `b_extent` repeat the extent along the inner of the two, the one that the fast specialization
    needs divisible. `bias` is `[N]`, contiguous; gate and residual are read as C is.
    """
    batch0, batch1 = tl.program_id(2), tl.program_id(1)
    row, column = tile_origin(m, n, BLOCK_M, BLOCK_N)
    total = product(
        tl.zeros((BLOCK_M, BLOCK_N), tl.float32),
        a + batch0 * a_batch0 + batch1 * a_batch1, b + batch0 * b_batch0 + batch1 * b_batch1,
        row, column, m, n, k, a_extent, b_extent, a_outer, a_inner, b_outer, b_inner,
        A_UNIT, B_UNIT, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    result = epilogue(
        total, bias, gate, residual, row, column, m, n,
        gate_batch0, gate_batch1, gate_row, gate_column,
        residual_batch0, residual_batch1, residual_row, residual_column,
        alpha, activation, has_bias, has_gate, has_residual, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    origin = c + batch0 * c_batch0 + batch1 * c_batch1
    store_tile(origin, result, row, column, m, n, c_row, c_column, BLOCK_M, BLOCK_N)


@tl.kernel
def matrices(
    x, rows, columns, batch0, batch1, row, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Return a descriptor of the batch's matrices at `x`, of these strides, contiguous along rows.

    Strides are multiples of 16 bytes. The grid walks the batch, so its extents are the batch's.
    """
    unit: tl.constexpr = 16 // x.dtype.element_ty.itemsize
    return tl.make_tensor_descriptor(
        x,
        shape=[tl.num_programs(2), tl.num_programs(1), rows, columns],
        strides=[
            tl.multiple_of(batch0, unit),
            tl.multiple_of(batch1, unit),
            tl.multiple_of(row, unit),
            1,
        ],
        block_shape=[1, 1, ROWS, COLUMNS],
    )


@tl.kernel
def factors(
    a, b, m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, b_batch0, b_batch1, b_outer,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return descriptors of A and B, or of their transposes where those are contiguous."""
    if A_UNIT == "m":
        left = matrices(a, k, a_extent, a_batch0, a_batch1, a_outer, BLOCK_K, BLOCK_M)
    else:
        left = matrices(a, m, a_extent, a_batch0, a_batch1, a_outer, BLOCK_M, BLOCK_K)
    if B_UNIT == "k":
        right = matrices(b, n, b_extent, b_batch0, b_batch1, b_outer, BLOCK_N, BLOCK_K)
    else:
        right = matrices(b, k, b_extent, b_batch0, b_batch1, b_outer, BLOCK_K, BLOCK_N)
    return left, right


@tl.kernel
def eights(x):
    """Return `x`, promised to be a multiple of 8."""
    return tl.multiple_of(x, 8)


@tl.kernel
def block_at(batch, row, column):
    """Return the block of this program's matrix of a batch at `row`, `column`."""
    block = batch.load([tl.program_id(2), tl.program_id(1), row, column])
    return tl.reshape(block, (batch.block_shape[2], batch.block_shape[3]))


@tl.kernel
def product_of_blocks(
    total, a, b, row, column, first, last, A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Add to `total` the product of blocks from `first` to `last` along K.

    `a` holds A, or its transpose if `A_UNIT` is "m".
    """
    for start in range(first, last, BLOCK_K):
        left = tl.trans(block_at(a, start, row)) if A_UNIT == "m" else block_at(a, row, start)
        right = (
            tl.trans(block_at(b, column, start)) if B_UNIT == "k" else block_at(b, start, column)
        )
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@tl.kernel(unit=("a_inner", "b_inner", "c_column", "gate_column", "residual_column"))
def matmul_blocks(
    a, b, c, bias, gate, residual,
    m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, a_inner,  # noqa: ARG001  # as `matmul` takes them
    b_batch0, b_batch1, b_outer, b_inner,  # noqa: ARG001
    c_batch0, c_batch1, c_row, c_column,  # noqa: ARG001
    gate_batch0, gate_batch1, gate_row, gate_column,
    residual_batch0, residual_batch1, residual_row, residual_column,
    alpha, activation, has_bias, has_gate, has_residual,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    FULL_EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Do as `matmul` by blocks of tensor descriptors; the inner strides of all matrices are 1.

    For GPUs that copy blocks by themselves. On others `matmul` is better: it masks along K alone,
    which is 154 instructions instead of 178 in the loop of a 128 x 128 x 32 tile on sm_80. Without
    `FULL_EPILOGUE` there is neither gate nor residual, whose values take registers that the widest
    tile does not leave. N and all strides of gate and residual must be multiples of 8.
    """
    if not FULL_EPILOGUE:
        has_gate = has_residual = False
    row, column = tile_origin(m, n, BLOCK_M, BLOCK_N)
    left, right = factors(
        a, b, m, n, k, a_extent, b_extent,
        a_batch0, a_batch1, a_outer, b_batch0, b_batch1, b_outer,
        A_UNIT, B_UNIT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    out = matrices(c, m, eights(n), c_batch0, c_batch1, c_row, BLOCK_M, BLOCK_N)
    total = product_of_blocks(
        tl.zeros((BLOCK_M, BLOCK_N), tl.float32), left, right, row, column, 0, k,
        A_UNIT, B_UNIT, PRECISION, BLOCK_K,
    )  # fmt: skip
    result = epilogue(
        total, bias, gate, residual, row, column, m, eights(n),
        eights(gate_batch0), eights(gate_batch1), eights(gate_row), gate_column,
        eights(residual_batch0), eights(residual_batch1), eights(residual_row), residual_column,
        alpha, activation, has_bias, has_gate, has_residual, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    place = [tl.program_id(2), tl.program_id(1), row, column]
    out.store(place, tl.reshape(result, (1, 1, BLOCK_M, BLOCK_N)))


@tl.kernel
def store_half(
    out, total, bias, row, column, m, n, alpha, activation, has_bias,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Store what `matmul` writes of one half of a tile, without gate and residual."""
    result = epilogue(
        total, bias, bias, bias, row, column, m, n, 0, 0, 0, 0, 0, 0, 0, 0,
        alpha, activation, has_bias, False, False, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    place = [tl.program_id(2), tl.program_id(1), row, column]
    out.store(place, tl.reshape(result, (1, 1, BLOCK_M, BLOCK_N)))


@tl.kernel
def write_halves(
    out, left, right, bias, row, column, m, n, k, alpha, activation, has_bias,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, HALF: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the tile at `row`, `column`, twice as wide as a block of `right`."""
    first = tl.zeros((BLOCK_M, HALF), tl.float32)
    second = tl.zeros((BLOCK_M, HALF), tl.float32)
    for start in range(0, k, BLOCK_K):
        block = block_at(left, row, start)
        columns = tl.trans(block_at(right, column, start))
        more = tl.trans(block_at(right, column + HALF, start))
        first = tl.dot(block, columns, first, input_precision=PRECISION)
        second = tl.dot(block, more, second, input_precision=PRECISION)
    store_half(out, first, bias, row, column, m, n, alpha, activation, has_bias, BLOCK_M, HALF)
    store_half(
        out, second, bias, row, column + HALF, m, n, alpha, activation, has_bias, BLOCK_M, HALF
    )


@tl.kernel(unit=("a_inner", "b_inner", "c_column"))
def matmul_halves(
    a, b, c, bias, gate, residual,  # noqa: ARG001  # as `matmul` takes them
    m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, a_inner,  # noqa: ARG001
    b_batch0, b_batch1, b_outer, b_inner,  # noqa: ARG001
    c_batch0, c_batch1, c_row, c_column,  # noqa: ARG001
    gate_batch0, gate_batch1, gate_row, gate_column,  # noqa: ARG001
    residual_batch0, residual_batch1, residual_row, residual_column,  # noqa: ARG001
    alpha, activation, has_bias, has_gate, has_residual,  # noqa: ARG001
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    FULL_EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Do as `matmul_blocks` without gate and residual, each tile in two halves along N.

    For 8-bit floats, whose sums are kept twice: a block of A serves both halves, and while one is
    added to its sum, the registers of the other's block are free.
    """
    tl.static_assert(A_UNIT == "k" and B_UNIT == "k" and not FULL_EPILOGUE)
    row, column = tile_origin(m, n, BLOCK_M, BLOCK_N)
    left = matrices(a, m, a_extent, a_batch0, a_batch1, a_outer, BLOCK_M, BLOCK_K)
    right = matrices(b, n, b_extent, b_batch0, b_batch1, b_outer, BLOCK_N // 2, BLOCK_K)
    out = matrices(c, m, eights(n), c_batch0, c_batch1, c_row, BLOCK_M, BLOCK_N // 2)
    write_halves(
        out, left, right, bias, row, column, m, eights(n), k, alpha, activation, has_bias,
        PRECISION, BLOCK_M, BLOCK_N // 2, BLOCK_K,
    )  # fmt: skip


@tl.kernel(unit=("a_inner", "b_inner", "c_column", "gate_column", "residual_column"))
def matmul_rows(
    a, b, c, bias, gate, residual,
    m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, a_inner,  # noqa: ARG001  # as `matmul` takes them
    b_batch0, b_batch1, b_outer, b_inner,  # noqa: ARG001
    c_batch0, c_batch1, c_row, c_column,
    gate_batch0, gate_batch1, gate_row, gate_column,
    residual_batch0, residual_batch1, residual_row, residual_column,
    alpha, activation, has_bias, has_gate, has_residual,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    FULL_EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Do as `matmul_blocks` where rows of C, gate and residual begin anywhere, and N is any number.

    Without `FULL_EPILOGUE` there is no activation either.
    """
    if not FULL_EPILOGUE:
        has_gate = has_residual = False
        activation = 0
    batch0, batch1 = tl.program_id(2), tl.program_id(1)
    row, column = tile_origin(m, n, BLOCK_M, BLOCK_N)
    left, right = factors(
        a, b, m, n, k, a_extent, b_extent,
        a_batch0, a_batch1, a_outer, b_batch0, b_batch1, b_outer,
        A_UNIT, B_UNIT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    total = product_of_blocks(
        tl.zeros((BLOCK_M, BLOCK_N), tl.float32), left, right, row, column, 0, k,
        A_UNIT, B_UNIT, PRECISION, BLOCK_K,
    )  # fmt: skip
    result = epilogue(
        total, bias, gate, residual, row, column, m, n,
        gate_batch0, gate_batch1, gate_row, gate_column,
        residual_batch0, residual_batch1, residual_row, residual_column,
        alpha, activation, has_bias, has_gate, has_residual, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    origin = c + batch0 * c_batch0 + batch1 * c_batch1
    store_tile(origin, result, row, column, m, n, c_row, c_column, BLOCK_M, BLOCK_N)


@tl.kernel
def sum_of_parts(partial, parts, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the sum of a tile's parts, in their order."""
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    offsets = rows[:, None] * BLOCK_N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, parts, PARTS_AT_ONCE):
        for index in tl.static_range(PARTS_AT_ONCE):
            part = first + index
            inside = tl.full((BLOCK_M, BLOCK_N), part < parts, tl.int1)
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
    """Do as `matmul_blocks`, each tile by `parts` programs of grid axis 0, which share its sum.

    So all of a GPU reads the factors of a result that has few tiles. Every program leaves its part
    in `partial`; the one that comes last to a tile adds all parts up in their order and writes the
    result, so no bit depends on who came last. `arrived` counts for each tile; it is 0 before a
    launch, and again behind it. A sum in one part goes past both. Where `BLOCK_M` has fewer rows
    than the warpgroup's instruction, the transposed product is computed: the columns of B are its
    rows.

    N and all strides of C must be multiples of 8, too. Of sums in several parts `partial` has as
    many tiles in f32, of any content, `arrived` an i32 for each tile.
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
    is_last = True
    if parts > 1:
        number = (batch0 * tl.num_programs(1) + batch1) * tiles + program % tiles
        sums = partial + number.to(tl.int64) * parts * (BLOCK_M * BLOCK_N)
        offsets = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        tl.store(sums + part * (BLOCK_M * BLOCK_N) + offsets, total)
        is_last = tl.atomic_add(arrived + number, 1) == parts - 1
        if is_last:
            tl.store(arrived + number, 0)
            total = sum_of_parts(sums, parts, BLOCK_M, BLOCK_N)
    if is_last:
        result = epilogue(
            total, bias, gate, residual, row, column, m, eights(n),
            eights(gate_batch0), eights(gate_batch1), eights(gate_row), gate_column,
            eights(residual_batch0), eights(residual_batch1), eights(residual_row),
            residual_column,
            alpha, activation, has_bias, has_gate, has_residual, BLOCK_M, BLOCK_N,
        )  # fmt: skip
        origin = c + batch0 * eights(c_batch0) + batch1 * eights(c_batch1)
        store_tile(
            origin, result, row, column, m, eights(n), eights(c_row), c_column, BLOCK_M, BLOCK_N
        )


@tl.kernel(
    divisible=(
        "n", "a_extent", "b_extent",
        "a_batch0", "a_batch1", "a_outer", "b_batch0", "b_batch1", "b_outer",
        "c_batch0", "c_batch1", "c_row",
    ),
    unit=("a_inner", "b_inner", "c_column"),
)  # fmt: skip
def matmul_plain(
    a, b, c,
    m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, a_inner,
    b_batch0, b_batch1, b_outer, b_inner,
    c_batch0, c_batch1, c_row, c_column,
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write `A @ B` to `c`, summed in its dtype: 8-bit integers in i32, f64 in f64."""
    batch0, batch1 = tl.program_id(2), tl.program_id(1)
    row, column = tile_origin(m, n, BLOCK_M, BLOCK_N)
    total = product(
        tl.zeros((BLOCK_M, BLOCK_N), c.dtype),
        a + batch0 * a_batch0 + batch1 * a_batch1, b + batch0 * b_batch0 + batch1 * b_batch1,
        row, column, m, n, k, a_extent, b_extent, a_outer, a_inner, b_outer, b_inner,
        A_UNIT, B_UNIT, "ieee", BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    origin = c + batch0 * c_batch0 + batch1 * c_batch1
    store_tile(origin, total, row, column, m, n, c_row, c_column, BLOCK_M, BLOCK_N)


@tl.kernel(unit=("a_inner", "b_inner", "c_column"))
def matmul_plain_blocks(
    a, b, c,
    m, n, k, a_extent, b_extent,
    a_batch0, a_batch1, a_outer, a_inner,  # noqa: ARG001  # as `matmul_plain` takes them
    b_batch0, b_batch1, b_outer, b_inner,  # noqa: ARG001
    c_batch0, c_batch1, c_row, c_column,  # noqa: ARG001
    A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Do as `matmul_plain` by blocks, as `matmul_blocks` does."""
    row, column = tile_origin(m, n, BLOCK_M, BLOCK_N)
    left, right = factors(
        a, b, m, n, k, a_extent, b_extent,
        a_batch0, a_batch1, a_outer, b_batch0, b_batch1, b_outer,
        A_UNIT, B_UNIT, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    out = matrices(c, m, eights(n), c_batch0, c_batch1, c_row, BLOCK_M, BLOCK_N)
    total = product_of_blocks(
        tl.zeros((BLOCK_M, BLOCK_N), c.dtype.element_ty), left, right, row, column, 0, k,
        A_UNIT, B_UNIT, "ieee", BLOCK_K,
    )  # fmt: skip
    place = [tl.program_id(2), tl.program_id(1), row, column]
    out.store(place, tl.reshape(total, (1, 1, BLOCK_M, BLOCK_N)))
