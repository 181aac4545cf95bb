"""Compile-time numbers: the dtype they take and their exact value in it."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.abi import dtypes
from tilewright.abi.dtypes import DType
from tilewright.errors import KernelValueError
from tilewright_compiler.frontend.constants import convert, dtype_with, weak_dtype
from tilewright_compiler.frontend.operands import Number

INTEGERS = [dtype for dtype in dtypes.ALL if dtype.kind in ("int", "uint")]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (True, "i1"),
        (0, "i32"),
        (-(2**31), "i32"),
        (2**31 - 1, "i32"),
        (2**31, "i64"),
        (-(2**63), "i64"),
        (1.0, "f32"),
        (math.inf, "f32"),
    ],
)
def test_number_alone_takes_the_narrowest_of_its_kind(number: Number, expected: str) -> None:
    assert weak_dtype(number).name == expected


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_integer_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(KernelValueError, match=f"{number} does not fit in 64 bits"):
        weak_dtype(number)


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (1, "f16", "f16"),
        (1.5, "f16", "f16"),
        (1.5, "f64", "f64"),
        (1.5, "i64", "f32"),
        (1.5, "i1", "f32"),
        (255, "u8", "u8"),
        (-128, "i8", "i8"),
        (True, "u8", "u8"),
        (True, "bf16", "bf16"),
        (True, "i1", "i1"),
        (1, "i1", "i32"),
    ],
)
def test_number_takes_the_dtype_it_meets(number: Number, dtype: str, expected: str) -> None:
    assert dtype_with(number, dtypes.BY_NAME[dtype]).name == expected


@pytest.mark.parametrize(
    ("number", "dtype"), [(256, "u8"), (-1, "u32"), (128, "i8"), (2**31, "i32")]
)
def test_number_that_does_not_fit_is_refused(number: int, dtype: str) -> None:
    with pytest.raises(KernelValueError, match=f"{number} does not fit in {dtype}"):
        dtype_with(number, dtypes.BY_NAME[dtype])


@given(st.floats() | st.integers(-(2**200), 2**200))
def test_f32_and_f16_round_as_numpy_rounds_a_double(number: float) -> None:
    # NumPy rounds once only from a double, so integers must be exact in one.
    if isinstance(number, int) and int(float(number)) != number:
        return
    with np.errstate(over="ignore"):
        for dtype, kind in ((dtypes.float32, np.float32), (dtypes.float16, np.float16)):
            np.testing.assert_equal(convert(number, dtype), float(kind(np.float64(number))))


@given(st.floats(width=32))
def test_bf16_rounds_as_ml_dtypes_rounds_an_f32(number: float) -> None:
    expected = float(np.float32(number).astype(ml_dtypes.bfloat16))
    np.testing.assert_equal(convert(number, dtypes.bfloat16), expected)


def test_bf16_is_rounded_once_not_through_f32() -> None:
    # Above the tie between 1 and 1 + 2**-7 by less than f32 resolves: through f32 it would be 1.
    number = 1 + 2**-8 + 2**-40
    assert convert(number, dtypes.bfloat16) == 1 + 2**-7
    assert float(np.float32(number).astype(ml_dtypes.bfloat16)) == 1.0


def test_integer_is_rounded_once_not_through_f64() -> None:
    number = 2**60 + 2**36 + 1  # just above a tie of f32; as a double it is the tie itself
    assert convert(number, dtypes.float32) == 2**60 + 2**37


@pytest.mark.parametrize("number", [-0.0, -1e-60])
def test_sign_of_zero_is_kept(number: float) -> None:
    assert math.copysign(1, convert(number, dtypes.float32)) == -1


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(number=st.integers(-(2**70), 2**70))
def test_integers_wrap(dtype: DType, number: int) -> None:
    converted = convert(number, dtype)
    assert (converted - number) % 2**dtype.bits == 0
    low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    assert low <= converted < low + 2**dtype.bits


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (2.9, "i32", 2),
        (-2.9, "i32", -2),
        (1e30, "i32", 2**31 - 1),
        (-1e30, "i32", -(2**31)),
        (-1.5, "u8", 0),
        (300.0, "u8", 255),
        (math.nan, "i64", 0),
        (math.inf, "i64", 2**63 - 1),
        (0.5, "i1", True),
        (0.0, "i1", False),
        (7, "i1", True),
        (True, "i32", 1),
        (True, "f32", 1.0),
        (1e39, "f32", math.inf),
        (65520, "f16", math.inf),
        (65519, "f16", 65504.0),
    ],
)
def test_conversions_follow_the_cast(number: Number, dtype: str, expected: Number) -> None:
    converted = convert(number, dtypes.BY_NAME[dtype])
    assert converted == expected
    assert type(converted) is type(expected)
