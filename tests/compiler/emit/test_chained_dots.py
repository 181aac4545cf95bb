"""Kernels of several dots, executed from their PTX: results that are operands, shared operands."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from helpers.emitted import run_scheduled
from helpers.kernel_source import load_kernel
from helpers.ptx_interpreter import Arrival
from helpers.tile_operation import Array
from tilewright.abi.dtypes import DType, bfloat16, float32, int64
from tilewright.abi.signature import Constexpr, declared
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.core import Module
from tilewright_compiler.pipeline import schedule_signature
from tilewright_compiler.snapshots import Snapshots

_ATTENTION = """
@tl.kernel(divisible=("keys",))
def attention(q, k, v, out, keys, BLOCK: tl.constexpr, DIM: tl.constexpr):
    rows, columns, depth = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, DIM)
    query = tl.load(q + rows[:, None] * DIM + depth[None, :])
    peak = tl.full((BLOCK,), -1e30, tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(0, keys, BLOCK):
        places = (start + columns)[:, None] * DIM + depth[None, :]
        key = tl.load(k + places)
        value = tl.load(v + places)
        scores = tl.dot(query, tl.trans(key))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        shares = tl.exp(scores - higher[:, None])
        decay = tl.exp(peak - higher)
        weight = weight * decay + tl.sum(shares, axis=1)
        total = tl.dot(shares.to(tl.bfloat16), value, total * decay[:, None])
        peak = higher
    tl.store(out + rows[:, None] * DIM + depth[None, :], total / weight[:, None])
"""

_GATED = """
@tl.kernel(divisible=("keys",))
def gated(q, k, v, out, keys, BLOCK: tl.constexpr, DIM: tl.constexpr):
    rows, columns, depth = tl.arange(0, BLOCK), tl.arange(0, DIM), tl.arange(0, BLOCK)
    left = tl.zeros((BLOCK, DIM), tl.float32)
    right = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(0, keys, BLOCK):
        x = tl.load(q + rows[:, None] * keys + (start + depth)[None, :])
        places = (start + depth)[:, None] * DIM + columns[None, :]
        left = tl.dot(x, tl.load(k + places), left)
        right = tl.dot(x, tl.load(v + places), right)
    tl.store(out + rows[:, None] * DIM + columns[None, :], left * right)
"""


def _scheduled(directory: Path, text: str, *, block: int, dim: int, num_warps: int) -> Module:
    kernel = load_kernel(directory, text)
    pointers: dict[str, DType | tuple[DType] | Constexpr] = dict.fromkeys("qkv", (bfloat16,))
    signature = declared(
        {
            **pointers,
            "out": (float32,),
            "keys": int64,
            "BLOCK": Constexpr(block),
            "DIM": Constexpr(dim),
        },
        rule=kernel.rule,
        specialization="fast",
        num_warps=num_warps,
        num_stages=3,
    )
    return schedule_signature(kernel, signature, snapshots=Snapshots())


def _normal(shape: tuple[int, int], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("arrival", ["early", "late"])
@pytest.mark.parametrize(
    ("block", "dim", "num_warps"), [(64, 32, 4), (32, 64, 2), (16, 16, 1)], ids=str
)
def test_attention(tmp_path: Path, block: int, dim: int, num_warps: int, arrival: Arrival) -> None:
    module = _scheduled(tmp_path, _ATTENTION, block=block, dim=dim, num_warps=num_warps)
    keys = 4 * block
    q, k, v = _normal((block, dim), 0), _normal((keys, dim), 1), _normal((keys, dim), 2)
    out = np.zeros((block, dim), np.float32)
    run_scheduled(module, [q, k, v, out, keys], order="descending", arrival=arrival)
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    want = shares @ v.astype(np.float64) / shares.sum(axis=1, keepdims=True)
    # Shares are rounded to 8 bits, each half a unit off at most.
    np.testing.assert_allclose(out, want, rtol=0, atol=2.0**-7)


def test_shares_stay_in_registers(tmp_path: Path) -> None:
    module = _scheduled(tmp_path, _ATTENTION, block=64, dim=32, num_warps=4)
    loop = next(x for x in module.kernel.body.operations if x.name == "for")
    dots = [x for x in loop.regions[0].operations if x.name == "dot"]
    assert len(dots) == 2
    ptx = lower_to_ptx(emit_module(module)).text
    # The loop's blocks stand in the order that LLVM likes, behind all that is before it.
    body = ptx[min(ptx.index(text) for text in ("ldmatrix", "cvt.rn.bf16x2.f32")) :]
    # 16 x 64 shares of a warp, two to a word.
    assert body.count("cvt.rn.bf16x2.f32") == 16 * 64 // 32 // 2
    assert body.count("st.shared") == 0


def test_a_gated_product(tmp_path: Path) -> None:
    module = _scheduled(tmp_path, _GATED, block=32, dim=64, num_warps=4)
    q, k, v = _normal((32, 96), 0), _normal((96, 64), 1), _normal((96, 64), 2)
    out = np.zeros((32, 64), np.float32)
    run_scheduled(module, [q, k, v, out, 96])
    x, left, right = (array.astype(np.float64) for array in (q, k, v))
    np.testing.assert_allclose(out, (x @ left) * (x @ right), rtol=1e-5, atol=1e-3)
