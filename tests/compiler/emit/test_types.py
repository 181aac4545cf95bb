"""Constants as MLIR literals: bits, rounded once."""

from __future__ import annotations

import math

import pytest

from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    uint8,
    uint32,
)
from tilewright_compiler.emit.types import literal


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, float32, "0x3F800000 : f32"),
        (-0.0, float32, "0x80000000 : f32"),
        (0.1, float32, "0x3DCCCCCD : f32"),
        (0.1, float64, "0x3FB999999999999A : f64"),
        (1e39, float32, "0x7F800000 : f32"),
        (-math.inf, float16, "0xFC00 : f16"),
        (65520.0, float16, "0x7C00 : f16"),
        (65519.9, float16, "0x7BFF : f16"),
        (1.0, bfloat16, "0x3F80 : bf16"),
        # Just above the tie between 1 and the next bf16: rounding through f32 would lose the tail
        # and then tie to even.
        (1 + 2**-8 + 2**-40, bfloat16, "0x3F81 : bf16"),
        (1 + 2**-8, bfloat16, "0x3F80 : bf16"),
        (2.0**-133, bfloat16, "0x0001 : bf16"),
        (math.nan, float32, "0x7FC00000 : f32"),
        (math.nan, bfloat16, "0x7FC0 : bf16"),
        (3, float32, "0x40400000 : f32"),
        (-1, int32, "-1 : i32"),
        (2**32 - 1, uint32, "-1 : i32"),
        (200, uint8, "-56 : i8"),
        (-128, int8, "-128 : i8"),
        (True, int1, "true"),
        (0, int1, "false"),
    ],
)
def test_literal(value: float, dtype: DType, text: str) -> None:
    assert literal(value, dtype) == text
