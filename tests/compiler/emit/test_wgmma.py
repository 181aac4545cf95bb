"""Hopper's schedule as its PTX: descriptors, swizzles and roles against the formulas of the ISA."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from helpers.descriptor_kernels import Product
from helpers.hopper_launch import run_on_hopper
from helpers.ptx_interpreter import Arrival, Order, PtxFault
from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.analysis.tensor_maps import added_parameters
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import HOPPER
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.core import Block, Module, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule import bulk_loads
from tilewright_compiler.schedule.hopper import schedule_hopper

_GOLDEN = Path(__file__).parents[2] / "golden" / "compiler" / "schedule" / "test_hopper"
_SMALL = Product(m=64, n=32, k=64)


def scheduled(product: Product, *edits: tuple[str, str]) -> Module:
    """Return the schedule of a product whose text is edited first."""
    text = product.text()
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    module = schedule_hopper(optimize(parse_module(text)))
    assert module is not None
    return module


def run(
    product: Product,
    sizes: tuple[int, int, int],
    *,
    module: Module | None = None,
    ctas: int = 1,
    order: Order = "lockstep",
    arrival: Arrival = "late",
) -> None:
    """Run a product and compare with what it must be."""
    m, n, k = sizes
    arguments, expected = product.arguments(m, n, k)
    run_on_hopper(
        module or scheduled(product),
        arguments,
        grid=product.grid(m, n),
        ctas=ctas,
        order=order,
        arrival=arrival,
    )
    np.testing.assert_array_equal(arguments["c"], expected)


@pytest.mark.parametrize("b_unit", ["k", "n"])
@pytest.mark.parametrize("a_unit", ["k", "m"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_operands_of_16_bits_lie_either_way(dtype: str, a_unit: str, b_unit: str) -> None:
    product = Product(m=64, n=64, k=64, dtype=dtype, a_unit=a_unit, b_unit=b_unit)
    run(product, (100, 60, 150), ctas=2)


@pytest.mark.parametrize("k", [16, 32, 128])
@pytest.mark.parametrize("units", [("k", "k"), ("m", "n")])
def test_lines_of_each_swizzle_and_several_panels(k: int, units: tuple[str, str]) -> None:
    run(Product(m=64, n=k, k=k, a_unit=units[0], b_unit=units[1]), (64, 2 * k, 2 * k + 8))


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_operands_of_other_widths_lie_along_k(dtype: str) -> None:
    run(Product(m=64, n=32, k=64, dtype=dtype, out="i32", b_unit="k"), (64, 40, 100))


@pytest.mark.parametrize("dtype", ["f32", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("in_registers", [False, True])
def test_forms_that_the_schedule_does_not_choose(
    dtype: str, in_registers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They drop bits: those of f32 operands, or those of sums."""
    monkeypatch.setattr(bulk_loads, "_check_instruction", lambda *_: None)
    product = Product(m=64, n=32, k=64, dtype=dtype, b_unit="k")
    chosen = "    %chosen = select %all, %left, %ones : tile<64x64x{0}>\n    %sum"
    constants = """  %some = cmp %m, %zero {{predicate = "gt"}} : i1
  %all = splat %some : tile<64x64xi1>
  %one = constant {{value = 1.0}} : {0}
  %ones = splat %one : tile<64x64x{0}>
  %total"""
    edits = (
        ("dot %left", "dot %chosen"),
        ("    %sum", chosen.format(dtype)),
        ("  %total", constants.format(dtype)),
    )
    module = scheduled(product, *(edits if in_registers else ()))
    (product_text,) = re.findall(r"wgmma\.mma\S* {[^}]*}, (\S)", emit_module(module).text)[:1]
    assert product_text == ("{" if in_registers else "a")
    module = scheduled(product, *edits)
    run(product, (64, 40, 100), module=module)


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_products_of_8_bit_floats_are_added_up_apart(dtype: str) -> None:
    run(Product(m=64, n=32, k=64, dtype=dtype, b_unit="k"), (64, 40, 100))


