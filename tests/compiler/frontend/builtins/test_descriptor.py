"""Tensor descriptors: what blocks read and write, at the edges, joined, carried and passed on; and
that pointers and masks do the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright.errors import InterpreterError, KernelTypeError
from tilewright_compiler.analysis.alias import written_arguments
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

COPY = """
@tl.kernel
def k(x, out, rows, columns, row, column):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], block_shape=[4, 8])
    values = source.load([row, column])
    tl.store(out + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :], values)
"""
PLACES = [(0, 0), (3, 7), (5, 10), (6, 0), (100, 0), (-2, 3), (1, -3), (-9, -9)]


def run_both(directory: Path, text: str, arguments: dict[str, Any], **options: Any) -> None:
    """Run a kernel on tile IR and under its schedule, and demand equal results."""
    copies = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    run_text(directory, text, arguments, **options)
    types: dict[str, Any] = {
        name: f"*{'i64' if value.dtype == np.int64 else 'f32'}"
        if isinstance(value, np.ndarray)
        else "i64"
        for name, value in copies.items()
    }
    module = schedule_module(optimize(lower_text(directory, text, **types)))
    assert "descriptor" not in print_module(module)
    grid = options.get("grid", (1, 1, 1))
    scheduled.run(module, grid=grid, arguments=copies)
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(copies[name], value)


@pytest.mark.parametrize(("row", "column"), PLACES)
def test_what_is_outside_reads_as_zero(row: int, column: int, tmp_path: Path) -> None:
    x = np.arange(1, 7 * 11 + 1, dtype=np.float32).reshape(7, 11)
    out = np.full((4, 8), -1, np.float32)
    arguments = {"x": x, "out": out, "rows": 7, "columns": 11, "row": row, "column": column}
    run_both(tmp_path, COPY, arguments)
    expected = np.zeros((4, 8), np.float32)
    for i in range(4):
        for j in range(8):
            if 0 <= row + i < 7 and 0 <= column + j < 11:
                expected[i, j] = x[row + i, column + j]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("row", "column"), PLACES)
def test_what_is_outside_is_not_written(row: int, column: int, tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out, rows, columns, row, column):
    target = tl.make_tensor_descriptor(out, (rows, columns), (16, 1), (4, 8))
    target.store((row, column), tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
"""
    out = np.full((9, 16), -1, np.int64)
    arguments = {"out": out, "rows": 7, "columns": 11, "row": row, "column": column}
    run_both(tmp_path, text, arguments)
    for i in range(9):
        for j in range(16):
            inside = i < 7 and j < 11 and 0 <= i - row < 4 and 0 <= j - column < 8
            assert out[i, j] == ((i - row) * 8 + j - column if inside else -1)


ADDITION = """
@tl.kernel
def k(out, rows, columns, row, column):
    target = tl.make_tensor_descriptor(out, [rows, columns], [16, 1], [4, 8])
    target.atomic_add([row, column], tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
    tl.atomic_add_tensor_descriptor(target, [row, column], 1)
"""


def test_nothing_is_added_at_negative_offsets(tmp_path: Path) -> None:
    arguments = {"out": np.zeros((9, 16), np.int64), "rows": 7, "columns": 11}
    with pytest.raises(InterpreterError, match="does atomic_add on a block at offset -1"):
        run_text(tmp_path, ADDITION, {**arguments, "row": 0, "column": -1})


@pytest.mark.parametrize(("row", "column"), [place for place in PLACES if min(place) >= 0])
def test_programs_add_to_what_is_inside(row: int, column: int, tmp_path: Path) -> None:
    text = ADDITION
    out = np.full((9, 16), -1, np.int64)
    arguments = {"out": out, "rows": 7, "columns": 11, "row": row, "column": column}
    run_both(tmp_path, text, arguments, grid=(3, 1, 1))
    for i in range(9):
        for j in range(16):
            inside = i < 7 and j < 11 and 0 <= i - row < 4 and 0 <= j - column < 8
            assert out[i, j] == (3 * ((i - row) * 8 + j - column + 1) if inside else 0) - 1


def test_bytes_are_not_added(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out, n):
    tl.make_tensor_descriptor(out, [n], [1], [16]).atomic_add([0], 1)
"""
    with pytest.raises(KernelTypeError, match="16, 32 or 64 bits, got a descriptor of i8"):
        lower_text(tmp_path, text, out="*i8", n="i64")


def test_bits_of_floats_are_left_alone(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out, n):
    tl.make_tensor_descriptor(out, [n], [1], [16]).atomic_xor([0], 1)
"""
    says = "tl.atomic_xor_tensor_descriptor takes integers, got a descriptor of f32"
    with pytest.raises(KernelTypeError, match=says):
        lower_text(tmp_path, text, out="*f32", n="i64")


def test_a_descriptor_knows_what_it_is_of(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out, n):
    d = tl.make_tensor_descriptor(out, [2, n], strides=[n + 1, 1], block_shape=[2, 4])
    tl.static_assert(d.dtype == tl.int64)
    rows: tl.constexpr = d.block_shape[0]
    tl.static_assert(rows == 2)
    tl.store_tensor_descriptor(d, [0, 0], d.shape[1] * 100 + d.strides[0] * 10 + d.strides[1])
