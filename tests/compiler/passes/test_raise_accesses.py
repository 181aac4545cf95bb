"""Kernels whose products load through pointers, as kernels that load blocks of descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import pointer_products as kernels
from helpers.kernel_source import load_kernel, signature_of
from helpers.mutations import find
from helpers.product_launches import SMALL, WIDE, launch_of, optimized
from tilewright.abi.signature import ConstexprValue, Specialization
from tilewright.language.kernel import Kernel
from tilewright_compiler.analysis.tensor_maps import launch_condition
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import HOPPER
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret import tile
from tilewright_compiler.interpret.proof import Launch, prove
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.options import DEFAULT
from tilewright_compiler.passes import optimize
from tilewright_compiler.passes.raise_accesses import raise_accesses
from tilewright_compiler.schedule.hopper import schedule_hopper, why_not


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel `a @ b`, of a batch of matrices where `batch` is more than 1."""

    kernel: Kernel
    batch: int = 1
    is_turned: bool = False


CASES = {
    "rows and columns": Case(kernels.rows_and_columns),
    "moving pointers": Case(kernels.moving_pointers),
    "block pointers": Case(kernels.block_pointers),
    "batched, turned": Case(kernels.batched_turned, batch=3, is_turned=True),
}


@cache
def module_of(name: str) -> Module:
    return optimized(CASES[name].kernel, SMALL)


def launch(name: str, m: int, n: int, k: int, seed: int = 0) -> Launch:
    case = CASES[name]
    return launch_of(case.kernel, m, n, k, seed=seed, batch=case.batch, is_turned=case.is_turned)


@pytest.mark.parametrize("name", CASES)
def test_every_access_becomes_a_block(name: str) -> None:
    raised = raise_accesses(module_of(name), stores=True)
    verify(raised)
    names = [operation.name for operation in raised.kernel.body.walk()]
    assert names.count("descriptor_load") == 2
    assert names.count("descriptor_store") == 1
    assert not {"load", "store", "addptr"}.intersection(names)
    # Pointers that a loop moved are gone with what moved them.
    (loop,) = find(raised, "for")
    assert len(loop.results) == 1


