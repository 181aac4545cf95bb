"""Shapes and dtypes of results, against NumPy's rules and the language's own."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.abi import dtypes
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend.infer_types import (
    MAX_TILE_ELEMENTS,
    arithmetic_dtype,
    broadcast_shapes,
    common_dtype,
    dtype_name,
    join_leaves,
    sum_dtypes,
    tile_of,
)
from tilewright_compiler.frontend.operands import Constant, Operand
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import PointerType, ScalarType, TileType

SHAPES = st.lists(st.sampled_from([1, 2, 4]), max_size=4).map(tuple)


@given(SHAPES, SHAPES)
def test_shapes_broadcast_as_in_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(KernelTypeError, match="do not broadcast"):
            broadcast_shapes(left, right)
    else:
        assert broadcast_shapes(left, right) == expected


def test_tile_of_no_axes_is_the_element() -> None:
    assert tile_of((), ScalarType(dtypes.float32)) == ScalarType(dtypes.float32)


def test_largest_tile_is_allowed_and_the_next_is_not() -> None:
    element = ScalarType(dtypes.int8)
    assert tile_of((MAX_TILE_ELEMENTS,), element) == TileType((MAX_TILE_ELEMENTS,), element)
    with pytest.raises(KernelValueError, match=f"at most {MAX_TILE_ELEMENTS}"):
        tile_of((2, MAX_TILE_ELEMENTS), element)


def _operand(text: str) -> Operand:
    if text in dtypes.BY_NAME:
        return Value(ScalarType(dtypes.BY_NAME[text]))
    return Constant(ast.literal_eval(text))


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ("i32 i64", "i64"),
        ("i32 u32", "u32"),
        ("i8 f16", "f16"),
        ("f16 bf16", "f32"),
        ("i64 f16 1", "f16"),
        ("i8 1 i32", "i32"),
        ("i8 300 i32", "i32"),
        ("f16 1.5", "f16"),
        ("i8 1.5", "f32"),
        ("i1 True", "i1"),
        ("i1 1", "i32"),
        ("1 2.5", "f32"),
        ("1 5000000000", "i64"),
    ],
)
def test_run_time_values_promote_before_numbers_join(operands: str, expected: str) -> None:
    found = common_dtype(tuple(_operand(text) for text in operands.split()), "`+`")
    assert found.name == expected


@pytest.mark.parametrize(
    ("symbol", "dtype", "expected"),
    [
        ("/", "i64", "f32"),
        ("/", "i1", "f32"),
        ("/", "f16", "f16"),
        ("+", "i1", "i32"),
        ("//", "i1", "i32"),
        ("&", "i1", "i1"),
        ("<<", "u8", "u8"),
    ],
)
def test_operators_choose_the_dtype_they_compute_in(symbol: str, dtype: str, expected: str) -> None:
    assert arithmetic_dtype(symbol, dtypes.BY_NAME[dtype]).name == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f16", ("f32", "f16")),
        ("bf16", ("f32", "bf16")),
        ("f32", ("f32", "f32")),
        ("f64", ("f64", "f64")),
        ("i1", ("i32", "i32")),
        ("i8", ("i32", "i32")),
        ("u16", ("u32", "u32")),
        ("i64", ("i64", "i64")),
    ],
)
def test_sums_accumulate_wide_enough(dtype: str, expected: tuple[str, str]) -> None:
    accumulator, result = sum_dtypes(dtypes.BY_NAME[dtype])
    assert (accumulator.name, result.name) == expected


def test_pointers_join_only_with_their_own_type() -> None:
    pointer = Value(PointerType(dtypes.float32))
    assert join_leaves(pointer, Value(PointerType(dtypes.float32))) == pointer.type
    assert join_leaves(pointer, Value(PointerType(dtypes.float16))) is None
    assert join_leaves(pointer, Constant(0)) is None


@pytest.mark.parametrize(
    ("number", "dtype", "joins"),
    [
        (1, "f16", True),
        (1.5, "i32", False),
        (True, "i32", False),
        (True, "i1", True),
        (1, "i1", False),
    ],
)
def test_number_joins_a_value_only_within_its_kind(
    number: bool | int | float, dtype: str, joins: bool
) -> None:
    tile = Value(TileType((8,), ScalarType(dtypes.BY_NAME[dtype])))
    assert join_leaves(Constant(number), tile) == (tile.type if joins else None)


def test_dtypes_have_the_names_of_the_language() -> None:
    import tilewright.language as tl

    for dtype in dtypes.ALL:
        name = dtype_name(dtype)
        assert name.startswith("tl.")
        assert getattr(tl, name.removeprefix("tl.")) is dtype
