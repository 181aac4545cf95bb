"""Instructions of the PTX interpreter that no emitted kernel can be relied on to hold."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.ptx_arithmetic import inserted_bits


@pytest.mark.parametrize("bits", [32, 64])
def test_bits_are_inserted_as_whole_numbers_say(bits: int) -> None:
    random = np.random.default_rng(0)
    dtype = np.dtype(f"u{bits // 8}")
    source, target = random.integers(0, (1 << bits) - 1, (2, 200), np.uint64).astype(dtype)
    start, length = random.integers(0, bits + 8, (2, 200), np.uint32)
    found = inserted_bits(source, target, start, length)
    for a, b, c, d, result in zip(
        *(array.tolist() for array in (source, target, start, length, found)), strict=True
    ):
        mask = ((1 << min(d, bits)) - 1) << c
        assert result == (b & ~mask | a << c & mask) & ((1 << bits) - 1)
