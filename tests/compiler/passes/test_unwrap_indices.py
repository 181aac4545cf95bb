"""Products of rows and columns that wrap at the edges: what may wrap no more, and what has to."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import pointer_products as kernels
from helpers.kernel_source import load_kernel
from helpers.mutations import find
from helpers.product_launches import SMALL, WIDE, launch_of, optimized
from tilewright_compiler.analysis.tensor_maps import launch_condition
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import HOPPER
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.interpret import tile
from tilewright_compiler.interpret.proof import prove
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.options import DEFAULT
from tilewright_compiler.passes.raise_accesses import raise_accesses
from tilewright_compiler.passes.unwrap_indices import unwrap_indices
from tilewright_compiler.schedule.hopper import schedule_hopper, why_not

CASES = {"remainders": kernels.wrapping_pointers, "zeros": kernels.clamped_rows}


@cache
def module_of(name: str) -> Module:
    return optimized(CASES[name], SMALL)


@pytest.mark.parametrize("name", CASES)
def test_every_access_becomes_a_block(name: str) -> None:
    unwrapped = unwrap_indices(module_of(name))
    verify(unwrapped)
    raised = raise_accesses(unwrapped, stores=True)
    verify(raised)
    assert len(find(raised, "descriptor_load")) == 2
    assert len(find(raised, "descriptor_store")) == 1
    assert not find(raised, "load")


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10, deadline=None)
@given(m=st.integers(1, 130), n=st.integers(1, 5), k=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_what_is_stored_stays(name: str, m: int, n: int, k: int, seed: int) -> None:
    sizes = m, 16 * n, 16 * k
    before, after = (launch_of(CASES[name], *sizes, seed=seed) for _ in range(2))
    tile.run(module_of(name), grid=before.grid, arguments=before.arguments)
    tile.run(unwrap_indices(module_of(name)), grid=after.grid, arguments=after.arguments)
    np.testing.assert_array_equal(before.arguments["c"], after.arguments["c"])


@pytest.mark.parametrize("name", CASES)
def test_schedules_are_proven(name: str) -> None:
    module = module_of(name)
    scheduled = schedule_hopper(module)
    assert scheduled is not None, why_not(module)
    assert prove(module, scheduled, [launch_of(CASES[name], 100, 48, 80)], seeds=(0, 1))


@pytest.mark.parametrize("name", CASES)
def test_machine_code_multiplies_what_is_copied(name: str) -> None:
    scheduled = schedule_hopper(optimized(CASES[name], WIDE, num_warps=8))
    assert scheduled is not None
    assert {"m > 0", "n > 0", "k > 0"} <= set(launch_condition(scheduled).split(" and "))
    ptx = lower_to_ptx(emit_module(scheduled), flavor=HOPPER, options=DEFAULT)
    assert "wgmma.mma_async" in ptx.text
    cubin = assemble(ptx, HOPPER.target, options=DEFAULT)
    assert (cubin.spill_bytes, [w for w in cubin.warnings if "C75" in w]) == (0, [])


PRODUCT = """
@tl.kernel(divisible=("n", "k"))
def product(
    a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    own = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = own % m
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = start + depth < k
        left = tl.load(
            a + rows[:, None] * k + (start + depth)[None, :], mask=inside[None, :], other=0.0
        )
        right = tl.load(
            b + (start + depth)[:, None] * n + columns[None, :],
            mask=inside[:, None] & (columns < n)[None, :],
            other=0.0,
        )
        total = tl.dot(left, right, total)
        #each
    #after
    mask = (own[:, None] < m) & (columns[None, :] < n)
    tl.store(c + own[:, None] * n + columns[None, :], total.to(c.dtype), mask=mask)
"""
MASK = "mask = (own[:, None] < m) & (columns[None, :] < n)"
KEPT = {
    "nothing": (),
    "a value of the same lane": (
        ("#after", "total = tl.where(total > 1.0, tl.exp(total), total * own[:, None])"),
    ),
    "the largest of its own row": (("#after", "total -= tl.max(total, axis=1)[:, None]"),),
}
NOT_KEPT = {
    "a store without a mask of rows": ((MASK, "mask = columns[None, :] < n"),),
    "a store to the rows of another size": ((MASK, MASK.replace("< m", "< n")),),
    "a store to rows further down": ((MASK, MASK.replace("own[:, None] <", "own[:, None] - 1 <")),),
    "the largest of a column": (("#after", "total -= tl.max(total, axis=0)[None, :]"),),
    "a sum that leaves": (("#each", "tl.atomic_add(c, tl.sum(left).to(c.dtype))"),),
    "rows that change places": (("#after", "total = tl.flip(total, 0)"),),
    "the contracted axis": (("#after", "total = tl.dot(tl.trans(total), total)"),),
    "a check": (("#each", 'tl.device_assert(left < 9.0, "large")'),),
    "an index that is stored": (("#after", "tl.store(c + own, rows.to(c.dtype), mask=own < m)"),),
    "an address of a store": (("c + own[:, None] * n", "c + rows[:, None] * n"),),
    "rows one further up": (("own % m", "(own - 1) % m"),),
    "a negative index at a good address": (
        ("+ tl.arange(0, BLOCK_M)\n    rows", "+ tl.arange(0, BLOCK_M) - 64\n    rows"),
        ("a + rows[:, None] * k", "a + 64 * k + rows[:, None] * k"),
        ("c + own[:, None] * n", "c + (own[:, None] + 64) * n"),
    ),
    "a size that may be 0 and is stored as 1": (
        ("own % m", "tl.where(own < m, own, 0)"),
        (MASK, MASK.replace("< m", "< tl.maximum(m, 1)")),
    ),
    "a size of the launch that ends earlier": (
        ("own = ", "size = tl.minimum(tl.maximum(m, 0), 96)\n    own = n + "),
        ("own % m", "tl.where(own < size, own, 0)"),
    ),
    "an index that may be negative": (("* BLOCK_M + tl", "* BLOCK_M - 5 + tl"),),
}


def edited(directory: Path, edits: tuple[tuple[str, str], ...]) -> Module:
    text = PRODUCT
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    tiles = SMALL | {"BLOCK_N": 64}
    return optimized(load_kernel(directory, text), tiles)


@pytest.mark.parametrize("edits", KEPT.values(), ids=KEPT)
def test_lanes_may_meet(edits: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    module = edited(tmp_path, edits)
    unwrapped = unwrap_indices(module)
    assert len(find(module, "rem")) == 1
    assert not find(unwrapped, "rem")
    assert schedule_hopper(module) is not None


@pytest.mark.parametrize("edits", NOT_KEPT.values(), ids=NOT_KEPT)
def test_what_others_see_wraps(edits: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    module = edited(tmp_path, edits)
    assert unwrap_indices(module) is module


def test_rows_of_the_iteration_before_wrap(tmp_path: Path) -> None:
    # A program walks over tiles, and stores with the mask of this one what it made of the last.
    text = """
@tl.kernel(divisible=("n", "k"))
def late(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    columns, depth = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    right = tl.load(
        b + depth[:, None] * n + columns[None, :],
        mask=(depth[:, None] < k) & (columns[None, :] < n), other=0.0,
    )
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, m, BLOCK_M):
        own = first + tl.arange(0, BLOCK_M)
        mask = (own[:, None] < m) & (columns[None, :] < n)
        tl.store(c + own[:, None] * n + columns[None, :], total.to(c.dtype), mask=mask)
        left = tl.load(
            a + (own % m)[:, None] * k + depth[None, :], mask=depth[None, :] < k, other=0.0
        )
        total = tl.dot(left, right)
"""
    module = optimized(load_kernel(tmp_path, text), SMALL)
    assert unwrap_indices(module) is module
    now = text.replace("        tl.store", "        #tl.store").replace(
        "total = tl.dot(left, right)\n",
        "total = tl.dot(left, right)\n"
        "        tl.store(c + own[:, None] * n + columns[None, :], total.to(c.dtype), mask=mask)\n",
    )
    other = tmp_path / "now"
    other.mkdir()
    module = optimized(load_kernel(other, now), SMALL)
    assert not find(unwrap_indices(module), "rem")


def test_a_wrap_may_stand_behind_the_load(tmp_path: Path) -> None:
    text = PRODUCT.replace("rows = own % m", "known = own < m\n    lefts = a + own[:, None] * 0")
    text = text.replace(
        "a + rows[:, None] * k + (start + depth)[None, :]", "lefts + depth[None, :]"
    )
    text = text.replace(
        "#each",
        """if start > 64:
            lefts = a + tl.where(known, own, 0)[:, None] * k
            tl.device_print("x", start)""",
    )
    module = optimized(load_kernel(tmp_path, text), SMALL | {"BLOCK_N": 64})
    assert unwrap_indices(module) is module
    assert schedule_hopper(module) is None
