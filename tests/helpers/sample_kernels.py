"""Kernels that the runtime tests launch. What they compute matters to the interpreter only."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@tl.kernel(divisible=("row_stride",), unit=("column_stride",))
def strided(x, out, row_stride, column_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + row * row_stride + columns * column_stride)
    tl.store(out + row * BLOCK + columns, value)


@tl.kernel
def mixed(
    out,
    a,
    b,
    c,
    d,
    flag,
    big,
    MODE: tl.constexpr = "sum",  # type: ignore[assignment]  # a marker, no type
):
    value = a + b + c + d
    if flag:
        value = value + 1.0
    if MODE == "all":
        value = value + big
    tl.store(out, value)
