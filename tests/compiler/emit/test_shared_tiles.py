"""Tiles in shared memory and asynchronous copies, executed: rings, views, masks, waiting."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helpers.emitted import ORDERS, run_scheduled
from helpers.ptx_interpreter import Order, PtxFault
from helpers.tile_operation import HINTS, Array
from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    int64,
)
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    SharedType,
    TileType,
    TokenType,
    like,
)
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.layout.atoms import MMA_16, dot_layouts
from tilewright_compiler.layout.blocked import blocked
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.swizzle import swizzled

_ROWS = blocked((32, 64), (1, 0), vector=8, num_warps=4)


class _Kernel:
    """A kernel in the making that reads `x` and writes `out`, tiles that lie row by row."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.x, self.out = (Value(PointerType(dtype), name) for name in ("x", "out"))
        self.builder = Builder(Block((self.x, self.out)))
        self.shared_bytes = 0

    def pointers(self, argument: Value, layout: LinearLayout, *, start: int = 0) -> Value:
        size = layout.size
        flat = TileType((size,), ScalarType(int32), layout.reshape((size,)))
        index = self.builder.value("arange", [], flat, start=start, end=start + size)
        tile = TileType(layout.shape, ScalarType(int32), layout)
        moved = self.builder.value("reshape", [index], tile)
        base = self.builder.value("splat", [argument], like(tile, PointerType(self.dtype)))
        return self.builder.value("addptr", [base, moved], base.type)

    def load(self, layout: LinearLayout, *, start: int = 0) -> Value:
        type_ = TileType(layout.shape, ScalarType(self.dtype), layout)
        pointers = self.pointers(self.x, layout, start=start)
        return self.builder.value("load", [pointers], type_, **HINTS)

    def store(self, value: Value, layout: LinearLayout) -> None:
        self.builder.create("store", [self.pointers(self.out, layout), value], **HINTS)

    def shared(
        self, shape: tuple[int, ...], order: tuple[int, ...], *, slots: int | None = None
    ) -> Value:
        layout = swizzled(shape, order, size_bytes=self.dtype.size_bytes)
        type_ = SharedType(shape, self.dtype, layout, slots)
        offset, self.shared_bytes = self.shared_bytes, self.shared_bytes + type_.size_bytes
        return self.builder.value("alloc_shared", [], type_, shared_offset=offset)

    def slot(self, ring: Value, index: int) -> Value:
        number = self.builder.value("constant", [], ScalarType(int32), value=index)
        assert isinstance(ring.type, SharedType)
        type_ = SharedType(ring.type.shape, self.dtype, ring.type.layout)
        return self.builder.value("shared_slot", [ring, number], type_, position=index)

    def read(self, tile: Value, layout: LinearLayout) -> Value:
        type_ = TileType(layout.shape, ScalarType(self.dtype), layout)
        return self.builder.value("shared_load", [tile], type_)

    def copy(self, tile: Value, pointers: Value, *mask: Value) -> None:
        self.builder.create("async_copy", [pointers, tile, *mask], **HINTS)

    def commit(self) -> Value:
        return self.builder.value("async_commit", [], TokenType())

    def wait(self, token: Value, *, pending: int) -> None:
        self.builder.create("async_wait", [token], pending=pending)

    def barrier(self) -> None:
        self.builder.create("barrier")

    def module(self, num_warps: int = 4) -> Module:
        self.builder.create("return")
        signature = KernelSignature(
            (("x", Pointer(self.dtype, aligned=True)), ("out", Pointer(self.dtype))),
            num_warps=num_warps,
        )
        function = Function("k", self.builder.block, is_kernel=True)
        module = Module({"k": function}, signature, {"shared_bytes": self.shared_bytes})
        verify(module)
        return module


def _numbers(dtype: DType, shape: tuple[int, ...]) -> Array:
    return (np.arange(np.prod(shape)) % 127).reshape(shape).astype(to_numpy(dtype))


