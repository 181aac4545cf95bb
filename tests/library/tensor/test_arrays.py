"""What operations need of arrays: the form that a launch takes, batches cut, outputs."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.abi.dtypes import float32, int64
from tilewright.abi.signature import Fact, PointerFact, ScalarFact, specialize
from tilewright.errors import ArgumentError
from tilewright.kernels.reduce import sum_rows
from tilewright.tensor.arrays import (
    as_array,
    as_number,
    is_fast,
    output,
)
from tilewright.tensor.configurations import DotConfiguration
from tilewright.tensor.products import check_choice, count_tiles

INTEGERS = st.sampled_from([0, 1, 8, 16, -32, 2**31 - 16, 2**31, -(2**31), 2**40])


@given(offset=st.integers(0, 5), integers=st.lists(INTEGERS, min_size=8, max_size=8))
def test_the_form_is_that_of_the_launch(offset: int, integers: list[int]) -> None:
    memory = np.zeros(64, np.float32)
    pointers = (memory[offset:], memory[32:])
    names = [p.name for p in sum_rows.parameters if not p.is_constexpr]
    facts: dict[str, Fact] = {
        name: PointerFact(float32, array.ctypes.data)
        for name, array in zip(names, pointers, strict=False)
    }
    facts |= {
        name: ScalarFact(int64, value) for name, value in zip(names[2:], integers, strict=True)
    }
    launched = specialize(facts, rule=sum_rows.rule, num_warps=4, num_stages=3)
    found = is_fast(sum_rows, pointers, tuple(integers))
    assert found == (launched.specialization == "fast")


def test_an_output_of_a_dtype_of_its_own() -> None:
    like = np.zeros((3,), np.float16)
    made = output(None, (2, 2), like, float32)
    assert made.shape == (2, 2)
    assert made.dtype == np.float32
    with pytest.raises(ArgumentError, match="out has dtype f16, the result has f32"):
        output(like, (3,), like, float32)


def test_more_tiles_than_a_grid_holds_are_refused() -> None:
    tiles = DotConfiguration(64, 64, 32, 4, 2)
    assert count_tiles(65, 64 * 2**20, tiles) == 2 * 2**20
    with pytest.raises(ArgumentError, match="compute them in parts"):
        count_tiles(1, 64 * 2**28, tiles)


def test_a_choice_names_what_there_is() -> None:
    with pytest.raises(ArgumentError, match="colour is 'red'; it is one of 'blue', 'green'"):
        check_choice("colour", "red", ("blue", "green"))


def test_strides_between_elements_are_refused() -> None:
    records = np.zeros((3, 4), np.dtype([("x", np.float64), ("y", np.uint32)]))
    with pytest.raises(ArgumentError, match=r"x has strides of \(48, 12\) bytes"):
        as_array(records["x"], name="x")
    with pytest.raises(ArgumentError, match="out has strides"):
        output(records["x"], (3, 4), np.zeros(1))
    single = records["x"][:1, :1]
    assert as_array(single, name="x") is single


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ma.masked_array([1.0, 2.0], [True, False]), r"x is a masked array.*x\.filled"),
        ([1.0], "x is of list; an array is needed: NumPy's"),
        (np.float32(1), "x is of float32; an array is needed"),
        (np.zeros(3, "U0"), "<U0|<U1"),
    ],
)
def test_what_is_no_array_of_elements_is_refused(value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        as_array(value, name="x")


def test_a_result_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(ArgumentError, match="more bytes than can be addressed"):
        output(None, (2**40, 2**40), np.zeros(1))


@pytest.mark.parametrize("value", [10**400, 1j, np.complex64(1), "1", None, np.zeros(2)])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match="alpha is"):
        as_number(value, name="alpha")


@pytest.mark.parametrize(
    "value",
    [0.5, Fraction(1, 2), np.float16(0.5), ml_dtypes.bfloat16(0.5), np.array(0.5, np.float32)],
    ids=lambda value: type(value).__name__,
)
def test_scalars_of_every_kind_are_numbers(value: object) -> None:
    assert as_number(value, name="alpha") == 0.5
    assert as_number(np.bool_(True), name="alpha") == 1


def test_a_choice_is_a_string_or_none() -> None:
    with pytest.raises(ArgumentError, match=r"activation is \['relu'\]"):
        check_choice("activation", ["relu"], (None, "relu"))
