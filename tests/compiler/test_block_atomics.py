"""What atomic operations on blocks leave in memory: by addresses, by Hopper's copy engine, and as
machine code; several programs meet in each block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright.language as tl
from helpers.block_runs import WAYS, block_run
from helpers.gpu import requires_gpu
from helpers.kernel_source import run_text, signature_of
from tilewright.abi.target import Target
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit
from tilewright.runtime.memory import from_numpy
from tilewright_compiler.driver import compile_kernel

Array = NDArray[Any]
COMPUTED: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
M, N, PART, PARTS = 100, 48, 64, 3
TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32}


def merging(kind: str) -> Kernel:
    """Return a kernel that merges the products of parts of K with what is in `out`, i32 `[M, N]`.

    `x` is i8 `[M, K]`, `y` i8 `[N, K]`; a program multiplies one part.
    """

    @tl.kernel(divisible=("n", "k", "part"))
    def merged(  # type: ignore[no-untyped-def]  # a kernel has types of its own
        x, y, out, m, n, k, part,
        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    ):  # fmt: skip
        a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
        b = tl.make_tensor_descriptor(y, [n, k], [k, 1], [BLOCK_N, BLOCK_K])
        c = tl.make_tensor_descriptor(out, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
        row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
        first = tl.program_id(2) * part
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
        for start in range(first, first + part, BLOCK_K):
            total = tl.dot(a.load([row, start]), tl.trans(b.load([column, start])), total)
        if KIND == "add":
            c.atomic_add([row, column], total)
        elif KIND == "max":
            c.atomic_max([row, column], total)
        elif KIND == "min":
            c.atomic_min([row, column], total)
        elif KIND == "and":
            c.atomic_and([row, column], total)
        elif KIND == "or":
            c.atomic_or([row, column], total)
        else:
            c.atomic_xor([row, column], total)

    KIND = tl.constexpr(kind)
    return merged


def numbers(kind: str) -> tuple[Array, Array, Array, Array]:
    """Return x, y, what is in `out` before, and what is after."""
    rng = np.random.default_rng(list(COMPUTED).index(kind))
    x, y = (rng.integers(-9, 10, (rows, PART * PARTS)).astype(np.int8) for rows in (M, N))
    before = rng.integers(-500, 500, (M, N)).astype(np.int32)
    after = before
    for part in range(PARTS):
        where = slice(part * PART, (part + 1) * PART)
        product = x[:, where].astype(np.int32) @ y[:, where].astype(np.int32).T
        after = COMPUTED[kind](after, product)
    return x, y, before, after


GRID = (-(-M // TILES["BLOCK_M"]), -(-N // TILES["BLOCK_N"]), PARTS)


@pytest.mark.parametrize("kind", COMPUTED)
@pytest.mark.parametrize("way", WAYS)
def test_programs_merge_their_blocks(way: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "interpret_kernel", block_run(way, []))
    x, y, out, expected = numbers(kind)
    merging(kind)[GRID](x, y, out, M, N, PART * PARTS, PART, **TILES)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("way", WAYS)
def test_extrema_of_unsigned_numbers_are_those(
    way: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "interpret_kernel", block_run(way, []))
    x, y, out, _ = numbers(kind)
    out = out.view(np.uint32)  # about half of these, and of the products, have their highest bit
    expected = out
    for part in range(PARTS):
        where = slice(part * PART, (part + 1) * PART)
        product = x[:, where].astype(np.int32) @ y[:, where].astype(np.int32).T
        expected = COMPUTED[kind](expected, product.view(np.uint32))
    merging(kind)[GRID](x, y, out, M, N, PART * PARTS, PART, **TILES)
    np.testing.assert_array_equal(out, expected)


@requires_gpu()
@pytest.mark.parametrize("kind", COMPUTED)
def test_gpus_merge_them_alike(kind: str) -> None:
    x, y, before, expected = numbers(kind)
    out = from_numpy(before)
    merging(kind)[GRID](from_numpy(x), from_numpy(y), out, M, N, PART * PARTS, PART, **TILES)
    np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize("kind", COMPUTED)
def test_the_copy_engine_does_it_in_machine_code(kind: str) -> None:
    kernel = merging(kind)
    types: dict[str, Any] = dict.fromkeys("xy", "*i8") | {"out": "*i32"}
    types |= dict.fromkeys(("m", "n", "k", "part"), "i64") | TILES
    compiled = compile_kernel(
        kernel, signature_of(kernel, types, specialization="fast"), [Target(9, 0, "a")]
    )
    (own,) = compiled.own_ptx.values()
    assert f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{kind}.tile.bulk_group" in own
    assert f"red.relaxed.gpu.global.{kind}" in compiled.ptx
    assert all(cubin.spill_bytes == 0 for cubin in compiled.cubins.values())


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_of_floats_order_zeros_and_keep_nan(kind: str, dtype: str, tmp_path: Path) -> None:
    text = f"""
@tl.kernel
def k(x, out, n):
    source = tl.make_tensor_descriptor(x, [n], [1], [16])
    target = tl.make_tensor_descriptor(out, [n], [1], [16])
    target.atomic_{kind}([0], source.load([0]))
"""
    nan = np.nan
    kept = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    out = np.array([1, -0.0, 0.0, -5, 2, 7, 3, 9], kept)
    x = np.array([2, 0.0, -0.0, -5, nan, nan, 4, 8], kept)
    is_max = kind == "max"
    zero = 0.0 if is_max else -0.0
    run_text(tmp_path, text, {"x": x, "out": out, "n": 7})
    first, last = (2, 4) if is_max else (1, 3)
    expected = np.array([first, zero, zero, -5, nan, nan, last, 9], kept)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.signbit(out[1:3]), np.signbit(expected[1:3]))
