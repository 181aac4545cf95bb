"""Kernels with loops that a schedule pipelines, or must not, with arguments to launch them on.

Integers in small ranges as floats: every sum is exact, so that schedules leave equal bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from helpers.kernel_source import load_kernel, signature_of
from tilewright.abi.numpy_types import from_numpy
from tilewright.abi.signature import ConstexprValue, Specialization
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes import optimize

Arguments = dict[str, Any]

PRODUCT = """
@tl.kernel(divisible=("pitch",))
def product(x, y, out, first, last, step, pitch, BM: tl.constexpr, BN: tl.constexpr,
            BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(first, last, step):
        depth = start - first + inner
        mask = depth < last - first
        a = tl.load(x + rows[:, None] * pitch + depth[None, :], mask=mask[None, :])
        b = tl.load(y + depth[:, None] * pitch + columns[None, :], mask=mask[:, None])
        acc = tl.dot(a, b, acc)
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

WALKING = """
@tl.kernel(divisible=("pitch",))
def walking(x, y, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    a = x + rows[:, None] * pitch + inner[None, :]
    b = y + inner[:, None] * pitch + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, last, BK):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK * pitch
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

PERSISTENT = """
@tl.kernel(divisible=("pitch",))
def persistent(x, y, out, tiles, last, pitch, BM: tl.constexpr, BN: tl.constexpr,
               BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, last, BK):
            depth = start + inner
            a = tl.load(x + (tile + rows[:, None]) * pitch + depth[None, :])
            b = tl.load(y + depth[:, None] * pitch + columns[None, :])
            acc = tl.dot(a, b, acc)
        place = out + tile * BM * BN + rows[:, None] * BN + columns[None, :]
        tl.store(place, acc + tl.sum(acc, 0)[None, :])
"""

TWO_LOOPS = """
@tl.kernel(divisible=("pitch",))
def two_loops(x, y, out, first, second, pitch, BM: tl.constexpr, BN: tl.constexpr,
              BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, first, BK):
        depth = start + inner
        a = tl.load(x + rows[:, None] * pitch + depth[None, :])
        b = tl.load(y + depth[:, None] * pitch + columns[None, :])
        acc = tl.dot(a, b, acc)
    for start in range(0, second, BK):
        depth = start + inner
        a = tl.load(y + rows[:, None] * pitch + depth[None, :])
        b = tl.load(x + columns[:, None] * pitch + depth[None, :])
        acc = tl.dot(a, b.T, acc)
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

ATTENTION = """
@tl.kernel(divisible=("pitch",))
def attention(x, y, bias, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, width = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    queries = tl.load(x + rows[:, None] * pitch + width[None, :])
    top = tl.full((BM,), -1000.0, tl.float32)
    acc = tl.zeros((BM, BK), tl.float32)
    for start in range(0, last, BN):
        at = start + columns
        keys = tl.load(y + at[:, None] * pitch + width[None, :])
        scores = tl.dot(queries, keys.T)
        scores += tl.load(bias + rows[:, None] * pitch + at[None, :])
        scores = tl.where(at[None, :] < last, scores, -1000.0)
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(scores == new_top[:, None], 1.0, 0.0)
        kept = tl.where(top == new_top, 1.0, 0.0)
        values = tl.load(x + at[:, None] * pitch + width[None, :])
        acc = tl.dot(weights.to(x.dtype), values, acc * kept[:, None])
        top = new_top
    tl.store(out + rows[:, None] * BK + width[None, :], acc)
"""

GATHER = """
@tl.kernel(divisible=("pitch",))
def gather(x, y, indices, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, last, BK):
        depth = start + inner
        chosen = tl.load(indices + depth, mask=depth < last, other=0)
        a = tl.load(x + rows[:, None] * pitch + depth[None, :], mask=(depth < last)[None, :])
        b = tl.load(y + chosen[:, None] * pitch + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

CHASING = """
@tl.kernel(divisible=("pitch",))
def chasing(x, y, indices, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    at = tl.load(indices)
    for start in range(0, last, BK):
        a = tl.load(x + rows[:, None] * pitch + (at * BK + inner)[None, :])
        b = tl.load(y + (start + inner)[:, None] * pitch + columns[None, :])
        acc = tl.dot(a, b, acc)
        at = tl.load(indices + at)
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

GATED = """
@tl.kernel(divisible=("pitch",))
def gated(x, y, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    up = tl.zeros((BM, BN), tl.float32)
    gate = tl.zeros((BM, BN), tl.float32)
    for start in range(0, last, BK):
        depth = start + inner
        a = tl.load(x + rows[:, None] * pitch + depth[None, :])
        b = y + depth[:, None] * pitch + columns[None, :]
        up = tl.dot(a, tl.load(b), up)
        gate = tl.dot(a, tl.load(b + BN), gate)
    tl.store(out + rows[:, None] * BN + columns[None, :], up - 3 * gate)
"""

STORING = """
@tl.kernel(divisible=("pitch",))
def storing(x, y, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, last, BK):
        depth = start + inner
        a = tl.load(x + rows[:, None] * pitch + depth[None, :])
        b = tl.load(y + depth[:, None] * pitch + columns[None, :])
        acc = tl.dot(a, b, acc)
        tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

ROW_SUM = """
@tl.kernel(divisible=("pitch",))
def row_sum(x, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, last, BN, num_stages=4):
        at = start + columns
        values = tl.load(x + rows[:, None] * pitch + at[None, :], mask=(at < last)[None, :])
        total += values.to(tl.float32)
    tl.store(out + rows, tl.sum(total, 1))
"""

NESTED = """
@tl.kernel(divisible=("pitch",))
def nested(x, y, bias, out, outer, last, pitch, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for turn in tl.range(0, outer, num_stages=3):
        shift = tl.load(bias + (turn + rows[:, None]) * pitch + columns[None, :])
        for start in range(0, last, BK):
            depth = start + inner
            a = tl.load(x + (rows + turn)[:, None] * pitch + depth[None, :])
            b = tl.load(y + depth[:, None] * pitch + columns[None, :])
            acc = tl.dot(a, b, acc)
        acc += shift
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

BRANCHES = """
@tl.kernel(divisible=("pitch",))
def branches(x, y, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    if last > 16:
        for start in range(0, last, BK):
            depth = start + inner
            at = depth
            if start == 32:
                at = depth - 16
            a = tl.load(x + rows[:, None] * pitch + at[None, :])
            b = tl.load(y + depth[:, None] * pitch + columns[None, :])
            if start != 16:
                acc = tl.dot(a, b, acc)
            acc += tl.sum(a.to(tl.float32), 1)[:, None]
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

SCALED = """
@tl.kernel(divisible=("pitch",))
def scaled(x, y, bias, flags, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, last, BK):
        depth = start + inner
        a = tl.load(x + rows[:, None] * pitch + depth[None, :])
        scale = tl.load(bias + depth)
        keep = tl.load(flags + rows[:, None] * pitch + depth[None, :])
        a = tl.where(keep, (a.to(tl.float32) * scale[None, :]).to(x.dtype), a)
        b = tl.load(y + depth[:, None] * pitch + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

DEPENDENT = """
@tl.kernel(divisible=("pitch",))
def dependent(x, y, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    at = 0
    for start in range(0, last, BK):
        depth = start + inner
        a = tl.load(x + rows[:, None] * pitch + depth[None, :])
        b = tl.load(y + (at + inner)[:, None] * pitch + columns[None, :])
        acc = tl.dot(a, b, acc)
        at = tl.max(tl.max(acc, 1), 0).to(tl.int64) & 63
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

WAITING = """
@tl.kernel(divisible=("pitch",))
def waiting(x, y, out, last, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    turn = 0
    while turn < 3:
        for start in range(0, last, BK):
            depth = start + inner
            a = tl.load(x + rows[:, None] * pitch + depth[None, :])
            b = tl.load(y + (turn + depth)[:, None] * pitch + columns[None, :])
            acc = tl.dot(a, b, acc)
        turn += 1
    tl.store(out + rows[:, None] * BN + columns[None, :], acc)
"""

KERNELS = {
    "product": PRODUCT,
    "walking": WALKING,
    "persistent": PERSISTENT,
    "two_loops": TWO_LOOPS,
    "attention": ATTENTION,
    "gather": GATHER,
    "chasing": CHASING,
    "gated": GATED,
    "storing": STORING,
    "row_sum": ROW_SUM,
    "nested": NESTED,
    "branches": BRANCHES,
    "scaled": SCALED,
    "dependent": DEPENDENT,
    "waiting": WAITING,
}

# BM is also the rows that `attention` looks at, BK also its width.
BLOCKS: dict[str, ConstexprValue] = {"BM": 32, "BN": 32, "BK": 16}
_PITCH = 176


def optimized(
    directory: Path,
    text: str,
    types: Mapping[str, ConstexprValue],
    *,
    specialization: Specialization = "fast",
) -> Module:
    """Return the kernel of a text as the schedule takes it, for four warps and three stages."""
    kernel = load_kernel(directory, text)
    signature = signature_of(kernel, {**types, **BLOCKS}, specialization=specialization)
    return optimize(lower_kernel(kernel, signature))


def arguments(name: str, *, trips: int, tail: int = 0, dtype: str = "bfloat16") -> Arguments:
    """Return arguments of a kernel whose loops run `trips` times, the last one short by `tail`."""
    rng = np.random.default_rng(trips)
    element = np.dtype(getattr(ml_dtypes, dtype, dtype))

    def matrix(low: int, high: int, type_: Any = element) -> NDArray[Any]:
        return rng.integers(low, high, (_PITCH, _PITCH)).astype(type_)

    step = BLOCKS["BN"] if name in ("attention", "row_sum") else BLOCKS["BK"]
    assert isinstance(step, int)
    last = max(0, trips * step - tail)
    common: Arguments = {
        "x": matrix(-2, 3),
        "y": matrix(-2, 3),
        "out": np.full(4 * 32 * 32, -7, np.float32),
    }
    indices = rng.permutation(trips + 1).astype(np.int64)
    match name:
        case "product":
            return {**common, "first": 0, "last": last, "step": step, "pitch": _PITCH}
        case "persistent":
            return {**common, "tiles": 4, "last": last, "pitch": _PITCH}
        case "two_loops":
            return {**common, "first": last, "second": 2 * step, "pitch": _PITCH}
        case "attention":
            bias = matrix(0, 9, np.float32)
            return {**common, "bias": bias, "last": last, "pitch": _PITCH}
        case "gather" | "chasing":
            if name == "gather":
                indices = rng.integers(0, _PITCH, _PITCH)
            return {**common, "indices": indices, "last": last, "pitch": _PITCH}
        case "row_sum":
            common.pop("y")
        case "nested":
            common |= {"bias": matrix(0, 9, np.float32), "outer": trips}
        case "scaled":
            common |= {"bias": matrix(0, 3, np.float32), "flags": matrix(0, 2, np.bool_)}
    return {**common, "last": last, "pitch": _PITCH}


def types_of(values: Arguments) -> dict[str, ConstexprValue]:
    """Return the types that arguments have in a signature."""
    types: dict[str, ConstexprValue] = {}
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            types[name] = f"*{from_numpy(value.dtype)}"
        else:
            types[name] = str(from_numpy(value.dtype)) if isinstance(value, np.generic) else "i64"
    return types
