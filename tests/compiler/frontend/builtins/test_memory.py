"""Loads and stores: shapes, masks, fill values, casts and hints."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright_compiler.ir.core import Operation


def _operation(directory: Path, body: str, name: str) -> Operation:
    text = f"@tl.kernel\ndef k(x, h, n):\n    t = tl.arange(0, 8)\n    {body}\n"
    module = lower_text(directory, text, x="*f32", h="*f16", n="i64")
    (operation,) = (o for o in module.kernel.body.walk() if o.name == name)
    return operation


def test_scalar_pointer_loads_a_scalar(tmp_path: Path) -> None:
    load = _operation(tmp_path, "r = tl.load(x + n)", "load")
    assert [str(v.type) for v in load.operands] == ["ptr<f32>"]
    assert str(load.result.type) == "f32"
    assert load.attributes == {"cache": "", "eviction": ""}


@pytest.mark.parametrize(
    ("mask", "operands"),
    [
        ("", 1),
        (", mask=None", 1),
        (", mask=True", 1),
        (", mask=True, other=1", 1),
        (", mask=n > 0", 2),
        (", mask=False", 2),
        (", mask=t < n", 2),
        (", t < n, 1.5", 3),
        (", mask=(t < n)[None, :], other=t[:, None]", 3),
    ],
)
def test_mask_and_other_take_the_pointers_shape_and_dtype(
    mask: str, operands: int, tmp_path: Path
) -> None:
    load = _operation(tmp_path, f"r = tl.load(h + t[:, None] * 8 + t{mask})", "load")
    expected = ["tile<8x8xptr<f16>>", "tile<8x8xi1>", "tile<8x8xf16>"]
    assert [str(v.type) for v in load.operands] == expected[:operands]
    assert str(load.result.type) == "tile<8x8xf16>"


def test_hints_reach_the_operation(tmp_path: Path) -> None:
    load = _operation(tmp_path, 'r = tl.load(x, cache_modifier=".cg")', "load")
    assert load.attributes == {"cache": "cg", "eviction": ""}
    store = _operation(tmp_path, 'tl.store(x, 1, eviction_policy="evict_first")', "store")
    assert store.attributes == {"cache": "", "eviction": "evict_first"}


@pytest.mark.parametrize("value", ["1", "n", "t", "t[None, :] * 0.5", "n > 0"])
def test_stored_value_is_cast_and_broadcast(value: str, tmp_path: Path) -> None:
    store = _operation(tmp_path, f"tl.store(h + t[:, None] + t, {value}, mask=t < n)", "store")
    assert [str(v.type) for v in store.operands] == [
        "tile<8x8xptr<f16>>",
        "tile<8x8xf16>",
        "tile<8x8xi1>",
    ]


def test_masked_lanes_read_other_and_write_nothing(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out, n):
    i = tl.arange(0, 8)
    value = tl.load(x + i, mask=i < n, other=-1)
    zero = tl.load(x + i, mask=i < n)
    tl.store(out + i, value + 10 * zero, mask=i < n + 2)
"""
    x, out = np.arange(1, 4, dtype=np.float32), np.full(8, 99, np.int32)
    run_text(tmp_path, text, {"x": x, "out": out, "n": 3})
    assert out.tolist() == [11, 22, 33, -1, -1, 99, 99, 99]


def test_store_rounds_to_the_pointers_dtype(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(g, f):\n    tl.store(g, f)\n"
    g = np.zeros(1, ml_dtypes.bfloat16)
    run_text(tmp_path, text, {"g": g, "f": 1.00390625})  # a tie, to even
    assert float(g[0]) == 1.0


def test_bools_are_stored_and_loaded(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(c, out, n):
    i = tl.arange(0, 4)
    tl.store(c + i, i > n)
    tl.store(out + i, tl.where(tl.load(c + i), 7, 8))
"""
    c, out = np.zeros(4, bool), np.zeros(4, np.int8)
    run_text(tmp_path, text, {"c": c, "out": out, "n": 1})
    assert out.tolist() == [8, 8, 7, 7]


def test_address_is_an_int64_of_the_pointers_shape(tmp_path: Path) -> None:
    address = _operation(tmp_path, "r = (x + t).to(tl.int64)", "address")
    assert str(address.result.type) == "tile<8xi64>"
    assert str(_operation(tmp_path, "r = x.to(tl.int64)", "address").result.type) == "i64"