def test_a_block_that_is_added_to_nothing_is_its_own_sum() -> None:
    product = Product(m=64, n=32, k=64, dtype="f8e4m3", b_unit="k")
    adding = "%sum = dot %left, %right, %acc"
    apart = (
        (adding, adding.replace("%sum", "%own").replace("%acc", "%empty")),
        ("    yield", "    %sum = add %own, %acc : tile<64x32xf32>\n    yield"),
        ("  %total", "  %empty = splat %nothing : tile<64x32xf32>\n  %total"),
    )
    module = scheduled(product, *apart)
    sums = [
        o for o in module.kernel.body.walk() if o.name == "add" and "tile" in str(o.result.type)
    ]
    assert len(sums) == 1
    run(product, (64, 40, 100), module=module)


@pytest.mark.parametrize(
    ("m", "n", "num_warps"), [(128, 32, 8), (64, 64, 8), (128, 32, 4), (256, 16, 8)]
)
def test_warpgroups_and_instructions_share_a_tile(m: int, n: int, num_warps: int) -> None:
    run(Product(m=m, n=n, num_warps=num_warps), (m + 8, 2 * n, 80))


@pytest.mark.parametrize("out", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("n", [32, 128])
def test_results_leave_through_panels_of_shared_memory(out: str, n: int) -> None:
    product = Product(m=64, n=n, k=32, dtype=out if out != "f32" else "bf16", out=out)
    run(product, (120, n + 24, 40))


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
@pytest.mark.parametrize("m", [64, 128])
def test_a_may_come_from_registers(dtype: str, m: int) -> None:
    product = Product(
        m=m, n=32, k=64, dtype=dtype, out="i32" if dtype == "i8" else "f32", b_unit="k"
    )
    module = scheduled(
        product,
        ("dot %left", "dot %turned"),
        ("    %sum", f"    %turned = neg %left : tile<{m}x64x{dtype}>\n    %sum"),
    )
    arguments, expected = product.arguments(m, 40, 100)
    run_on_hopper(module, arguments, grid=product.grid(m, 40), ctas=1)
    np.testing.assert_array_equal(arguments["c"], -expected)


@pytest.mark.parametrize("arrival", ["late", "early"])
@pytest.mark.parametrize("order", ["lockstep", "ascending", "descending"])
def test_warps_may_run_ahead_and_copies_arrive_early(order: Order, arrival: Arrival) -> None:
    run(Product(m=64, n=32, out="bf16"), (128, 64, 130), order=order, arrival=arrival)


@pytest.mark.parametrize("ctas", [1, 3, 6])
def test_ctas_walk_over_the_programs(ctas: int) -> None:
    run(Product(m=64, n=32, out="bf16"), (120, 70, 70), ctas=ctas)


@pytest.mark.parametrize("order", ["lockstep", "ascending", "descending"])
@pytest.mark.parametrize(("n", "groups"), [(32, 2), (128, 2), (32, 1)])
def test_groups_of_warps_store_their_rows_by_themselves(n: int, groups: int, order: Order) -> None:
    product = Product(m=128, n=n, num_warps=8, out="bf16")
    module = scheduled(product)
    (roles,) = (o for o in module.kernel.body.walk() if o.name == "roles")
    for operation in roles.regions[1].walk():
        if operation.name in ("barrier", "tma_store"):
            operation.attributes["groups"] = groups
    stored = [p.tensor_map for p in added_parameters(module) if p.tensor_map][-1]
    assert stored.box[0] == 128 // groups
    run(product, (200, n + 24, 40), module=module, order=order)


@pytest.mark.parametrize("arrival", ["late", "early"])
@pytest.mark.parametrize("n", [32, 70])
def test_a_product_may_run_under_the_next_one(n: int, arrival: Arrival) -> None:
    m, rng = 100, np.random.default_rng(n)
    text = (_GOLDEN / "attention.before.tile").read_text(encoding="utf-8")
    module = schedule_hopper(optimize(parse_module(text)))
    assert module is not None
    q, k, v = ((rng.integers(-3, 4, (rows, 64)) / 2).astype(bfloat16) for rows in (m, n, n))
    o = np.zeros((m, 64), np.float32)
    arguments: dict[str, Any] = {"q": q, "k": k, "v": v, "o": o, "m": m, "n": n}
    run_on_hopper(module, arguments, grid=(2, 1, 1), ctas=1, arrival=arrival)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 8
    weights = np.exp2(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(o, expected, atol=2e-2)


def test_a_product_that_starts_from_zero_reads_no_accumulator() -> None:
    product = replace(_SMALL, k=128)
    module = scheduled(product)
    for block in _blocks(module.kernel.body):
        for operation in block.operations:
            if operation.name == "dot":
                (zero,) = (o.result for o in module.kernel.body.walk() if o.name == "splat")
                operation.operands = (*operation.operands[:2], zero)
    text = emit_module(module).text
    (product_text,) = re.findall(r'inline_asm .*"\{(.*wgmma\.mma.*)\}", "(.*?)"', text)
    ptx, constraints = product_text
    assert constraints == ",".join(["=&f"] * 16 + ["r"] * 2 + ["~{memory}"])
    uses = re.findall(r"[ab], (starts|adds), 1, 1", ptx)
    assert uses == ["starts"] + ["adds"] * 7
    run(product, (64, 32, 128), module=module)


@pytest.mark.parametrize("name", ["mbarrier_wait", "dot_wait"])
def test_the_interpreter_shows_a_wait_that_is_missing(name: str) -> None:
    module = scheduled(_SMALL)
    (roles,) = (o for o in module.kernel.body.walk() if o.name == "roles")
    for block in _blocks(roles.regions[1]):
        for operation in list(block.operations):
            if operation.name == name:
                block.operations.remove(operation)
                if name == "dot_wait":
                    _replace(module, operation)
    with pytest.raises((AssertionError, PtxFault)):
        run(_SMALL, (64, 32, 256), module=module)


def test_the_assembler_finds_nothing_to_complain_of() -> None:
    product = Product(m=128, n=256, k=64, num_warps=8, num_stages=4, out="bf16", b_unit="k")
    cubin = assemble(
        lower_to_ptx(emit_module(scheduled(product)), flavor=HOPPER), Target(9, 0, "a")
    )
    # 65,536 registers for 384 threads; `setmaxnreg` deals them out anew.
    assert (cubin.registers, cubin.spill_bytes, cubin.warnings) == (168, 0, ())


def test_consumers_meet_at_a_barrier_of_their_own() -> None:
    text = emit_module(scheduled(_SMALL)).text
    before, _, after = text.partition("nvvm.setmaxregister increase")
    assert "nvvm.barrier0" in before
    assert "nvvm.barrier0" not in after
    assert "nvvm.barrier id" not in before
    assert "nvvm.barrier id" in after
    assert "nvvm.reqntid = array<i32: 256, 1, 1>, nvvm.minctasm = 1" in text


def test_lanes_that_read_shared_memory_meet_before_they_give_it_back() -> None:
    others_read = (
        ("dot %left", "dot %t"),
        ("    %sum", "    %t = neg %left : tile<64x64xbf16>\n    %sum"),
    )
    counts = [
        emit_module(scheduled(_SMALL, *edits)).text.count("nvvm.bar.warp.sync")
        for edits in ((), others_read)
    ]
    assert counts[0] == 1  # behind the producer's one thread
    assert counts[1] > 1


def test_an_operand_that_wgmma_cannot_read_is_refused() -> None:
    text = print_module(scheduled(_SMALL))
    for layout in set(re.findall(r"#shared<64x32; [0-9,]*>", text)):
        text = text.replace(layout, f"#shared<64x32; {','.join(str(1 << i) for i in range(11))}>")
    with pytest.raises(
        InternalCompilerError, match=r"bulk tensor copies do not write|wgmma does not"
    ):
        emit_module(parse_module(text))


@pytest.mark.parametrize("name", ["alloc_mbarriers", "alloc_shared"])
def test_what_has_no_place_is_refused(name: str) -> None:
    module = scheduled(_SMALL)
    for operation in module.kernel.body.walk():
        if operation.name == name:
            del operation.attributes["shared_offset"]
    with pytest.raises(InternalCompilerError, match="has no place"):
        emit_module(module)


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for operation in block.operations:
        for region in operation.regions:
            yield from _blocks(region)


def _replace(module: Module, wait: Operation) -> None:
    """Let what uses a wait's results use its operands."""
    values = dict(zip(wait.results, wait.operands, strict=True))
    for operation in module.kernel.body.walk():
        operation.operands = tuple(values.get(value, value) for value in operation.operands)