@pytest.mark.parametrize("order", [(1, 0), (0, 1)], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", [int1, int8, float16, bfloat16, float32, int64], ids=str)
def test_a_tile_goes_through_shared_memory(dtype: DType, order: tuple[int, int]) -> None:
    kernel = _Kernel(dtype)
    target = LinearLayout((32, 64), (1024, 1, 512, 2), (64, 128, 4, 256, 32), (8, 16))
    tile = kernel.shared((32, 64), order)
    kernel.builder.create("shared_store", [kernel.load(_ROWS), tile])
    kernel.barrier()
    kernel.store(kernel.read(tile, target), target)
    x = _numbers(dtype, (32, 64))
    out = np.zeros_like(x)
    run_scheduled(kernel.module(), [x, out], order="descending")
    np.testing.assert_array_equal(out, x)


def test_replicas_read_what_others_hold() -> None:
    kernel = _Kernel(float32)
    target = LinearLayout((8, 8), (1, 0, 2, 2), (4, 8, 16, 0, 32), (0, 4))
    tile = kernel.shared((8, 8), (1, 0))
    source = blocked((8, 8), (1, 0), vector=1, num_warps=4)
    kernel.builder.create("shared_store", [kernel.load(source), tile])
    kernel.barrier()
    kernel.store(kernel.read(tile, target), target)
    x = _numbers(float32, (8, 8))
    out = np.zeros_like(x)
    run_scheduled(kernel.module(), [x, out])
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("is_transposed", [False, True], ids=["rows", "columns"])
def test_layouts_of_dots_are_read_as_matrices(is_transposed: bool) -> None:
    kernel = _Kernel(float16)
    layouts = dot_layouts(MMA_16, shape=(32, 16, 64), warps=(2, 1), num_warps=4)
    tile = kernel.shared((32, 64), (0, 1) if is_transposed else (1, 0))
    kernel.builder.create("shared_store", [kernel.load(_ROWS), tile])
    kernel.barrier()
    kernel.store(kernel.read(tile, layouts.a), layouts.a)
    x = _numbers(float16, (32, 64))
    out, module = np.zeros_like(x), kernel.module()
    run_scheduled(module, [x, out])
    np.testing.assert_array_equal(out, x)
    ptx = lower_to_ptx(emit_module(module)).text
    assert ("ldmatrix.sync.aligned.m8n8.x4.trans" in ptx) is is_transposed
    assert "ld.shared" not in ptx


def test_a_transposed_view_moves_nothing() -> None:
    kernel = _Kernel(float32)
    tile = kernel.shared((32, 64), (1, 0))
    kernel.builder.create("shared_store", [kernel.load(_ROWS), tile])
    kernel.barrier()
    assert isinstance(tile.type, SharedType)
    moved = tile.type.layout.transpose((1, 0))
    view = kernel.builder.value(
        "shared_transpose", [tile], SharedType((64, 32), float32, moved), order=(1, 0)
    )
    target = blocked((64, 32), (1, 0), vector=4, num_warps=4)
    kernel.store(kernel.read(view, target), target)
    x = _numbers(float32, (32, 64))
    out = np.zeros((64, 32), np.float32)
    run_scheduled(kernel.module(), [x, out])
    np.testing.assert_array_equal(out, x.T)


def _ring(*, waits: tuple[int, ...], order: Order) -> tuple[Array, Array]:
    """Copy three tiles to a ring, wait so that so many groups may be left, and read each."""
    kernel = _Kernel(float32)
    layout = blocked((16, 32), (1, 0), vector=4, num_warps=4)
    ring = kernel.shared((16, 32), (1, 0), slots=3)
    tokens = []
    for index in range(3):
        pointers = kernel.pointers(kernel.x, layout, start=512 * index)
        kernel.copy(kernel.slot(ring, index), pointers)
        tokens.append(kernel.commit())
    total: Value | None = None
    reader = blocked((16, 32), (0, 1), vector=1, num_warps=4)
    for index, pending in enumerate(waits):
        kernel.wait(tokens[index], pending=pending)
        kernel.barrier()
        tile = kernel.read(kernel.slot(ring, index), reader)
        total = tile if total is None else kernel.builder.value("add", [total, tile], tile.type)
    assert total is not None
    kernel.store(total, reader)
    x = np.arange(3 * 512, dtype=np.float32).reshape(3, 16, 32)
    out = np.zeros((16, 32), np.float32)
    run_scheduled(kernel.module(), [x, out], order=order)
    return out, x.sum(axis=0)


@pytest.mark.parametrize("order", ORDERS)
def test_groups_arrive_when_they_are_waited_for(order: Order) -> None:
    got, want = _ring(waits=(2, 1, 0), order=order)
    np.testing.assert_array_equal(got, want)


def test_a_group_that_is_not_waited_for_is_not_there() -> None:
    got, want = _ring(waits=(2, 1, 1), order="lockstep")
    assert (got != want).all()


@pytest.mark.parametrize(
    ("dtype", "vector", "instruction"),
    [
        (bfloat16, 8, "cp.async.cg.shared.global [%rd0], [%rd0], 16"),
        (float32, 2, "cp.async.ca.shared.global [%rd0], [%rd0], 8"),
        (int8, 4, "cp.async.ca.shared.global [%rd0], [%rd0], 4"),
        (float64, 1, "cp.async.ca.shared.global [%rd0], [%rd0], 8"),
    ],
    ids=str,
)
def test_copies_of_every_width(dtype: DType, vector: int, instruction: str) -> None:
    kernel = _Kernel(dtype)
    layout = blocked((32, 64), (1, 0), vector=vector, num_warps=4)
    tile = kernel.shared((32, 64), (1, 0))
    kernel.copy(tile, kernel.pointers(kernel.x, layout))
    kernel.wait(kernel.commit(), pending=0)
    kernel.barrier()
    kernel.store(kernel.read(tile, _ROWS), _ROWS)
    x = _numbers(dtype, (32, 64))
    out, module = np.zeros_like(x), kernel.module()
    run_scheduled(module, [x, out])
    np.testing.assert_array_equal(out, x)
    ptx = re.sub(r"\[%rd\d+(\+\d+)?\]", "[%rd0]", lower_to_ptx(emit_module(module)).text)
    assert ptx.count(f"{instruction};") == 2048 // 128 // vector


def _masked(layout: LinearLayout, limit: int) -> Module:
    """Copy the elements whose index along the row is below `limit`."""
    kernel = _Kernel(float32)
    builder = kernel.builder
    tile = kernel.shared((32, 64), (1, 0))
    row = TileType((64,), ScalarType(int32), layout.slice(0))
    columns = builder.value("arange", [], row, start=0, end=64)
    bound = builder.value("constant", [], ScalarType(int32), value=limit)
    bounds = builder.value("splat", [bound], row)
    inside = builder.value("cmp", [columns, bounds], like(row, ScalarType(int1)), predicate="lt")
    wide = TileType((1, 64), ScalarType(int1), layout.slice(0).expand_dims(0))
    mask = builder.value("expand_dims", [inside], wide, axis=0)
    mask = builder.value("broadcast", [mask], TileType((32, 64), ScalarType(int1), layout))
    kernel.copy(tile, kernel.pointers(kernel.x, layout), mask)
    kernel.wait(kernel.commit(), pending=0)
    kernel.barrier()
    kernel.store(kernel.read(tile, _ROWS), _ROWS)
    return kernel.module()


def test_zeros_arrive_where_the_mask_is_false() -> None:
    x = np.arange(1, 2049, dtype=np.float32).reshape(32, 64)
    out = np.full_like(x, np.nan)
    run_scheduled(_masked(blocked((32, 64), (1, 0), vector=4, num_warps=4), 20), [x, out])
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 20, x, 0))


