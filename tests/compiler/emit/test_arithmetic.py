"""Emitted arithmetic gives the interpreter's bits, on every dtype and where it is hard."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.emitted import apply_emitted
from helpers.tile_operation import Array, apply
from tilewright.abi.dtypes import (
    ALL,
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    uint32,
    uint64,
)
from tilewright.abi.numpy_types import to_numpy

_FLOATS = (float16, bfloat16, float32, float64)
_INTEGERS = tuple(d for d in ALL if d.is_integer and d.bits > 1)
_COMPUTED = tuple(d for d in ALL if d.has_arithmetic)

_FLOAT_VALUES = [
    *(0.0, -0.0, 1, -1, 0.5, 1.5, -2.5, 3, 7, 100, -1000, 1e-3, np.inf, -np.inf, np.nan),
    *(65504, 1e-7, -1e-40, 3e38, 1e-45, 2.0**31, -(2.0**31), 2.0**63, 255, 256, -129, 127.5),
    *(1 / 3, np.pi, 1e10, 2.0**24 + 1),
]


def _values(dtype: DType) -> Array:
    if dtype.bits == 1:
        return np.array([False, True])
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.array(_FLOAT_VALUES).astype(to_numpy(dtype))
    limits = np.iinfo(to_numpy(dtype))
    high = limits.max
    small = [0, 1, 2, 3, 5, 7, 10, 31, 100, high, high - 1, high // 2, high // 3, high - 100]
    signed = [limits.min, limits.min + 1, -1, -2, -7] if limits.min else []
    return np.array([*small, *signed], to_numpy(dtype))


def _padded(values: Array) -> Array:
    size = 1 << (len(values) - 1).bit_length()
    return np.concatenate([values, values[: size - len(values)]])


def _pairs(dtype: DType) -> tuple[Array, Array]:
    left, right = np.meshgrid(_values(dtype), _values(dtype))
    return _padded(left.ravel()), _padded(right.ravel())


def _assert_same(got: Array, want: Array) -> None:
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    # float64 holds every narrower value; NaN equals NaN, and the sign of a zero counts.
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", _COMPUTED, ids=str)
def test_binary(name: str, dtype: DType) -> None:
    pair = _pairs(dtype)
    _assert_same(apply_emitted(name, pair), apply(name, pair))


@pytest.mark.parametrize("name", ["div", "rem"])
@pytest.mark.parametrize("dtype", [*_FLOATS, *_INTEGERS], ids=str)
def test_division(name: str, dtype: DType) -> None:
    left, right = _pairs(dtype)
    if dtype.is_integer:  # undefined: by zero, and the lowest value by -1
        lowest = np.iinfo(to_numpy(dtype)).min
        defined = (right != 0) & ((left != lowest) | (right + 1 != 0))
        left, right = np.where(defined, left, 1), np.where(defined, right, 1)
        left, right = left.astype(to_numpy(dtype)), right.astype(to_numpy(dtype))
    _assert_same(apply_emitted(name, (left, right)), apply(name, (left, right)))


@pytest.mark.parametrize("name", ["and", "or", "xor"])
@pytest.mark.parametrize("dtype", [int1, int32, uint64], ids=str)
def test_bits(name: str, dtype: DType) -> None:
    pair = _pairs(dtype)
    _assert_same(apply_emitted(name, pair), apply(name, pair))


@pytest.mark.parametrize("name", ["shl", "shr"])
@pytest.mark.parametrize("dtype", _INTEGERS, ids=str)
def test_shifts(name: str, dtype: DType) -> None:
    values, _ = _pairs(dtype)
    amounts = (np.arange(len(values)) % dtype.bits).astype(values.dtype)
    _assert_same(apply_emitted(name, (values, amounts)), apply(name, (values, amounts)))


@pytest.mark.parametrize("name", ["neg", "abs"])
@pytest.mark.parametrize("dtype", [*_FLOATS, *_INTEGERS], ids=str)
def test_unary(name: str, dtype: DType) -> None:
    values = _padded(_values(dtype))
    _assert_same(apply_emitted(name, (values,)), apply(name, (values,)))


@pytest.mark.parametrize("predicate", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", [int1, int32, uint32, float16, bfloat16, float32], ids=str)
def test_comparison(predicate: str, dtype: DType) -> None:
    pair = _pairs(dtype)
    got = apply_emitted("cmp", pair, dtype=int1, predicate=predicate)
    _assert_same(got, apply("cmp", pair, dtype=int1, predicate=predicate))


@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_cast(source: DType, target: DType) -> None:
    values = _padded(_values(source))
    _assert_same(
        apply_emitted("cast", (values,), dtype=target), apply("cast", (values,), dtype=target)
    )


@pytest.mark.parametrize("source", [int32, uint32, int64, uint64], ids=str)
def test_integer_to_bf16_rounds_once(source: DType) -> None:
    # One above a tie: f32 drops the 1, and a second rounding would then tie to even.
    tie = 2**30 + 2**22
    values = np.array([tie, tie + 1, tie - 1, tie + 2**23] * 8, to_numpy(source))
    got = apply_emitted("cast", (values,), dtype=bfloat16)
    assert got[:4].astype(np.int64).tolist() == [2**30, 2**30 + 2**23, 2**30, 2**30 + 2**24]


def test_select_takes_from_both_sides() -> None:
    condition = np.arange(64) % 3 == 0
    left, right = np.arange(64, dtype=np.float32), -np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(
        apply_emitted("select", (condition, left, right), shape=(64,), dtype=float32),
        np.where(condition, left, right),
    )


def test_bitcast_keeps_bits() -> None:
    values = np.array([1.0, -2.5, 0.0, np.inf] * 8, np.float32)
    np.testing.assert_array_equal(
        apply_emitted("bitcast", (values,), dtype=int32), values.view(np.int32)
    )


@pytest.mark.parametrize("dtype", [int32, uint32, int64, uint64], ids=str)
def test_the_upper_half_of_a_product(dtype: DType) -> None:
    random = np.random.default_rng(5)
    drawn = np.frombuffer(random.bytes(2 * 512 * dtype.size_bytes), to_numpy(dtype))
    pairs = [np.concatenate([a, b]) for a, b in zip(_pairs(dtype), np.split(drawn, 2), strict=True)]
    size = 1 << (len(pairs[0]) - 1).bit_length()
    left, right = (np.resize(values, size) for values in pairs)
    expected = [int(a) * int(b) >> dtype.bits for a, b in zip(left, right, strict=True)]
    for got in (apply("mulhi", (left, right)), apply_emitted("mulhi", (left, right))):
        assert got.tolist() == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (float32, float16),
        (float32, bfloat16),
        (float64, float16),
        (float64, bfloat16),
        (float64, float32),
    ],
    ids=str,
)
def test_a_float_is_cut_off_towards_zero(source: DType, target: DType) -> None:
    random = np.random.default_rng(9)
    bits = np.frombuffer(random.bytes(900 * source.size_bytes), to_numpy(source))
    near = random.standard_normal(900) * 10.0 ** random.uniform(-9, 6, 900)
    with np.errstate(all="ignore"):
        near = near.astype(to_numpy(source))
    values = np.concatenate([_values(source), bits, near])
    values = np.resize(values, 2048)
    got = apply("truncate", (values,), dtype=target)
    _assert_same(apply_emitted("truncate", (values,), dtype=target), got)
    with np.errstate(all="ignore"):
        wide = got.astype(np.float64)
        beyond = np.nextafter(got, np.copysign(to_numpy(target).type(np.inf), got))
        is_finite = np.isfinite(values)
        np.testing.assert_array_equal(np.isnan(values), np.isnan(wide))
        np.testing.assert_array_equal(np.isinf(values), np.isinf(wide))
        magnitude = np.abs(values[is_finite].astype(np.float64))
        assert (np.abs(wide[is_finite]) <= magnitude).all()
        assert (np.abs(beyond.astype(np.float64))[is_finite] > magnitude).all()
    np.testing.assert_array_equal(np.signbit(wide[is_finite]), np.signbit(values[is_finite]))