@pytest.mark.parametrize("name", CASES)
def test_stores_are_left_where_asked(name: str) -> None:
    raised = raise_accesses(module_of(name), stores=False)
    assert len(find(raised, "descriptor_load")) == 2
    assert len(find(raised, "store")) == 1


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10, deadline=None)
@given(m=st.integers(1, 130), n=st.integers(1, 5), k=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_the_meaning_stays(name: str, m: int, n: int, k: int, seed: int) -> None:
    given_, raised_ = launch(name, m, 16 * n, 16 * k, seed), launch(name, m, 16 * n, 16 * k, seed)
    tile.run(module_of(name), grid=given_.grid, arguments=given_.arguments)
    raised = raise_accesses(module_of(name), stores=True)
    tile.run(raised, grid=raised_.grid, arguments=raised_.arguments)
    np.testing.assert_array_equal(given_.arguments["c"], raised_.arguments["c"])


@pytest.mark.parametrize("name", CASES)
def test_schedules_are_proven(name: str) -> None:
    module = module_of(name)
    scheduled = schedule_hopper(module)
    assert scheduled is not None, why_not(module)
    assert prove(module, scheduled, [launch(name, 100, 48, 80)], seeds=(0, 1))


@pytest.mark.parametrize("name", CASES)
def test_machine_code(name: str) -> None:
    scheduled = schedule_hopper(optimized(CASES[name].kernel, WIDE, num_warps=8, dtype="bf16"))
    assert scheduled is not None
    cubin = assemble(
        lower_to_ptx(emit_module(scheduled), flavor=HOPPER, options=DEFAULT),
        HOPPER.target,
        options=DEFAULT,
    )
    assert cubin.spill_bytes == 0
    assert cubin.warnings == ()


def test_sizes_and_strides_are_conditions_of_the_launch() -> None:
    scheduled = schedule_hopper(module_of("batched, turned"))
    assert scheduled is not None
    condition = launch_condition(scheduled)
    assert {"m > 0", "n > 0", "k > 0"} <= set(condition.split(" and "))


def test_the_same_text_comes_of_it_every_time() -> None:
    """No order of a set, which differs from process to process, gets into a kernel."""
    texts = set()
    for _ in range(3):
        module_of.cache_clear()
        texts.add(print_module(raise_accesses(module_of("batched, turned"), stores=True)))
    assert len(texts) == 1


def test_in_the_general_form_the_launch_is_asked_for_more() -> None:
    """What masks clamp to 32 bits there lies inside for each launch that copies blocks."""
    module = _small(kernels.rows_and_columns, "general")
    scheduled = schedule_hopper(module)
    assert scheduled is not None, why_not(module)
    asked = set(launch_condition(scheduled).split(" and "))
    assert {f"{size} {bound}" for size in "mnk" for bound in ("> 0", "<= 2147483647")} <= asked
    assert prove(module, scheduled, [launch("rows and columns", 100, 48, 80)], seeds=(0,))


def _small(
    kernel: Kernel, specialization: Specialization = "fast", **more: ConstexprValue
) -> Module:
    types: dict[str, ConstexprValue] = {
        p.name: "*f16" if p.name in "abc" else "i64"
        for p in kernel.parameters
        if not p.is_constexpr
    }
    signature = signature_of(kernel, types | SMALL | more, specialization=specialization)
    return optimize(lower_kernel(kernel, signature))


@pytest.mark.parametrize("how", ["first zeros", "every step"])
def test_stores_to_one_place_keep_their_order(how: str) -> None:
    """Blocks are on their way by themselves: of two, either may come last."""
    module = _small(kernels.stored_again, HOW=how)
    raised = raise_accesses(module, stores=True)
    names = [operation.name for operation in raised.kernel.body.walk()]
    assert names.count("descriptor_load") == 2
    assert "descriptor_store" not in names
    scheduled = schedule_hopper(module)
    assert scheduled is not None
    assert prove(module, scheduled, [launch("rows and columns", 100, 80, 96)], seeds=(0,))


def test_a_factor_that_is_no_block_leaves_the_other_to_copies_that_run_ahead() -> None:
    module = _small(kernels.gathered_rows, BY_BLOCKS=False)
    assert raise_accesses(module, stores=True) is module
    assert "this load gives no block" in str(why_not(module))


def test_a_factor_by_pointers_stays_in_registers_beside_one_by_blocks() -> None:
    """What a product of a warpgroup takes from shared memory must lie there in panels."""
    module = _small(kernels.gathered_rows, BY_BLOCKS=True)
    scheduled = schedule_hopper(module)
    assert scheduled is not None, why_not(module)
    given = launch("rows and columns", 100, 80, 96)
    assert prove(module, scheduled, [given], seeds=(0,))


def test_a_bound_of_the_users_holds_whatever_it_is(tmp_path: Path) -> None:
    # A clamp that covers one tile is no more than that where the index is not a bare lane.
    text = """
@tl.kernel(divisible=("n", "k"))
def clamped(
    a, b, c, m, n, k, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    tl.assume(first >= 0)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M) + first
    size = tl.minimum(tl.maximum(m, 0), 96)
    columns, depth = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    left = tl.load(
        a + rows[:, None] * k + depth[None, :],
        mask=(rows < size)[:, None] & (depth < k)[None, :], other=0.0,
    )
    right = tl.load(
        b + depth[:, None] * n + columns[None, :],
        mask=(depth < k)[:, None] & (columns < n)[None, :], other=0.0,
    )
    mask = (rows < size)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], tl.dot(left, right).to(c.dtype), mask=mask)
"""
    module = _small(load_kernel(tmp_path, text))
    results = []
    for each in (module, raise_accesses(module, stores=True)):
        arguments = launch("rows and columns", 128, 32, 32).arguments
        tile.run(each, grid=(2, 1, 1), arguments={**arguments, "first": 0})
        results.append(np.asarray(arguments["c"]))
    np.testing.assert_array_equal(results[0], results[1])
    first, *_ = results[0]
    before, *_ = np.asarray(launch("rows and columns", 128, 32, 32).arguments["c"])
    np.testing.assert_array_equal(first[96:], before[96:])
    assert (first[:96] != before[:96]).any()


WINDOW = """
@tl.kernel(divisible=("n", "k"))
def windowed(
    a, b, c, m, n, k, first, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns, depth = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    left = tl.load(
        a + rows[:, None] * k + depth[None, :],
        mask=READ & (rows[:, None] < m) & (depth[None, :] < k), other=0.0,
    )
    right = tl.load(
        b + depth[:, None] * n + columns[None, :],
        mask=(depth[:, None] < k) & (columns[None, :] < n), other=0.0,
    )
    mask = WRITTEN & (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], tl.dot(left, right).to(c.dtype), mask=mask)
"""


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("(rows[:, None] >= first)", "(rows[:, None] >= 0)"),
        ("(rows[:, None] >= 0)", "(rows[:, None] >= first)"),
        ("(depth[None, :] >= 5)", "(columns[None, :] >= 7)"),
        ("(rows[:, None] + 5 > m)", "(m - rows[:, None] < 60)"),
        ("(depth[None, :] >= 0)", "(rows[:, None] >= 3)"),
    ],
)
def test_bounds_from_below_hold_whatever_they_are(read: str, written: str, tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, WINDOW.replace("READ", read).replace("WRITTEN", written))
    module = _small(kernel)
    results = []
    for each in (module, *(raise_accesses(module, stores=flag) for flag in (True, False))):
        arguments = launch("rows and columns", 100, 32, 32).arguments
        tile.run(each, grid=(2, 1, 1), arguments={**arguments, "first": 70})
        results.append(np.asarray(arguments["c"]))
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


