"""Attributes of tiles, scalars, pointers and dtypes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright.language as tl
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
        "x.type.element_ty == tl.float16 and n.type == tl.int64",
        "(x + tl.arange(0, B)).type.scalar.element_ty == tl.float16",
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


def test_what_a_dtype_parameter_is_can_be_asked_for(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, T: tl.constexpr):
    tl.static_assert(T.value == tl.float16 and T == x.dtype)
"""
    lower_text(tmp_path, text, x="*f16", T=tl.float16)


def test_an_annotation_as_a_tile_says_nothing(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out: tl.tensor, n: tl.tensor, B: tl.constexpr) -> tl.tensor:
    offsets: tl.tensor = tl.arange(0, B)
    total: "tl.tensor" = tl.sum(offsets * n, 0)
    tl.store(out, total)
"""
    out = np.zeros(1, np.int64)
    run_text(tmp_path, text, {"out": out, "n": 3}, B=4)
    assert out[0] == 18


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


def test_star_takes_tuples_apart(tmp_path: Path) -> None:
    text = """
@tl.kernel
def f(a, b, c: tl.constexpr, d=7):
    return a * 1000 + b * 100 + c * 10 + d

@tl.kernel
def k(out, n):
    pair = (n, 2)
    both = (*pair, *(3,), 4)
    tl.static_assert(len(both) == 4 and both[2] == 3)
    tl.store(out, f(*pair, 3))
    tl.store(out + 1, f(*both))
    tl.store(out + 2, f(1, *(5, 6)))
"""
    out = np.zeros(3, np.int64)
    run_text(tmp_path, text, {"out": out, "n": 1})
    assert out.tolist() == [1237, 1234, 1567]


def test_powers_of_two_and_quotients_are_known_in_and_outside_kernels(tmp_path: Path) -> None:
    pairs = [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128)]
    checks = "".join(
        f"    tl.static_assert(tl.next_power_of_2({n}) == {power})\n" for n, power in pairs
    )
    lower_text(tmp_path, f"@tl.kernel\ndef k(x):\n{checks}", x="*f32")
    assert [tl.next_power_of_2(n) for n, _ in pairs] == [power for _, power in pairs]
    assert [tl.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
