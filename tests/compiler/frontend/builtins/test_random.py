"""Philox against NumPy's, its distributions, and its words on every way to run them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.every_way import lower_text, run_every_way
from tilewright_compiler.interpret import tile

Array = np.ndarray[Any, np.dtype[Any]]


def _filled(
    expression: str, count: int, dtype: Any, outputs: int = 1, *, every_way: bool = False
) -> list[Array]:
    """Return what an expression of `n = tl.arange(0, count)` gives: one array, or several."""
    names = [f"out{number}" for number in range(outputs)]
    text = f"@tl.kernel\ndef k({', '.join(names)}):\n    n = tl.arange(0, {count})\n"
    text += f"    {', '.join(f'x{name}' for name in names)} = {expression}\n"
    text += "".join(f"    tl.store({name} + n, x{name})\n" for name in names)
    arrays = {name: np.zeros(count, dtype) for name in names}
    if every_way:
        return list(run_every_way(text, arrays).values())
    tile.run(lower_text(text, arrays), grid=(1, 1, 1), arguments=arrays)
    return list(arrays.values())


def test_words_of_64_bits_are_numpys() -> None:
    key = 0x0123456789ABCDEF
    found = _filled(f"tl.philox({key}, n.to(tl.uint64), 0, 0, 0)", 64, np.uint64, 4)
    generator = np.random.Philox(key=key, counter=2**256 - 1)  # goes on before each use
    expected = generator.random_raw(4 * 64).reshape(64, 4)
    np.testing.assert_array_equal(np.stack(found, 1), expected)


def test_all_ways_give_the_same_words() -> None:
    _filled("tl.randint4x(77, n.to(tl.int64) << 31)", 256, np.uint32, 4, every_way=True)
    _filled("tl.rand(77, n)", 256, np.float32, every_way=True)


def test_uniform_numbers_are_spread_evenly() -> None:
    count = 1 << 16
    numbers = np.concatenate(_filled("tl.rand4x(5, n)", count, np.float32, 4))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counted, _ = np.histogram(numbers, bins=64, range=(0, 1))
    expected = numbers.size / 64
    chi_squared = ((counted - expected) ** 2 / expected).sum()
    assert chi_squared < 63 + 5 * np.sqrt(2 * 63)  # five standard deviations
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 5 / np.sqrt(numbers.size)


def test_normal_numbers_have_the_moments_of_a_normal() -> None:
    numbers = np.concatenate(_filled("tl.randn4x(5, n)", 1 << 16, np.float32, 4)).astype(np.float64)
    error = 1 / np.sqrt(numbers.size)
    assert abs(numbers.mean()) < 5 * error
    assert abs(numbers.var() - 1) < 5 * np.sqrt(2) * error
    assert abs((numbers**3).mean()) < 5 * np.sqrt(15) * error
    assert abs((numbers**4).mean() - 3) < 5 * np.sqrt(96) * error
    assert np.abs(numbers).max() < 5.68


@pytest.mark.parametrize(
    ("single", "four"), [("randint", "randint4x"), ("rand", "rand4x"), ("randn", "randn4x")]
)
def test_a_single_number_is_the_first_of_four(single: str, four: str) -> None:
    dtype = np.uint32 if single == "randint" else np.float32
    (alone,) = _filled(f"tl.{single}(9, n)", 64, dtype)
    first, *_ = _filled(f"tl.{four}(9, n)", 64, dtype, 4)
    np.testing.assert_array_equal(alone, first)


def test_a_shape_of_offsets_is_the_shape_of_the_numbers() -> None:
    text = """
@tl.kernel
def k(out):
    places = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(out + places, tl.rand(3, places))
"""
    flat = _filled("tl.rand(3, n)", 128, np.float32)[0]
    found = run_every_way(text, {"out": np.zeros(128, np.float32)})["out"]
    np.testing.assert_array_equal(found, flat)
