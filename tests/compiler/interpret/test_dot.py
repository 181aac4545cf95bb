"""Dots of programs that run in lockstep, of operands held in part, and their rounding."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.kernel_source import run_text
from helpers.tile_operation import apply
from tilewright_compiler.interpret.numerics import rounded_to_tf32


def _random(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_each_program_multiplies_its_own(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, y, out, n):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    j = tl.arange(0, 4)
    own = tl.load(x + p * 32 + i[:, None] * 4 + j[None, :])
    shared = tl.load(y + j[:, None] * 8 + i[None, :])
    acc = tl.zeros((8, 8), tl.float32)
    for _ in range(p % n):
        acc = tl.dot(own, shared, acc)
    tl.store(out + p * 64 + i[:, None] * 8 + i[None, :], acc)
"""
    x = np.round(_random(5, 8, 4) * 4)
    y = np.round(_random(4, 8, seed=1) * 4)
    out = np.full((5, 8, 8), -1, np.float32)
    run_text(tmp_path, text, {"x": x, "y": y, "out": out, "n": 3}, grid=(5, 1, 1))
    np.testing.assert_array_equal(out, (x @ y) * (np.arange(5) % 3)[:, None, None])


@pytest.mark.parametrize(
    "a",
    ["i[:, None] + tl.zeros((1, 4), tl.int32)", "j[None, :] + tl.zeros((8, 1), tl.int32)",
     "tl.full((8, 4), 3, tl.int32)"],
)  # fmt: skip
@pytest.mark.parametrize(
    "b",
    ["j[:, None] + tl.zeros((1, 8), tl.int32)", "i[None, :] + tl.zeros((4, 1), tl.int32)",
     "tl.full((4, 8), 2, tl.int32)"],
)  # fmt: skip
def test_repeated_operands_are_multiplied_in_full(a: str, b: str, tmp_path: Path) -> None:
    text = f"""
@tl.kernel
def k(left, right, out):
    i = tl.arange(0, 8)
    j = tl.arange(0, 4)
    a = ({a}).to(tl.float16)
    b = ({b}).to(tl.float16)
    tl.store(left + i[:, None] * 4 + j[None, :], a)
    tl.store(right + j[:, None] * 8 + i[None, :], b)
    tl.store(out + i[:, None] * 8 + i[None, :], tl.dot(a, b))
"""
    left, right = np.zeros((8, 4), np.float32), np.zeros((4, 8), np.float32)
    out = np.zeros((8, 8), np.float32)
    run_text(tmp_path, text, {"left": left, "right": right, "out": out})
    np.testing.assert_array_equal(out, left @ right)


def test_sum_and_accumulator_are_rounded_once() -> None:
    a, b = _random(4, 64), _random(64, 4, seed=1)
    acc = _random(4, 4, seed=2)
    found = apply("dot", [a, b, acc], shape=(4, 4), precision="ieee")
    for row, column in np.ndindex(4, 4):
        exact = Fraction(float(acc[row, column])) + sum(
            Fraction(float(x)) * Fraction(float(y))
            for x, y in zip(a[row], b[:, column], strict=True)
        )
        # f64 loses too little to move the rounding to f32 but for a few numbers in 2**29.
        assert found[row, column] == np.float32(float(exact))


def test_f64_is_summed_in_f64() -> None:
    a, b, acc = (_random(8, 8, seed=seed, dtype=np.float64) for seed in (0, 1, 2))
    found = apply("dot", [a, b, acc], precision="ieee")
    np.testing.assert_allclose(found, acc + a @ b, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1 + 2.0**-11, 1 + 2.0**-10),
        (1 + 2.0**-11 - 2.0**-23, 1.0),
        (-1 - 2.0**-11, -1 - 2.0**-10),
        (2 - 2.0**-11, 2.0),
        (np.finfo(np.float32).max, np.inf),
        (np.inf, np.inf),
        (2.0**-149, 0.0),
        (2.0**-137, 2.0**-136),
    ],
)
def test_tf32_keeps_11_digits_with_ties_away_from_zero(value: float, rounded: float) -> None:
    with np.errstate(all="ignore"):
        found = rounded_to_tf32(np.array([value, -value], np.float32))
        expected = np.array([rounded, -rounded], np.float32)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(rounded_to_tf32(np.array([np.nan], np.float32)))[0]