def test_nothing_is_read_where_the_mask_is_false() -> None:
    layout = blocked((32, 64), (1, 0), vector=4, num_warps=4)
    out = np.zeros((32, 64), np.float32)
    # Only the first 16 columns of the last row lie in memory.
    x = np.ones(31 * 64 + 16, np.float32)
    run_scheduled(_masked(layout, 16), [x, out])
    assert (out[:, :16] == 1).all()
    with pytest.raises(PtxFault, match=r"cp\.async|access of 16 bytes"):
        run_scheduled(_masked(layout, 20), [x, out])


def test_a_mask_that_cuts_a_vector_is_refused() -> None:
    layout = blocked((32, 64), (1, 0), vector=4, num_warps=4)
    with pytest.raises(InternalCompilerError, match="several masks"):
        emit_module(_masked(layout, 18))


def test_copies_that_the_hardware_lacks_are_refused() -> None:
    kernel = _Kernel(float16)
    layout = blocked((32, 64), (0, 1), vector=1, num_warps=4)
    kernel.copy(kernel.shared((32, 64), (1, 0)), kernel.pointers(kernel.x, layout))
    with pytest.raises(InternalCompilerError, match="asynchronous copy of 2 bytes"):
        emit_module(kernel.module())


def test_a_tile_without_a_place_is_refused() -> None:
    kernel = _Kernel(float32)
    kernel.shared((32, 64), (1, 0))
    kernel.builder.block.operations[-1].attributes.pop("shared_offset")
    with pytest.raises(InternalCompilerError, match="has no place"):
        emit_module(kernel.module())
