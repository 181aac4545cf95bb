"""Reductions and layout conversions, executed: values, order of warps, barriers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from helpers.emitted import ORDERS, apply_emitted, run_scheduled
from helpers.kernel_source import load_kernel, signature_of
from helpers.layouts import layout_pairs
from helpers.ptx_interpreter import Order
from helpers.tile_operation import Array, operation_module
from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64, int8, int32, int64
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.types import PointerType, ScalarType, TileType
from tilewright_compiler.layout import convert, flip, reduce
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.allocate_shared import allocate_shared
from tilewright_compiler.schedule.insert_barriers import insert_barriers
from tilewright_compiler.schedule.plan import schedule_module


def _store_flat(builder: Builder, out: Value, value: Value, layout: LinearLayout) -> None:
    """Store a tile to contiguous memory."""
    flat = layout.reshape((layout.size,))
    dtype = value.type.element.dtype  # type: ignore[union-attr]  # only tiles come here
    element = PointerType(dtype)
    index = TileType((layout.size,), ScalarType(int32), flat)
    range_ = builder.value("arange", [], index, start=0, end=layout.size)
    pointers = builder.value("splat", [out], TileType((layout.size,), element, flat))
    moved = builder.value("addptr", [pointers, range_], pointers.type)
    row = builder.value("reshape", [value], TileType((layout.size,), ScalarType(dtype), flat))
    builder.create("store", [moved, row], cache="", eviction="")


def _conversion(source: LinearLayout, target: LinearLayout, dtype: DType) -> Module:
    """Return a kernel that makes the flat index in `source` and stores it from `target`."""
    out = Value(PointerType(dtype), "out")
    builder = Builder(Block((out,)))
    flat = source.reshape((source.size,))
    index = TileType((source.size,), ScalarType(int32), flat)
    range_ = builder.value("arange", [], index, start=0, end=source.size)
    cast = builder.value("cast", [range_], TileType(index.shape, ScalarType(dtype), flat))
    tile = builder.value("reshape", [cast], TileType(source.shape, ScalarType(dtype), source))
    moved = builder.value("convert_layout", [tile], tile.type.with_layout(target))  # type: ignore[union-attr]
    _store_flat(builder, out, moved, target)
    builder.create("return")
    signature = KernelSignature((("out", Pointer(dtype)),), num_warps=source.num_warps)
    return allocate_shared(Module({"k": Function("k", builder.block, is_kernel=True)}, signature))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(pair=layout_pairs())
def test_conversion_moves_every_element(pair: tuple[LinearLayout, LinearLayout]) -> None:
    source, target = pair
    out = np.full(source.size, -1, np.int32)
    run_scheduled(_conversion(source, target, int32), [out], order="descending")
    np.testing.assert_array_equal(out, np.arange(source.size))


# Within a thread, within a warp by shuffles, and across warps through shared memory.
_ROWS = LinearLayout((32, 16), (1, 2), (4, 8, 16, 32, 64), (128, 256))
_TARGETS = {
    "registers": LinearLayout((32, 16), (2, 1), (4, 8, 16, 32, 64), (128, 256)),
    "shuffles": LinearLayout((32, 16), (4, 8), (1, 2, 16, 32, 64), (128, 256)),
    "shared": LinearLayout((32, 16), (128, 256), (16, 32, 64, 1, 2), (4, 8)),
}


@pytest.mark.parametrize("dtype", [int8, float16, bfloat16, float32, int64, float64], ids=str)
@pytest.mark.parametrize("target", _TARGETS)
def test_conversion_of_every_width(target: str, dtype: DType) -> None:
    out = np.zeros(512, to_numpy(dtype))
    run_scheduled(_conversion(_ROWS, _TARGETS[target], dtype), [out])
    np.testing.assert_array_equal(out, np.arange(512).astype(to_numpy(dtype)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1024), (16, 64), (256, 4), (2, 2)], ids=str)
def test_reduce_along_each_axis(shape: tuple[int, int], axis: int, order: Order) -> None:
    values = np.random.default_rng(3).integers(-9, 9, shape).astype(np.float32)
    got = _reduce(values, axis, "sum", order=order)
    np.testing.assert_array_equal(got, values.sum(axis))  # small integers: exact in any order


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, int8, int64], ids=str)
def test_extremes_of_every_dtype(kind: str, dtype: DType) -> None:
    values = np.random.default_rng(4).integers(-100, 100, (4, 512)).astype(to_numpy(dtype))
    got = _reduce(values, 1, kind)
    np.testing.assert_array_equal(got, getattr(values, kind)(axis=1))


@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_nan_reaches_the_result(kind: str) -> None:
    values = np.ones((2, 512), np.float32)
    values[1, 300] = np.nan
    got = _reduce(values, 1, kind)
    assert not np.isnan(got[0])
    assert np.isnan(got[1])


def test_order_of_a_sum_does_not_depend_on_the_order_of_warps() -> None:
    values = np.random.default_rng(5).standard_normal((1, 4096)).astype(np.float32)
    sums = {order: _reduce(values, 1, "sum", order=order)[0] for order in ORDERS}
    assert len(set(sums.values())) == 1


def _reduce(values: Array, axis: int, kind: str, *, order: Order = "lockstep") -> Array:
    shape = values.shape[:axis] + values.shape[axis + 1 :]
    return apply_emitted("reduce", (values,), shape=shape, axis=axis, kind=kind, order=order)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let plans have a few bytes of shared memory only, so that tiles go through it in rounds."""
    most = 1024
    for module in (convert, flip, reduce):
        monkeypatch.setattr(module, "BASELINE_SHARED_BYTES", most)
    plans = (convert._plan, flip.plan_flip, reduce.plan_reduce)
    for plan in plans:
        plan.cache_clear()
    yield most
    for plan in plans:
        plan.cache_clear()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [int8, float16, int32, float64], ids=str)
