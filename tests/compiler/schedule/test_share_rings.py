"""Rings that loops share: loops in a row share those of an operand, nested loops do not."""

from __future__ import annotations

from helpers.kernel_source import signature_of
from helpers.unplanned_blocks import two_walks
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.bulk_loads import bulk_loads
from tilewright_compiler.schedule.share_rings import share_rings


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
