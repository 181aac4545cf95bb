"""Attributes of tiles, scalars, pointers and dtypes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text


@pytest.mark.parametrize(
    "statement",
    [
        "tl.zeros((4, B), tl.int8).numel == 256",
        "n.numel == 1",
        "n.shape == ()",
        "x.dtype == tl.float16",
        "x.dtype.element_ty == tl.float16",
        "x.dtype.element_ty.primitive_bitwidth == 16",
        "tl.zeros(B, x.dtype.element_ty).dtype.itemsize == 2",
        "3 in (1, 3) and B not in (1, 3)",
        "0 < B <= 64 < 65",
        "(B, (n.dtype, None)) == (64, (tl.int64, None))",
        "(1, 2, 3)[-1] == 3",
        "(None if B > 3 else 1) is None",
    ],
)
def test_it_is_known_at_compile_time(statement: str, tmp_path: Path) -> None:
    text = f"@tl.kernel\ndef k(x, n, B: tl.constexpr):\n    tl.static_assert({statement})\n"
    lower_text(tmp_path, text, x="*f16", n="i64", B=64)


def test_item_is_the_scalar_of_one_element(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out, n):
    if tl.full((1, 1), n, tl.int64).item() > 3:
        tl.store(out, n.item())
"""
    for n, expected in ((5, 5), (2, 0)):
        out = np.zeros(1, np.int64)
        run_text(tmp_path, text, {"out": out, "n": n})
        assert out[0] == expected
