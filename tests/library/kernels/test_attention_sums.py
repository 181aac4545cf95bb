"""The sums of attention as its PTX computes them, which contracts products into sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.emitted import run_scheduled
from helpers.kernel_source import signature_of
from tilewright.abi.signature import ConstexprValue
from tilewright.kernels.attention import attention
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

BLOCK = 16
Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def schedule() -> Module:
    types: dict[str, ConstexprValue] = {p.name: "i64" for p in attention.parameters}
    types |= dict.fromkeys(("q", "k", "v", "bias", "out"), "*f16")
    types |= {"lse": "*f32", "scale": "f32", "PRECISION": "ieee"}
    types |= dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_D"), BLOCK)
    return schedule_module(
        optimize(lower_kernel(attention, signature_of(attention, types, num_warps=1)))
    )


def attend(schedule: Module, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    out, lse = np.zeros_like(q), np.zeros(len(q), np.float32)
    scalars: dict[str, int | float] = {p.name: 0 for p in attention.parameters}
    scalars |= {"queries": len(q), "keys": len(k), "dim": BLOCK, "group": 1}
    scalars |= dict.fromkeys(("q_row", "k_row", "v_row", "out_row"), BLOCK)
    scalars |= dict.fromkeys(("q_dim", "k_dim", "v_dim", "out_dim", "bias_column"), 1)
    scalars |= {"scale": 0.3, "left": len(k), "right": len(q), "has_lse": 1}
    arrays = {"q": q, "k": k, "v": v, "bias": q, "out": out, "lse": lse}
    names = [p.name for p in attention.parameters if not p.is_constexpr]
    run_scheduled(schedule, [arrays[n] if n in arrays else scalars[n] for n in names])
    return out, lse


def test_keys_without_weight_change_no_bit_however_many(schedule: Module) -> None:
    generator = np.random.default_rng(0)
    k = np.abs(generator.standard_normal((12 * BLOCK, BLOCK))).astype(np.float16)
    v = generator.standard_normal(k.shape).astype(np.float16)
    k[BLOCK:] = -8.0
    q = (k[:BLOCK] + 4).astype(np.float16)
    few, many = (attend(schedule, q, k[:n], v[:n]) for n in (BLOCK, len(k)))
    for found, expected in zip(many, few, strict=True):
        np.testing.assert_array_equal(found, expected)
