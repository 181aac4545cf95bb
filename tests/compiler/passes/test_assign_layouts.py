"""Assigning layouts keeps a kernel's meaning, and converts only where it must."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from helpers.kernel_source import load_kernel, signature_of
from helpers.random_tiles import F32, I32, TileProgram, arrays, programs
from tilewright.errors import InternalCompilerError, KernelValueError
from tilewright_compiler import driver
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Block, Function, Module, Operation
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.types import TileType
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.layout.access import vector_width
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.passes.assign_layouts import MAX_ELEMENTS, assign_layouts
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.passes.legalize_dot import legalize_dot
from tilewright_compiler.schedule.plan import schedule_module


def results(module: Module, flag: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    values = arrays()
    run(module, grid=(1, 1, 1), arguments={**values, "flag": flag})
    return values["out"]


def operations(module: Module, name: str) -> list[Operation]:
    return [operation for operation in module.kernel.body.walk() if operation.name == name]


def layout_of(operation: Operation) -> LinearLayout:
    type_ = operation.operands[0].type
    assert isinstance(type_, TileType)
    assert type_.layout is not None
    return type_.layout


def without_layouts(module: Module) -> Module:
    """Strip layouts and the conversions between them."""
    result = rewrite_module(
        module,
        lambda operation, operands, _: operands if operation.name == "convert_layout" else None,
    )
    for operation in result.kernel.body.walk():
        values = [*operation.results, *(a for r in operation.regions for a in r.arguments)]
        for value in values:
            if isinstance(value.type, TileType):
                value.type = value.type.with_layout(None)
    return result


@settings(max_examples=120, deadline=None, derandomize=True)
@given(programs())
def test_random_kernels_keep_their_meaning(module: Module) -> None:
    verify(module)
    assigned = assign_layouts(legalize_dot(module))
    verify(assigned)
    for flag in (0, 1):
        np.testing.assert_array_equal(results(assigned, flag), results(module, flag))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs())
def test_random_kernels_are_scheduled_by_the_rules(module: Module) -> None:
    verify(schedule_module(module))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(programs())
def test_the_input_module_is_left_alone(module: Module) -> None:
    before = print_module(module)
    assign_layouts(legalize_dot(module))
    assert print_module(module) == before


def softmax(m: int, n: int, num_warps: int) -> Module:
    program = TileProgram(num_warps)
    x = program.load(0, (m, n), columns_first=False)
    top = program.broadcast(program.expand(program.reduce(x, 1, "max"), 1), (m, n))
    e = program.unary("exp", program.binary("sub", x, top))
    total = program.broadcast(program.expand(program.reduce(e, 1, "sum"), 1), (m, n))
    program.store(program.binary("div", e, total), columns_first=False)
    return program.finish()


@pytest.mark.parametrize(
    ("m", "n", "num_warps"),
    [(1, 16384, 8), (1, 16384, 16), (1, 1024, 4), (4, 1024, 4), (64, 16, 4), (8, 128, 1)],
)
def test_rows_need_no_conversion_and_full_vectors(m: int, n: int, num_warps: int) -> None:
    scheduled = assign_layouts(softmax(m, n, num_warps))
    assert not operations(scheduled, "convert_layout")
    for access in (*operations(scheduled, "load"), *operations(scheduled, "store")):
        layout = layout_of(access)
        assert vector_width(layout, 1, limit=4) == 4
        assert layout.is_injective


def test_without_conversions_the_kernel_is_the_same_text() -> None:
    module = softmax(4, 1024, 4)
    stripped = without_layouts(assign_layouts(module))
    assert print_module(stripped) == print_module(dce(module))


def test_a_warp_takes_whole_rows_so_that_reductions_stay_inside() -> None:
    scheduled = schedule_module(softmax(4, 1024, 4))
    assert scheduled.attributes["shared_bytes"] == 0


def test_row_results_are_stored_from_the_slice_of_the_tile() -> None:
    program = TileProgram(4)
    x = program.load(0, (64, 64), columns_first=False)
    program.store(program.reduce(x, 1, "sum"), columns_first=False)
    scheduled = assign_layouts(program.finish())
    assert not operations(scheduled, "convert_layout")
    (reduce,) = operations(scheduled, "reduce")
    (store,) = operations(scheduled, "store")
    assert layout_of(store) == layout_of(reduce).slice(1)


def test_a_tile_with_fewer_elements_than_vectors_uses_every_lane() -> None:
    program = TileProgram(4)
    program.store(program.load(0, (128,), columns_first=False), columns_first=False)
    scheduled = assign_layouts(program.finish())
    (load,) = operations(scheduled, "load")
    assert layout_of(load).num_registers == 1
    assert layout_of(load).is_injective


def test_a_transposed_copy_converts_once_and_coalesces_both_sides() -> None:
    program = TileProgram(4)
    program.store(program.load(0, (64, 64), columns_first=False), columns_first=True)
    scheduled = assign_layouts(program.finish())
    assert len(operations(scheduled, "convert_layout")) == 1
    (load,), (store,) = operations(scheduled, "load"), operations(scheduled, "store")
    assert vector_width(layout_of(load), 1, limit=4) == 4
    assert vector_width(layout_of(store), 0, limit=4) == 4


def test_index_arithmetic_shared_by_two_layouts_is_computed_twice() -> None:
    program = TileProgram(4)
    line = program.build.value("arange", (), TileType((64,), I32), start=0, end=64)
    line.name = "line"
    rows, columns = (program.broadcast(program.expand(line, axis), (64, 64)) for axis in (1, 0))
    square = program.binary("mul", rows, columns)
    x = program.load(0, (64, 64), columns_first=False)
    values = program.build.value("cast", (square,), x.type)
    program.store(program.binary("add", x, values), columns_first=False)
    module = program.finish()
    scheduled = assign_layouts(module)
    assert not operations(scheduled, "convert_layout")
    shared = [o for o in operations(scheduled, "arange") if o.result.name == "line"]
    assert len({o.result.type for o in shared}) == len(shared) == 2


def test_a_loop_carried_accumulator_has_the_layout_of_what_it_adds() -> None:
    program = TileProgram(4)
    x = program.load(0, (32, 64), columns_first=False)
    zeros = program.splat(program.build.value("constant", (), F32, value=0.0), (32, 64))
    program.store(program.loop(zeros, x, "add"), columns_first=False)
    scheduled = assign_layouts(program.finish())
    assert not operations(scheduled, "convert_layout")
    (loop,) = operations(scheduled, "for")
    (load,) = operations(scheduled, "load")
    carried = loop.results[0].type
    assert isinstance(carried, TileType)
    assert carried.layout == layout_of(load)


def test_conversions_of_what_a_loop_uses_stand_outside() -> None:
    program = TileProgram(4)
    x = program.load(0, (64, 64), columns_first=False)
    y = program.load(1, (64, 64), columns_first=True)
    program.store(program.loop(x, y, "add"), columns_first=False)
    scheduled = assign_layouts(program.finish())
    (loop,) = operations(scheduled, "for")
    assert len(operations(scheduled, "convert_layout")) == 1
    assert not [o for o in loop.regions[0].walk() if o.name == "convert_layout"]


def test_a_kernel_with_calls_is_refused() -> None:
    module = softmax(4, 64, 4)
    module.functions["other"] = Function("other", Block())
    with pytest.raises(InternalCompilerError, match="inlined kernel"):
        assign_layouts(module)


@pytest.mark.parametrize(
    "statement",
    ["tl.store(x, tl.sum(tl.zeros(B, tl.float32)))", "tl.atomic_add(at, 1.0)", "tl.store(at, 1.0)"],
)
def test_tile_of_which_a_thread_would_hold_too_much_is_told_where_it_is_used(
    statement: str, tmp_path: Path
) -> None:
    text = f"""
    @tl.kernel
    def k(x, B: tl.constexpr):
        at = x + tl.arange(0, B)
        a = {statement}
    """
    kernel = load_kernel(tmp_path, text)

    def scheduled(block: int) -> str:
        signature = signature_of(kernel, {"x": "*f32", "B": block}, num_warps=1)
        return driver.show(kernel, signature, "scheduled")

    assert "return" in scheduled(32 * MAX_ELEMENTS)
    with pytest.raises(KernelValueError, match="gives each thread 2048 elements here") as caught:
        scheduled(64 * MAX_ELEMENTS)
    assert caught.value.locations[0].line == 4


@pytest.mark.parametrize("axis", [0, 1])
def test_scan_of_what_was_flat_before_has_a_layout(axis: int, tmp_path: Path) -> None:
    text = f"""
    @tl.kernel
    def k(x, o, M: tl.constexpr, N: tl.constexpr):
        v = tl.reshape(tl.load(x + tl.arange(0, M * N)), (M, N))
        tl.store(o + tl.arange(0, M * N), tl.ravel(tl.cumsum(v, {axis})))
    """
    kernel = load_kernel(tmp_path, text)
    signature = signature_of(kernel, {"x": "*f32", "o": "*f32", "M": 16, "N": 64})
    assert "scan" in driver.show(kernel, signature, "scheduled")
