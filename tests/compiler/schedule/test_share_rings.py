"""Rings that loops share: loops in a row share those of an operand, loops inside each other do not."""

from __future__ import annotations

import tilewright.language as tl
from helpers.kernel_source import signature_of
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.bulk_loads import bulk_loads
from tilewright_compiler.schedule.share_rings import share_rings


@tl.kernel(divisible=("n", "k"))
def two_walks(x, y, out, m, n, k, half, BLOCK: tl.constexpr):
    """Write `x @ y`, K in two loops and an outer one."""
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK, BLOCK])
    b = tl.make_tensor_descriptor(y, [k, n], [n, 1], [BLOCK, BLOCK])
    c = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK, BLOCK])
    for row in range(0, m, BLOCK):
        total = tl.dot(a.load([row, 0]), b.load([0, 0]))
        for start in range(BLOCK, half, BLOCK):
            total = tl.dot(a.load([row, start]), b.load([start, 0]), total)
        for start in range(half, k, BLOCK):
            total = tl.dot(a.load([row, start]), b.load([start, 0]), total * 0.5)
        c.store([row, 0], total.to(out.dtype))


def rings(module: Module) -> list[int | None]:
    tiles = [o for o in module.kernel.body.walk() if o.name == "tma_tile"]
    return [tile.attributes.get("ring") for tile in tiles]


def test_loops_in_a_row_share_and_the_outer_one_keeps_its_own() -> None:
    types = dict.fromkeys(("x", "y", "out"), "*bf16")
    types |= dict.fromkeys(("m", "n", "k", "half"), "i64")
    signature = signature_of(two_walks, {**types, "BLOCK": 64}, specialization="fast", num_warps=4)
    module = bulk_loads(optimize(lower_kernel(two_walks, signature)))
    assert rings(module) == [None] * 6
    assert rings(share_rings(module)) == [0, 1, 2, 3, 2, 3]
