"""Random fills and dropout: bits equal to the reference, whatever the shape, and fair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, SIDES, HostArray, poisoned, run
from tilewright.abi.dtypes import BY_NAME, DType, float32, float64, int8, int32, int64, uint64
from tilewright.abi.numpy_types import to_numpy
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.reference import random as reference
from tilewright.tensor import random as random_module
from tilewright.tensor.launches import forget_plans

# Host arrays give host arrays, device arrays device arrays: a union would not say which.
random: Any = random_module

SEEDS = [(0, 0), (2**40 + 3, 5), (-1, 2**33 - 1), (2**64 - 1, 2**64 - 2)]


def drawn(side: str, operation: Any, *, shape: Any, dtype: DType, **options: Any) -> HostArray:
    """Fill an array on a side."""
    out = np.zeros(shape, to_numpy(dtype))
    if side == "host":
        operation(out=out, shape=shape, dtype=dtype, **options)
        return out
    return np.asarray(operation(shape=shape, dtype=dtype, **options).numpy())


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", [*DTYPES, "f64"])
@pytest.mark.parametrize(("seed", "offset"), SEEDS)
@pytest.mark.parametrize("shape", [(1,), (4097,), (3, 5, 7), ()], ids=str)
def test_uniform_numbers_are_those_of_the_reference(
    shape: tuple[int, ...], seed: int, offset: int, dtype: str, side: str
) -> None:
    if side == "gpu" and dtype == "f64":
        pytest.skip("f64 is compiled just in time, not bundled")
    options: dict[str, Any] = {"seed": seed, "offset": offset, "dtype": BY_NAME[dtype]}
    found = drawn(side, random.rand, shape=shape, **options)
    assert np.array_equal(found, reference.rand(shape, **options))
    assert (found >= 0).all()
    assert (found < 1).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_numbers_are_close_to_those_of_the_reference(dtype: str, side: str) -> None:
    options: dict[str, Any] = {"seed": 3, "dtype": BY_NAME[dtype]}
    found = drawn(side, random.randn, shape=(5003,), **options)
    expected = reference.randn((5003,), **options)
    tolerance = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}[dtype]
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=1e-5
    )
    assert abs(found.astype(np.float64).mean()) < 0.05
    assert abs(found.astype(np.float64).std() - 1) < 0.05


BOUNDS = [
    (0, 10, int32),
    (-5, -4, int64),
    (-(2**31), 2**31, int32),
    (0, 2**32, int64),
    (2**31, 2**33, int64),
    (-(2**63), 2**63, int64),
    (0, 2**64, uint64),
    (-128, 128, int8),
]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("low", "high", "dtype"), BOUNDS, ids=str)
def test_integers_are_those_of_the_reference(low: int, high: int, dtype: DType, side: str) -> None:
    if side == "gpu" and dtype not in (int32, int64):
        pytest.skip("compiled just in time, not bundled")
    options: dict[str, Any] = {"low": low, "high": high, "seed": 7, "offset": 2, "dtype": dtype}
    found = drawn(side, random.randint, shape=(301,), **options)
    assert np.array_equal(found, reference.randint(shape=(301,), **options))
    assert all(low <= number < high for number in found.tolist())


def test_words_are_the_known_answers_of_random123() -> None:
    assert [hex(word) for word in reference.words(4, seed=0)] == [
        "0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8",
    ]  # fmt: skip


@pytest.mark.parametrize("side", SIDES)
def test_numbers_do_not_depend_on_the_shape(side: str) -> None:
    flat = drawn(side, random.rand, shape=(6000,), dtype=float32, seed=5)
    found = drawn(side, random.rand, shape=(6, 10, 100), dtype=float32, seed=5)
    assert np.array_equal(found.reshape(-1), flat)
    tail = drawn(side, random.rand, shape=(1000,), dtype=float32, seed=5, offset=1250)
    assert np.array_equal(tail, flat[5000:])


def test_pieces_of_large_arrays_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(1000, np.float32)
    expected = [random.rand(1000, seed=5, out=x.copy()), random.dropout(x, 0.5, seed=5)]
    long = random.randint(0, 9, shape=1000, seed=5, out=np.zeros(1000, np.int64))
    monkeypatch.setattr(random, "_PIECE", 128)
    forget_plans()
    assert np.array_equal(random.rand(1000, seed=5, out=x.copy()), expected[0])
    assert np.array_equal(random.dropout(x, 0.5, seed=5), expected[1])
    assert np.array_equal(
        random.randint(0, 9, shape=1000, seed=5, out=np.zeros(1000, np.int64)), long
    )
    forget_plans()


def test_offsets_do_not_repeat_past_32_bits() -> None:
    first, second = (reference.rand((64,), seed=1, offset=offset) for offset in (0, 2**32))
    assert not np.array_equal(first, second)


def test_integers_are_fair() -> None:
    found = reference.randint(0, 6, shape=(60000,), seed=1)
    counts = np.bincount(found)
    assert (abs(counts - 10000) < 500).all()


def test_strided_targets_are_filled_and_nothing_else() -> None:
    whole = np.full((20, 30), -1, np.float32)
    random.rand((10, 10), seed=2, out=whole[::2, 3:23:2])
    assert np.array_equal(whole[::2, 3:23:2], reference.rand((10, 10), seed=2))
    assert (whole == -1).sum() == 500


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("shape", [(1,), (4099,), (7, 33)], ids=str)
def test_dropout(shape: tuple[int, ...], p: float, dtype: str, side: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(DTYPES[dtype])
    options: dict[str, Any] = {"p": p, "seed": 11, "offset": 3}
    found = run(side, random.dropout, x, out=poisoned(shape, x.dtype), **options)
    assert np.array_equal(found, reference.dropout(x, **options))
    if p == 0:
        assert np.array_equal(found, x)
    if p == 1:
        assert not found.any()


@pytest.mark.parametrize("side", SIDES)
def test_the_gradient_of_dropout_has_its_mask(side: str) -> None:
    x = np.ones((1000,), np.float32)
    options: dict[str, Any] = {"p": 0.3, "seed": 1, "offset": 9}
    forward = run(side, random.dropout, x, out=poisoned(x.shape, x.dtype), **options)
    backward = run(side, random.dropout, x * 2, out=poisoned(x.shape, x.dtype), **options)
    assert np.array_equal(backward, forward * 2)
    assert 600 < (forward != 0).sum() < 800
    other = run(side, random.dropout, x, out=poisoned(x.shape, x.dtype), p=0.3, seed=2, offset=9)
    assert not np.array_equal(forward, other)


def test_dropout_of_infinities_leaves_zeros_where_they_are_dropped() -> None:
    x = np.full(64, np.inf, np.float32)
    found = np.asarray(random.dropout(x, 0.5, seed=0))
    assert set(found.tolist()) == {0.0, np.inf}
    assert not np.asarray(random.dropout(x, 1, seed=0)).any()


def test_dropout_of_strided_and_empty_arrays() -> None:
    base = np.random.default_rng(0).standard_normal((40, 30))
    view = base.T[::2]
    found = random.dropout(view, 0.4, seed=5)
    assert np.array_equal(found, reference.dropout(np.ascontiguousarray(view), 0.4, seed=5))
    assert np.asarray(random.dropout(base[:0], 0.4, seed=5)).shape == (0, 30)


def test_values_that_are_not_allowed_are_named() -> None:
    x = np.zeros(4, np.float32)
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ArgumentValueError, match=r"a probability lies in \[0, 1\]"):
            random.dropout(x, p, seed=0)
    with pytest.raises(ValueError, match="seed is"):
        random.dropout(x, 0.5, seed=2**64)
    with pytest.raises(ArgumentError, match="seed is of float"):
        random.dropout(x, 0.5, seed=1.5)
    with pytest.raises(ArgumentValueError, match="offset is -1"):
        random.rand(4, seed=0, offset=-1, out=x)
    with pytest.raises(ArgumentValueError, match="randint from 3 to 3"):
        random.randint(3, 3, shape=4, seed=0)
    with pytest.raises(ArgumentValueError, match="i8 holds integers from -128 to 127"):
        random.randint(0, 129, shape=4, seed=0, dtype=int8)
    with pytest.raises(ArgumentError, match="dropout takes floating-point numbers, got i32"):
        random.dropout(x.astype(np.int32), 0.5, seed=0)


@pytest.mark.gpu
@requires_gpu()
def test_elements_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import zeros

    out = zeros(2**31 + 100, float16)
    random.rand(out.shape, seed=1, dtype=float16, out=out)
    expected = reference.rand((128,), seed=1, offset=2**29 - 7, dtype=float16)
    assert np.array_equal(out[-128:].numpy(), expected)


def test_f64_has_53_random_bits() -> None:
    found = reference.rand((1000,), seed=4, dtype=float64)
    assert len({number * 2**53 % 2**20 for number in found.tolist()}) > 900