def test_a_tile_that_is_converted_in_rounds(dtype: DType, order: Order, room: int) -> None:
    # Rows of 16 stay in registers on both sides; warps exchange.
    source = LinearLayout((16, 128), (128, 256, 512, 1024), (1, 2, 4, 8, 16), (32, 64))
    target = LinearLayout((16, 128), (256, 128, 512, 1024), (32, 64, 1, 2, 4), (8, 16))
    arrays = {"out": np.zeros(2048, to_numpy(dtype))}
    _check(_conversion(source, target, dtype), arrays, np.arange(2048), order, room)


@pytest.mark.parametrize("order", ORDERS)
def test_a_tile_that_is_flipped_in_rounds(order: Order, room: int) -> None:
    values = np.random.default_rng(6).integers(-99, 99, (2, 2048)).astype(np.int32)
    module, arrays = operation_module("flip", (values,), axis=1)
    _check(schedule_module(module), arrays, values[:, ::-1], order, room)


@pytest.mark.parametrize("order", ORDERS)
def test_a_tile_that_is_reduced_in_rounds(order: Order, room: int) -> None:
    # Each of four warps has a row, in whose registers there are eight sums of its own.
    layout = LinearLayout((4, 256), (1, 2, 4), (8, 16, 32, 64, 128), (256, 512))
    plan = reduce.plan_reduce(layout, 0, size_bytes=4)
    assert plan.across_warps is not None
    assert len(plan.across_warps.exchange.rounds) == 4
    out = Value(PointerType(int32), "out")
    builder = Builder(Block((out,)))
    flat = TileType((1024,), ScalarType(int32), layout.reshape((1024,)))
    range_ = builder.value("arange", [], flat, start=0, end=1024)
    tile = builder.value("reshape", [range_], TileType((4, 256), ScalarType(int32), layout))
    type_ = TileType((256,), ScalarType(int32), plan.result)
    result = builder.value("reduce", [tile], type_, axis=0, kind="sum")
    _store_flat(builder, out, result, plan.result)
    builder.create("return")
    signature = KernelSignature((("out", Pointer(int32)),), num_warps=4)
    module = Module({"k": Function("k", builder.block, is_kernel=True)}, signature)
    arrays = {"out": np.zeros(256, np.int32)}
    expected = np.arange(1024).reshape(4, 256).sum(0)
    _check(allocate_shared(module), arrays, expected, order, room)


