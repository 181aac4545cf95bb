"""Sorts of which a thread holds a whole axis: minima and maxima, many of them one in the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.every_way import run_every_way
from helpers.kernel_source import load_kernel, signature_of
from tilewright_compiler import driver

ROWS = 128


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32"])
def test_axis_within_a_thread_is_sorted_and_its_greatest_are_found(dtype: str) -> None:
    text = """
@tl.kernel
def k(x, y, z, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    tl.store(y + at, tl.sort(v, 0))
    top = tl.arange(0, 2)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(z + top, tl.topk(v, 2, 0))
"""
    generator = np.random.default_rng(11)
    shape = (ROWS, 32)
    if dtype == "float32":
        x = generator.standard_normal(shape).astype(dtype)
    else:
        bounds = np.iinfo(dtype)
        x = generator.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)
    arrays = {"x": x, "y": np.zeros_like(x), "z": np.zeros((2, 32), dtype)}
    left = run_every_way(text, arrays, num_warps=1, M=ROWS, N=32)
    expected = np.sort(x, axis=0)
    np.testing.assert_array_equal(left["y"], expected)
    np.testing.assert_array_equal(left["z"], expected[:-3:-1])


def test_minima_that_are_not_those_of_a_sort_stay_llvms(tmp_path: Path) -> None:
    text = """
    @tl.kernel
    def k(x, y, N: tl.constexpr):
        i = tl.program_id(0) * N + tl.arange(0, N)
        tl.store(y + i, tl.load(x + tl.maximum(i - 1, 0)))
    """
    kernel = load_kernel(tmp_path, text)
    ptx = driver.show(kernel, signature_of(kernel, {"x": "*f32", "y": "*f32", "N": 8192}), "ptx")
    assert "begin inline asm" not in ptx
    # Of a run of indices LLVM clamps the first alone.
    assert ptx.count("max.s") < 8
