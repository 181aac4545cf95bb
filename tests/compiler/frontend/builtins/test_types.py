"""Attributes and methods of tiles: casts that keep the bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text

TEXT = """
@tl.kernel
def k(x, out):
    i = tl.arange(0, 8)
    tl.store(out + i, {expression})
"""


@pytest.mark.parametrize(
    ("source", "target", "expression"),
    [
        (np.float32, np.int32, "tl.load(x + i).to(tl.int32, bitcast=True)"),
        (np.uint32, np.float32, "tl.load(x + i).to(tl.float32, True)"),
        (np.int64, np.float64, "tl.load(x + i).to(bitcast=True, dtype=tl.float64)"),
        (np.float16, ml_dtypes.bfloat16, "tl.load(x + i).to(tl.bfloat16, bitcast=True)"),
        (np.uint8, ml_dtypes.float8_e4m3fn, "tl.load(x + i).to(tl.float8e4nv, bitcast=True)"),
        (ml_dtypes.float8_e5m2, np.int8, "tl.load(x + i).to(tl.int8, bitcast=True)"),
    ],
)
def test_bits_stay(source: Any, target: Any, expression: str, tmp_path: Path) -> None:
    size = np.dtype(source).itemsize
    x = np.arange(7, 7 + 8 * size, dtype=np.uint8).view(source)
    out = np.zeros(8, target)
    run_text(tmp_path, TEXT.format(expression=expression), {"x": x, "out": out})
    assert out.tobytes() == x.tobytes()


def test_bits_of_a_number(tmp_path: Path) -> None:
    out = np.zeros(8, np.int32)
    text = TEXT.format(expression="(1.0).to(tl.int32, bitcast=True)")
    run_text(tmp_path, text, {"x": out, "out": out})
    assert out.tolist() == [0x3F800000] * 8


def test_the_same_dtype_builds_nothing(tmp_path: Path) -> None:
    text = TEXT.format(expression="tl.load(x + i).to(tl.float32, bitcast=True)")
    names = [
        o.name for o in lower_text(tmp_path, text, x="*f32", out="*f32").kernel.body.operations
    ]
    assert not {"cast", "bitcast"} & set(names)