"""
    out = np.zeros(10, np.int64)
    run_both(tmp_path, text, {"out": out, "n": 4})
    np.testing.assert_array_equal(out, [451] * 4 + [0] + [451] * 4 + [0])


def test_five_axes(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out):
    a = tl.make_tensor_descriptor(
        x, [2, 3, 3, 4, 5], [180, 60, 20, 5, 1], block_shape=[1, 2, 2, 4, 4]
    )
    b = tl.make_tensor_descriptor(out, [2, 2, 4, 4], [32, 16, 4, 1], block_shape=[2, 2, 4, 4])
    b.store([0, 0, 0, 0], tl.reshape(a.load([1, 2, 1, 0, 2]), (2, 2, 4, 4)))
"""
    x, out = np.arange(360), np.full((2, 2, 4, 4), -1)
    run_both(tmp_path, text, {"x": x, "out": out})
    expected = np.zeros((2, 2, 4, 4), np.int64)
    expected[:1, :, :, :3] = x.reshape(2, 3, 3, 4, 5)[1, 2:4, 1:3, :, 2:6]
    np.testing.assert_array_equal(out, expected)


MATMUL = """
@tl.kernel
def maker(x, rows, columns, BLOCK: tl.constexpr):
    return tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [BLOCK, BLOCK]), rows

@tl.kernel
def add_product(total, a, b, row, column, depth):
    for start in range(0, depth, a.block_shape[1]):
        total += tl.dot(a.load([row, start]), b.load([start, column]))
    return total

@tl.kernel
def k(x, y, out, m, n, depth, BLOCK: tl.constexpr = 16):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    (a, _), (b, _), (c, _) = maker(x, m, depth, BLOCK), maker(y, depth, n, BLOCK), maker(
        out, m, n, BLOCK
    )
    c.store([row, column], add_product(tl.zeros((16, 16), tl.float32), a, b, row, column, depth))
"""


def test_kernels_take_and_give_descriptors(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-4, 4, (37, 50)).astype(np.float32)
    y = random.integers(-4, 4, (50, 21)).astype(np.float32)
    out = np.full((37, 21), np.nan, np.float32)
    arguments = {"x": x, "y": y, "out": out, "m": 37, "n": 21, "depth": 50}
    run_both(tmp_path, MATMUL, arguments, grid=(3, 2, 1))
    np.testing.assert_array_equal(out, x @ y)


def test_descriptors_join_at_branches_and_change_in_loops(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out, n):
    d = tl.make_tensor_descriptor(x, [4], [1], [4])
    e = d
    if n > 1:
        d = tl.make_tensor_descriptor(x + 4, [n], [1], [4])
    for i in range(n):
        e = tl.make_tensor_descriptor(x + 8 + i, [3], [1], [4])
    f = d if n > 2 else e
    tl.store(out + tl.arange(0, 4), d.load([0]) * 1000000 + e.load([0]) * 1000 + f.load([0]))
"""
    for n, (d, e, f) in {
        0: ([1, 2, 3, 4],) * 3,
        1: ([1, 2, 3, 4], [9, 10, 11, 0], [9, 10, 11, 0]),
        2: ([5, 6, 0, 0], [10, 11, 12, 0], [10, 11, 12, 0]),
        3: ([5, 6, 7, 0], [11, 12, 13, 0], [5, 6, 7, 0]),
    }.items():
        x, out = np.arange(1, 17), np.zeros(4, np.int64)
        run_both(tmp_path, text, {"x": x, "out": out, "n": n})
        expected = np.array(d) * 1000000 + np.array(e) * 1000 + np.array(f)
        np.testing.assert_array_equal(out, expected)


def test_what_is_written_through_a_descriptor_is_an_argument_written(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out, n):
    a = tl.make_tensor_descriptor(x, [n], [1], [16])
    b = tl.make_tensor_descriptor(out, [n], [1], [16])
    b.store([0], a.load([0]))
"""
    module = lower_text(tmp_path, text, x="*f32", out="*f32", n="i64")
    assert written_arguments(module) == ("out",)
    assert written_arguments(schedule_module(optimize(module))) == ("out",)


def test_blocks_of_a_loop_are_copied_ahead_and_addresses_leave_it(tmp_path: Path) -> None:
    text = """
@tl.kernel(divisible=("n", "k"))
def k(x, y, out, n, k):
    a = tl.make_tensor_descriptor(x, [n, k], [k, 1], [64, 32])
    b = tl.make_tensor_descriptor(y, [k, n], [n, 1], [32, 64])
    total = tl.zeros((64, 64), tl.float32)
    for start in range(0, k, 32):
        total = tl.dot(a.load([0, start]), b.load([start, 0]), total)
    tl.store(out + tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :], total)
"""
    types: dict[str, Any] = {"x": "*f16", "y": "*f16", "out": "*f32", "n": "i64", "k": "i64"}
    module = schedule_module(optimize(lower_text(tmp_path, text, specialization="fast", **types)))
    (loop,) = (o for o in module.kernel.body.operations if o.name == "for")
    names = [o.name for o in loop.walk()]
    assert names.count("async_copy") == 2
    assert "load" not in names
    assert "arange" not in names
