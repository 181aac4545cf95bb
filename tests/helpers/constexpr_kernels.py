"""Kernels whose result depends on the spelling of a constexpr, or on wide indices."""

from __future__ import annotations

import tilewright.language as tl


@tl.kernel
def fill(out, value: tl.constexpr):
    tl.store(out + tl.arange(0, 4), tl.full((4,), value, tl.float32))


@tl.kernel
def scale(x, out, factor: tl.constexpr):
    tl.store(out, tl.load(x) * factor)


@tl.kernel
def masked(out, n, m):
    lanes = tl.arange(0, 128)
    start = tl.minimum(tl.maximum(n, -4611686018427387904), 4611686018427387903)
    tl.store(out + lanes, ((start + (lanes - 100)) < m).to(tl.int32))


@tl.kernel
def record(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
    tl.store(out, BLOCK)
    tl.store(out + 1, EVEN)
    tl.store(out + 2, TWICE)
    tl.store(out + 3, tl.load(x) + n)
