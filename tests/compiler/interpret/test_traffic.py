"""Passes through shared memory are counted from the plans: with conflicts, and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.mutations import find
from helpers.staged_kernels import KERNELS, arguments, optimized, types_of
from tilewright_compiler.interpret.traffic import Access, shared_traffic
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.types import SharedType
from tilewright_compiler.layout.swizzle import SharedLayout
from tilewright_compiler.schedule.plan import schedule_module


@pytest.mark.parametrize("name", ["product", "two_loops", "attention", "gated", "row_sum"])
def test_loops_of_products_have_no_bank_conflicts(name: str, tmp_path: Path) -> None:
    values = arguments(name, trips=1)
    schedule = schedule_module(optimized(tmp_path, KERNELS[name], types_of(values)))
    inside = [traffic for traffic in shared_traffic(schedule) if traffic.loops]
    assert inside
    assert all(traffic.wavefronts == traffic.ideal for traffic in inside)


def test_operands_without_a_swizzle_have(tmp_path: Path) -> None:
    values = arguments("product", trips=1)
    schedule = schedule_module(optimized(tmp_path, KERNELS["product"], types_of(values)))
    (dot,) = find(schedule, "dot")
    slot = dot.operands[1]  # [16, 32] bf16: rows of 64 bytes
    assert isinstance(slot.type, SharedType)
    plain = SharedLayout(slot.type.shape, tuple(1 << bit for bit in range(9)))
    slot.type = replace(slot.type, layout=plain)
    before = {t.access.name: t.access for t in shared_traffic(schedule) if t.operation is dot}
    assert before["a"].ways == 1
    assert before["b"].ways == 4


def test_a_matrix_is_one_pass_of_an_instruction(tmp_path: Path) -> None:
    values = arguments("product", trips=1)
    schedule = schedule_module(optimized(tmp_path, KERNELS["product"], types_of(values)))
    (dot,) = find(schedule, "dot")
    # Two warps along M have 16 x 16 of a, two along N 16 x 16 of b: four matrices of 8 x 8 each.
    expected = [Access(name, instructions=1, passes=4, ways=1) for name in ("a", "b")]
    assert [t.access for t in shared_traffic(schedule) if t.operation is dot] == expected


def test_a_column_of_words_is_the_worst_case() -> None:
    text = """signature (x:*i32) general num_warps=1 num_stages=1
attributes {shared_bytes = 4096}
kernel @k(%x: ptr<i32>) {
  %zero = constant {value = 0} : i32
  %a = splat %zero : tile<32x32xi32, #layout<32x32; r=1,2,4,8,16; l=32,64,128,256,512; w=>>
  %b = splat %zero : tile<32x32xi32, #layout<32x32; r=32,64,128,256,512; l=1,2,4,8,16; w=>>
  %s = alloc_shared {shared_offset = 0} : shared<32x32xi32, #shared<32x32; LINEAR>>
  shared_store %a, %s
  barrier
  shared_store %b, %s
  return
}
"""
    linear = ",".join(str(1 << bit) for bit in range(10))
    by_rows, by_columns = shared_traffic(parse_module(text.replace("LINEAR", linear)))
    # A lane has a row: vectors of 16 bytes, and the eight lanes of a phase all begin at bank 0.
    assert by_rows.access == Access("write", instructions=8, passes=4, ways=8)
    assert by_rows.wavefronts == 8 * by_rows.ideal
    assert by_columns.access == Access("write", instructions=32, passes=1, ways=1)


def test_loops_are_counted() -> None:
    module: Module = parse_module(
        """signature (x:*f32, n:i64) general num_warps=2 num_stages=1
attributes {shared_bytes = 32}
kernel @k(%x: ptr<f32>, %n: i64) {
  %zero = constant {value = 0.0} : f32
  %a = splat %zero : tile<64xf32, #layout<64; r=; l=1,2,4,8,16; w=32>>
  %c0 = constant {value = 0} : i64
  %c1 = constant {value = 1} : i64
  %s = reduce %a {axis = 0, kind = "sum", shared_offset = 0} : f32
  for %c0, %n, %c1 (%i: i64) {
    %t = reduce %a {axis = 0, kind = "sum", shared_offset = 16} : f32
    yield
  }
  return
}
"""
    )
    found = [(traffic.access.name, traffic.loops) for traffic in shared_traffic(module)]
    assert found == [("write", 0), ("read", 0), ("write", 1), ("read", 1)]
