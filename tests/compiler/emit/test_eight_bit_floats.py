"""Conversions of 8-bit floats, all of them: emitted, interpreted, and by the definition."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.eight_bit_floats import nearest, value_of
from helpers.emitted import apply_emitted
from helpers.tile_operation import Array, apply
from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    int64,
    uint8,
    uint64,
)
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.emit.types import literal

EIGHT_BITS = (float8e4nv, float8e5)
PATTERNS = np.arange(256, dtype=np.uint8)
_OTHER = {float8e4nv: float8e5, float8e5: float8e4nv}


def _patterns(array: Array) -> list[int]:
    return [int(bits) for bits in array.view(np.uint8)]


def _both(inputs: Array, source: DType, target: DType) -> tuple[Array, Array]:
    values = inputs.view(to_numpy(source))
    return (
        apply_emitted("cast", (values,), dtype=target, num_warps=8),
        apply("cast", (values,), dtype=target),
    )


@pytest.mark.parametrize("target", [float16, bfloat16, float32, float64], ids=str)
@pytest.mark.parametrize("source", EIGHT_BITS, ids=str)
def test_every_number_widens_to_itself(source: DType, target: DType) -> None:
    truth = np.array([value_of(bits, source) for bits in range(256)])
    is_number = ~np.isnan(truth)
    for found in _both(PATTERNS, source, target):
        with np.errstate(invalid="ignore"):  # a NaN may be a signalling one
            wide = found.astype(np.float64)
        np.testing.assert_array_equal(wide, truth)
        np.testing.assert_array_equal(np.signbit(wide)[is_number], np.signbit(truth)[is_number])


@pytest.mark.parametrize("source", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("target", EIGHT_BITS, ids=str)
def test_every_number_of_16_bits_rounds_to_the_nearest(source: DType, target: DType) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        truth = nearest(every.view(to_numpy(source)).astype(np.float64), target)
    for found in _both(every, source, target):
        np.testing.assert_array_equal(found.view(np.uint8), truth)


@pytest.mark.parametrize("source", [float32, float64], ids=str)
@pytest.mark.parametrize("target", EIGHT_BITS, ids=str)
def test_wide_numbers_at_and_around_each_tie_round_once(source: DType, target: DType) -> None:
    dtype = to_numpy(source)
    numbers = np.array([value_of(bits, target) for bits in range(127)])
    numbers = np.sort(numbers[np.isfinite(numbers)])
    ties = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2]).astype(dtype)
    # The neighbours of a tie in f64 are ties again in f32: two roundings would go wrong there.
    around = [ties, np.nextafter(ties, dtype.type(np.inf)), np.nextafter(ties, dtype.type(-np.inf))]
    limits = np.finfo(dtype)
    special = [
        np.inf,
        np.nan,
        0.0,
        449,
        464,
        480,
        61440,
        65536,
        3e38,
        1e-40,
        limits.max,
        limits.tiny,
    ]
    values = np.concatenate([*around, np.array(special, dtype)])
    values = np.concatenate([values, -values])
    values = np.pad(values, (0, 2048 - len(values)))
    truth = nearest(values.astype(np.float64), target)
    for found in _both(values, source, target):
        np.testing.assert_array_equal(found.view(np.uint8), truth)


@pytest.mark.parametrize("source", EIGHT_BITS, ids=str)
def test_one_format_becomes_the_other(source: DType) -> None:
    target = _OTHER[source]
    truth = nearest(np.array([value_of(bits, source) for bits in range(256)]), target)
    for found in _both(PATTERNS, source, target):
        np.testing.assert_array_equal(found.view(np.uint8), truth)


@pytest.mark.parametrize("target", EIGHT_BITS, ids=str)
def test_integers_round_once(target: DType) -> None:
    # 17 lies between 16 and 18, 2**8 + 2**4 + 1 above the tie of 256 and 288.
    small = np.array([0, 1, -1, 17, 19, -17, 100, -128], np.int8)
    for found in _both(small, int8, target):
        np.testing.assert_array_equal(
            found.view(np.uint8), nearest(small.astype(np.float64), target)
        )
    near = np.array([2**8 + 2**4 + 1, 2**8 + 2**4, 465, 2**40, -(2**62), 3, 57345, 2**31], np.int64)
    for found in _both(near, int64, target):
        np.testing.assert_array_equal(
            found.view(np.uint8), nearest(near.astype(np.float64), target)
        )
    top = np.array([2**64 - 1, 2**63, 0, 9], np.uint64)
    for found in _both(top, uint64, target):
        np.testing.assert_array_equal(found.view(np.uint8), nearest(top.astype(np.float64), target))


@pytest.mark.parametrize("source", EIGHT_BITS, ids=str)
def test_numbers_truncate_to_integers_and_bools(source: DType) -> None:
    values = np.array([value_of(bits, source) for bits in range(256)])
    finite = np.nan_to_num(values, nan=0.0, posinf=2.0**31 - 1, neginf=-(2.0**31))
    for found in _both(PATTERNS, source, int32):
        np.testing.assert_array_equal(found, np.trunc(finite).astype(np.int64))
    for found in _both(PATTERNS, source, uint8):
        np.testing.assert_array_equal(found, np.clip(np.trunc(finite), 0, 255))
    for found in _both(PATTERNS, source, int1):
        np.testing.assert_array_equal(found, values != 0)


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_literals_are_the_patterns(dtype: DType) -> None:
    largest = {float8e4nv: 0x7E, float8e5: 0x7B}[dtype]
    for bits in [*range(largest + 1), *range(0x80, 0x81 + largest)]:
        signed = bits - 256 if bits & 0x80 else bits
        assert literal(value_of(bits, dtype), dtype) == f"{signed} : i8"
    for value, signed in ((np.inf, largest), (-1e9, largest - 128), (np.nan, 0x7F)):
        assert literal(float(value), dtype) == f"{signed} : i8"


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_bits_move_unchanged(dtype: DType) -> None:
    values = PATTERNS.view(to_numpy(dtype))
    assert _patterns(apply_emitted("bitcast", (PATTERNS,), dtype=dtype)) == list(range(256))
    assert _patterns(apply_emitted("bitcast", (values,), dtype=uint8)) == list(range(256))
    condition = PATTERNS % 3 == 0
    for run in (apply_emitted, apply):
        chosen = run("select", (condition, values, values[::-1].copy()), shape=(256,), dtype=dtype)
        expected = np.where(condition, PATTERNS, PATTERNS[::-1])
        np.testing.assert_array_equal(chosen.view(np.uint8), expected)
