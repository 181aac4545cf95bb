"""A program that reads what other threads of it wrote waits for them."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from helpers.emitted import run_scheduled
from helpers.ptx_interpreter import Order
from helpers.staged_kernels import Arguments, optimized, types_of
from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Module
from tilewright_compiler.schedule.plan import schedule_module

# What is read back was stored by another warp: rows the other way round.
_STORED_AND_READ = """
@tl.kernel(divisible=("pitch",))
def turned(x, scratch, out, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    place = rows[:, None] * pitch + columns[None, :]
    tl.store(scratch + place, tl.load(x + place))
    tl.store(out + place, tl.load(scratch + (BM - 1 - rows)[:, None] * pitch + columns[None, :]))
"""

# What is overwritten was read by another warp.
_READ_AND_STORED = """
@tl.kernel(divisible=("pitch",))
def turned(x, scratch, out, pitch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    place = rows[:, None] * pitch + columns[None, :]
    values = tl.load(out + (BM - 1 - rows)[:, None] * pitch + columns[None, :])
    tl.store(out + place, values)
"""


def _arguments(text: str) -> Arguments:
    x = np.arange(32 * 48, dtype=np.float32).reshape(32, 48)
    out = x.copy() if text is _READ_AND_STORED else np.zeros_like(x)
    return {"x": x, "scratch": np.zeros_like(x), "out": out, "pitch": 48}


def _is_turned(module: Module, text: str, order: Order) -> bool:
    values = copy.deepcopy(_arguments(text))
    run_scheduled(module, [values[name] for name, _ in module.signature.runtime], order=order)
    return np.array_equal(values["out"][:, :32], values["x"][::-1, :32])


@pytest.mark.parametrize(
    "text", [_STORED_AND_READ, _READ_AND_STORED], ids=["read after store", "store after read"]
)
def test_threads_meet_between_a_store_and_a_load_of_one_argument(text: str, tmp_path: Path) -> None:
    module = optimized(tmp_path, text, types_of(_arguments(text)))
    schedule = schedule_module(module)
    orders: tuple[Order, ...] = ("ascending", "descending")
    assert all(_is_turned(schedule, text, order) for order in orders)
    without = rewrite_module(
        schedule, lambda operation, *_: () if operation.name == "barrier" else None
    )
    assert not all(_is_turned(without, text, order) for order in orders)