@pytest.mark.parametrize(
    "mask",
    [
        "tl.arange(0, BLOCK_M).to(tl.uint64)[:, None] < (m - 105).to(tl.uint64)",
        "tl.arange(0, BLOCK_M)[:, None] < tl.minimum((m - 105).to(tl.uint64), 1 << 40)",
        "rows.to(tl.uint64)[:, None] - m.to(tl.uint64) < first.to(tl.uint64)",
    ],
)
def test_unsigned_bounds_wrap(mask: str, tmp_path: Path) -> None:
    text = WINDOW.replace("(rows[:, None] < m)", f"({mask})").replace("READ & ", "")
    kernel = load_kernel(tmp_path, text.replace("WRITTEN & ", ""))
    forms: tuple[Specialization, ...] = ("fast", "general")
    for form in forms:
        module = _small(kernel, form)
        results = []
        for each in (module, raise_accesses(module, stores=True)):
            arguments = launch("rows and columns", 100, 32, 32).arguments
            tile.run(each, grid=(1, 1, 1), arguments={**arguments, "first": 0})
            results.append(np.asarray(arguments["c"]))
        np.testing.assert_array_equal(results[1], results[0])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("c.store([row, 0], t)", "tl.store(o + rows * n + rows, 1000.0)"),
        ("c.store([row, 0], t)", "tl.atomic_add(o + rows * n + rows, 1000.0)"),
        ("c.atomic_add([row, 0], t)", "tl.store(o + rows * n + rows, 1000.0)"),
        ("tl.store(o + rows * n + rows, 1000.0)", "c.atomic_add([row, 0], t)"),
    ],
)
def test_pointers_to_what_a_descriptor_stores_keep_the_order_of_the_text(
    first: str, second: str, tmp_path: Path
) -> None:
    text = f"""
    @tl.kernel(divisible=("n", "k"))
    def both(x, y, o, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BM, BK])
        b = tl.make_tensor_descriptor(y, [k, n], [n, 1], [BK, BN])
        c = tl.make_tensor_descriptor(o, [m, n], [n, 1], [BM, BN])
        row = tl.program_id(0) * BM
        rows = row + tl.arange(0, BM)
        t = tl.zeros((BM, BN), tl.float32)
        for s in range(0, k, BK):
            t = tl.dot(a.load([row, s]), b.load([s, 0]), t)
        {first}
        {second}
    """
    kernel = load_kernel(tmp_path, text)
    types: dict[str, ConstexprValue] = {"x": "*f16", "y": "*f16", "o": "*f32"}
    types |= dict.fromkeys(("m", "n", "k"), "i64")
    types |= {"BM": 64, "BN": 64, "BK": 32}
    module = optimize(lower_kernel(kernel, signature_of(kernel, types, specialization="fast")))
    # Nothing waits until a bulk copy has arrived, so the common schedule serves.
    assert "accesses a tensor by pointers that it stores" in str(why_not(module))
