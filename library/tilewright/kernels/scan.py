"""Running sums and products along an axis, of any length.

An array is seen as kept axes `[kept0, kept1]` and the scanned axis. As in `reduction`, `inner`
takes tiles `[kept, scanned]` of arrays that are contiguous along the scanned axis, `outer` takes
tiles `[scanned, kept]` of those contiguous along `kept1`. A program walks the axis tile by tile and
carries the last element of each. Where few rows would leave the device idle, grid axis 1 splits the
axis: the sums of the parts before each, from `reduction` and a scan of their own, are the `carry`.
Types of combination are those of `reduction`.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.reduction import across, along, load_chunk, widened
from tilewright.kernels.rows import row_offsets


@tl.kernel
def scan_program(
    x_rows, out_rows, carry, rows, inside, length, part, strides,
    OPERATION: tl.constexpr, AXIS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Scan a program's part of the axis, from what the parts before it gave."""
    parts = tl.num_programs(1)
    first = tl.program_id(1) * part
    last = tl.minimum(first + part, tl.cdiv(length, BLOCK_K))
    lanes = along(tl.arange(0, BLOCK_K), AXIS)
    pointers, held = across(x_rows, AXIS), across(inside, AXIS)
    targets = across(out_rows, AXIS)
    neutral = 0 if OPERATION == "sum" else 1
    running = tl.full(rows.shape, neutral, carry.dtype.element_ty)
    if tl.program_id(1) > 0:
        running = tl.load(carry + rows * parts + tl.program_id(1) - 1, mask=inside, other=neutral)
    for chunk in range(first, last):
        values, mask = load_chunk(
            pointers, held, chunk, (1, length), (0, strides[0]), AXIS, BLOCK_K
        )
        values = tl.where(mask, widened(values), neutral)
        if OPERATION == "sum":
            scanned = tl.cumsum(values, axis=AXIS) + across(running, AXIS)
        else:
            scanned = tl.cumprod(values, axis=AXIS) * across(running, AXIS)
        running = tl.sum(tl.where(lanes == BLOCK_K - 1, scanned, 0), axis=AXIS)
        base = targets + chunk * BLOCK_K * strides[1]
        if AXIS == 1 and strides[1] == 1:  # known to the launch alone
            tl.store(base + lanes, scanned, mask=mask)
        else:
            tl.store(base + lanes * strides[1], scanned, mask=mask)


@tl.kernel(
    divisible=("x_kept0", "x_kept1", "out_kept0", "out_kept1"), unit=("x_stride", "out_stride")
)
def inner(
    x, out, carry,
    kept0, kept1, length, part,
    x_kept0, x_kept1, x_stride,
    out_kept0, out_kept1, out_stride,
    OPERATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the running sums or products along the last axis of `x` to `out`.

    A program takes BLOCK_M rows and `part` chunks of BLOCK_K; `carry` is `[kept, parts]`.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    x_rows = x + row_offsets(rows, kept0, kept1, x_kept0, x_kept1)
    out_rows = out + row_offsets(rows, kept0, kept1, out_kept0, out_kept1)
    scan_program(
        x_rows, out_rows, carry, rows, rows < kept0 * kept1, length, part, (x_stride, out_stride),
        OPERATION, 1, BLOCK_K,
    )  # fmt: skip


@tl.kernel(
    divisible=("x_kept0", "x_stride", "out_kept0", "out_stride"), unit=("x_kept1", "out_kept1")
)
def outer(
    x, out, carry,
    kept0, kept1, length, part,  # noqa: ARG001  # what `inner` takes
    x_kept0, x_kept1, x_stride,
    out_kept0, out_kept1, out_stride,
    OPERATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the running sums or products along the scanned axis of `x` to `out`.

    A program takes BLOCK_M elements of `kept1` and `part` chunks of BLOCK_K.
    """
    blocks = tl.cdiv(kept1, BLOCK_M)
    row = tl.program_id(0) // blocks
    column = (tl.program_id(0) - row * blocks) * BLOCK_M
    lanes = tl.arange(0, BLOCK_M)
    inside = lanes < tl.minimum(kept1 - column, BLOCK_M).to(tl.int32)
    x_rows = x + (row * x_kept0 + column * x_kept1) + lanes * x_kept1
    out_rows = out + (row * out_kept0 + column * out_kept1) + lanes * out_kept1
    scan_program(
        x_rows, out_rows, carry, row * kept1 + column + lanes, inside, length, part,
        (x_stride, out_stride), OPERATION, 0, BLOCK_K,
    )  # fmt: skip
