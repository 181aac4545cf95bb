"""Kernels that the interpreter's tests run: loops, branches, calls, waiting, and one mistake."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def vecadd(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


@tl.kernel
def row_softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    running_max = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        values = tl.load(x + row + lanes, mask=lanes < columns, other=float("-inf"))
        running_max = tl.maximum(running_max, values.to(tl.float32))
    row_max = tl.max(running_max, axis=0)
    running_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        values = tl.load(x + row + lanes, mask=lanes < columns, other=float("-inf"))
        running_sum += tl.exp(values.to(tl.float32) - row_max)
    row_sum = tl.sum(running_sum, axis=0)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        values = tl.load(x + row + lanes, mask=lanes < columns, other=float("-inf"))
        result = tl.exp(values.to(tl.float32) - row_max) / row_sum
        tl.store(out + row + lanes, result, mask=lanes < columns)


@tl.kernel
def greatest_common_divisor(x, y, out):
    program = tl.program_id(0)
    a = tl.load(x + program)
    b = tl.load(y + program)
    while b != 0:
        rest = a % b
        a = b
        b = rest
    tl.store(out + program, a)


@tl.kernel
def larger_of(a, b):
    result = b
    if a > b:
        result = a
    return result


@tl.kernel
def median(a, b, c):
    return larger_of(-larger_of(-a, -b), -larger_of(-larger_of(a, b), -c))


@tl.kernel
def smoothed(x, out, n):
    i = tl.program_id(0)
    value = tl.load(x + i)
    if i > 0:
        is_inner = i < n - 1
        if is_inner:
            value = median(tl.load(x + i - 1), value, tl.load(x + i + 1))
    tl.store(out + i, value)


@tl.kernel
def strided_sum(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        total += tl.load(x + lanes, mask=lanes < n, other=0)
    tl.store(out + tl.program_id(0), tl.sum(total, axis=0))


@tl.kernel
def in_turn(turn, out, n):
    mine = n - 1 - tl.program_id(0)  # the last program is first
    while tl.load(turn) != mine:
        mine = mine + 0
    tl.store(out + mine, tl.program_id(0))
    tl.store(turn, mine + 1)


@tl.kernel
def unmasked(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets))


@tl.kernel
def gather(x, indices, out, n, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < n
    places = tl.load(indices + lanes, mask=mask, other=0)
    tl.store(out + lanes, tl.load(x + places, mask=mask), mask=mask)


@tl.kernel
def error_function(x, out, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    value = tl.load(x + lanes, mask=lanes < n)
    tl.store(out + lanes, tl.erf(value), mask=lanes < n)