HALVES = """
@tl.kernel
def halves(x, y, out):
    rows, columns, inner = tl.arange(0, 128), tl.arange(0, 256), tl.arange(0, 16)
    a = tl.load(x + rows[:, None] * 16 + inner[None, :])
    b = tl.load(y + inner[:, None] * 256 + columns[None, :])
    pairs = tl.permute(tl.reshape(tl.dot(a, b), (128, 2, 128)), (0, 2, 1))
    left, right = tl.split(pairs)
    place = rows[:, None] * 128 + tl.arange(0, 128)[None, :]
    tl.store(out + place, left.to(tl.float16))
    tl.store(out + 128 * 128 + place, right.to(tl.float16))
"""


def test_halves_of_a_product_of_more_than_shared_memory(tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, HALVES)
    signature = signature_of(kernel, dict.fromkeys(("x", "y", "out"), "*f16"), num_warps=8)
    module = schedule_module(optimize(lower_kernel(kernel, signature)))
    random = np.random.default_rng(8)
    x, y = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 16), (16, 256)))
    arrays = {"x": x, "y": y, "out": np.zeros((2, 128, 128), np.float16)}
    scheduled.run(module, grid=(1, 1, 1), arguments=arrays)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_array_equal(arrays["out"], [expected[:, :128], expected[:, 128:]])


def _check(
    module: Module, arrays: dict[str, Array], expected: Array, order: Order, room: int
) -> None:
    """Run a schedule on the CPU, and its PTX."""
    assert 0 < module.attributes["shared_bytes"] <= room
    scheduled.run(module, grid=(1, 1, 1), arguments=arrays)
    np.testing.assert_array_equal(arrays["out"], expected.astype(arrays["out"].dtype))
    arrays["out"][...] = 0
    run_scheduled(module, list(arrays.values()), order=order)
    np.testing.assert_array_equal(arrays["out"], expected.astype(arrays["out"].dtype))


_LOOPED = """signature (x:*i32, out:*i32, n:i64) general num_warps=4 num_stages=3
attributes {{shared_bytes = {bytes}}}

kernel @looped(%x: ptr<i32>, %out: ptr<i32>, %n: i64) {{
  %range = arange {{start = 0, end = 128}} : tile<128xi32, {layout}>
  %zero = constant {{value = 0}} : i64
  %one = constant {{value = 1}} : i64
  %first = constant {{value = 0}} : i32
  %total = for %zero, %n, %one, %first : i32 (%i: i64, %sum: i32) {{
    %k = cast %i : i32
    %ks = splat %k : tile<128xi32, {layout}>
    %scaled = mul %range, %ks : tile<128xi32, {layout}>
    %a = reduce %scaled {{axis = 0, kind = "sum", shared_offset = 0}} : i32
    %as = splat %a : tile<128xi32, {layout}>
    %shifted = add %range, %as : tile<128xi32, {layout}>
    %b = reduce %shifted {{axis = 0, kind = "max", shared_offset = {offset}}} : i32
    %next = add %sum, %b : i32
    yield %next
  }}
  %p = addptr %out, %zero : ptr<i32>
  store %p, %total {{cache = "", eviction = ""}}
  return
}}
"""
_LANES = "#layout<128; r=; l=1,2,4,8,16; w=32,64>"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("offset", "barriers"), [(0, 4), (16, 2)], ids=["same place", "own places"]
)
def test_exchanges_in_a_loop_wait_for_each_other(offset: int, barriers: int, order: Order) -> None:
    text = _LOOPED.format(layout=_LANES, offset=offset, bytes=offset + 16)
    module = insert_barriers(parse_module(text))
    out = np.zeros(1, np.int32)
    run = run_scheduled(module, [np.zeros(1, np.int32), out, 6], order=order)
    assert out[0] == sum(127 * 64 * i + 127 for i in range(6))
    assert run.barriers <= barriers * 6
