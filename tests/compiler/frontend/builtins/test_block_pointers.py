"""Block pointers: what windows read and write, moved, carried, passed on, and at the edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright_compiler.ir.printer import print_module

COPY = """
@tl.kernel
def k(x, out, rows, columns, row, column):
    source = tl.make_block_ptr(
        base=x, shape=(rows, columns), strides=(columns, 1), offsets=(row, column),
        block_shape=(4, 8), order=(1, 0),
    )
    values = tl.load(source, boundary_check=(0, 1), padding_option="{padding}")
    tl.store(out + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :], values)
"""


@pytest.mark.parametrize("padding", ["", "zero", "nan"])
@pytest.mark.parametrize(
    ("row", "column"), [(0, 0), (3, 7), (5, 10), (6, 0), (100, 0), (-2, 3), (1, -3), (-9, -9)]
)
def test_window_masks_what_is_outside(padding: str, row: int, column: int, tmp_path: Path) -> None:
    x = np.arange(1, 7 * 11 + 1, dtype=np.float32).reshape(7, 11)
    out = np.full((4, 8), -1, np.float32)
    arguments = {"x": x, "out": out, "rows": 7, "columns": 11, "row": row, "column": column}
    run_text(tmp_path, COPY.format(padding=padding), arguments)
    expected = np.full((4, 8), np.nan if padding == "nan" else 0, np.float32)
    for i in range(4):
        for j in range(8):
            if 0 <= row + i < 7 and 0 <= column + j < 11:
                expected[i, j] = x[row + i, column + j]
    np.testing.assert_array_equal(out, expected)


def test_store_writes_only_inside(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out, n):
    window = tl.make_block_ptr(out, (n,), (2,), (3,), (8,), (0,))
    tl.store(window, tl.arange(0, 8), boundary_check=(0,))
"""
    out = np.full(40, -1, np.int64)
    run_text(tmp_path, text, {"out": out, "n": 7})
    expected = np.full(40, -1)
    expected[6:14:2] = range(4)
    np.testing.assert_array_equal(out, expected)


def test_one_axis_may_be_checked(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out):
    window = tl.make_block_ptr(x, (3, 100), (4, 1), (0, 0), (4, 4), (1, 0))
    values = tl.load(window, boundary_check=(0,))
    tl.store(out + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], values)
"""
    x, out = np.arange(12, dtype=np.int32), np.full((4, 4), -1, np.int32)
    run_text(tmp_path, text, {"x": x, "out": out})
    np.testing.assert_array_equal(out[:3], x.reshape(3, 4))
    assert not out[3].any()


MATMUL = """
@tl.kernel
def next_windows(a, b, BLOCK: tl.constexpr):
    return tl.advance(a, (0, BLOCK)), tl.advance(b, [BLOCK, 0])

@tl.kernel
def k(x, y, out, m, n, depth, BLOCK: tl.constexpr = 16):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    a = tl.make_block_ptr(x, (m, depth), (depth, 1), (row, 0), (BLOCK, BLOCK), (1, 0))
    b = tl.make_block_ptr(y, (depth, n), (n, 1), (0, column), (BLOCK, BLOCK), (1, 0))
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(0, depth, BLOCK):
        total += tl.dot(tl.load(a, boundary_check=(0, 1)), tl.load(b, boundary_check=(0, 1)))
        a, b = next_windows(a, b, BLOCK)
    c = tl.make_block_ptr(out, (m, n), (n, 1), (row, column), (BLOCK, BLOCK), (1, 0))
    tl.store(c, total, boundary_check=(0, 1))
"""


def test_windows_move_through_loops_and_kernels(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-4, 4, (37, 50)).astype(np.float32)
    y = random.integers(-4, 4, (50, 21)).astype(np.float32)
    out = np.full((37, 21), np.nan, np.float32)
    arguments = {"x": x, "y": y, "out": out, "m": 37, "n": 21, "depth": 50}
    run_text(tmp_path, MATMUL, arguments, grid=(3, 2, 1))
    np.testing.assert_array_equal(out, x @ y)


def test_windows_join_at_branches(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out, n):
    a = tl.make_block_ptr(x, (8,), (1,), (0,), (4,), (0,))
    if n > 2:
        a = tl.advance(a, (n,))
    b = (a, 5) if n > 1 else (tl.advance(a, (1,)), 6)
    tl.store(out + tl.arange(0, 4), tl.load(b[0]) * 10 + b[1])
"""
    for n, (start, added) in {3: (3, 5), 2: (0, 5), 1: (1, 6)}.items():
        x, out = np.arange(8), np.zeros(4, np.int64)
        run_text(tmp_path, text, {"x": x, "out": out, "n": n})
        np.testing.assert_array_equal(out, x[start : start + 4] * 10 + added)


def test_addresses_are_computed_in_64_bits(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n, s):
    a = tl.make_block_ptr(x, (n, n), (s, 1), (n, n), (2, 2), (1, 0))
    tl.store(a, 0)
"""
    module = lower_text(tmp_path, text, x="*i32", n="i32", s="i32")
    multiplications = [
        line for line in print_module(module).splitlines() if " mul " in line or " add " in line
    ]
    assert multiplications
    assert all("i64" in line for line in multiplications)
