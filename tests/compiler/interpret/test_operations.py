"""Every operation of the set, run through IR on small tiles."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.tile_operation import apply
from tilewright.abi.dtypes import bfloat16, float16, int1, int8, int32, int64, uint32
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.interpret.ops import COMPUTE, CONTROL
from tilewright_compiler.ir.ops import SPECS, roles, shared

A = np.array([7, -7, 7, -7], np.int32)
B = np.array([2, 2, -2, -2], np.int32)
X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)


def test_every_operation_is_implemented() -> None:
    terminators = {name for name, spec in SPECS.items() if spec.terminator}
    assert terminators == {"yield", "condition", "return"}
    # Row kernels run scheduled as well; in lockstep, a barrier does nothing.
    of_schedules = {spec.name for spec in (*shared.SPECS, *roles.SPECS)} - {"barrier"}
    assert COMPUTE.keys() | CONTROL.keys() == SPECS.keys() - terminators - of_schedules
    assert not COMPUTE.keys() & CONTROL.keys()
    assert SPECS.keys() - terminators - {"call", "tma_tile"} == scheduled.OPERATIONS


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("add", [9, -5, 5, -9]),
        ("sub", [5, -9, 9, -5]),
        ("mul", [14, -14, -14, 14]),
        ("div", [3, -3, -3, 3]),
        ("rem", [1, -1, 1, -1]),
        ("min", [2, -7, -2, -7]),
        ("max", [7, 2, 7, -2]),
        ("and", [2, 0, 6, -8]),
        ("or", [7, -5, -1, -1]),
        ("xor", [5, -5, -7, 7]),
    ],
)
def test_integer_arithmetic(name: str, result: list[int]) -> None:
    assert apply(name, [A, B]).tolist() == result


def test_shifts_beyond_the_width_give_what_is_left() -> None:
    amounts = np.array([1, 31, 32, 40], np.int32)
    assert apply("shl", [np.full(4, 3, np.int32), amounts]).tolist() == [6, -(2**31), 0, 0]
    assert apply("shr", [np.full(4, -8, np.int32), amounts]).tolist() == [-4, -1, -1, -1]
    assert apply("shr", [np.full(4, 8, np.uint32), amounts.view(np.uint32)]).tolist() == [
        4,
        0,
        0,
        0,
    ]


def test_unsigned_comparison_sees_large_numbers() -> None:
    x, y = np.array([2**31, 1], np.uint32), np.array([1, 2**31], np.uint32)
    assert apply("cmp", [x, y], dtype=int1, predicate="lt").tolist() == [False, True]


def test_comparison_with_nan_is_false_but_for_ne() -> None:
    x = np.array([math.nan, 1.0], np.float32)
    for predicate, result in {"eq": False, "le": False, "ge": False, "ne": True}.items():
        found = apply("cmp", [x, x], dtype=int1, predicate=predicate)
        assert found.tolist() == [result, predicate in ("eq", "le", "ge")]


def test_select_takes_elements_and_not_their_products() -> None:
    mask = np.array([True, False])
    x, y = (
        np.array([1.0, math.nan], ml_dtypes.bfloat16),
        np.array([math.inf, 2.0], ml_dtypes.bfloat16),
    )
    assert apply("select", [mask, x, y], dtype=bfloat16).tolist() == [1.0, 2.0]


def test_cast_truncates_and_saturates() -> None:
    x = np.array([1.9, -1.9, 3e9, math.nan], np.float32)
    assert apply("cast", [x], dtype=int32).tolist() == [1, -1, 2**31 - 1, 0]
    assert apply("cast", [x], dtype=uint32).tolist() == [1, 0, 3_000_000_000, 0]
    assert apply("cast", [x], dtype=int8).tolist() == [1, -1, 127, 0]
    assert apply("cast", [np.full(2, 1e30)], dtype=int64).tolist() == [2**63 - 1] * 2


def test_cast_to_a_narrow_float_overflows_to_infinity() -> None:
    x = np.array([65519.0, 65520.0], np.float32)
    assert apply("cast", [x], dtype=float16).tolist() == [65504.0, math.inf]


def test_bitcast_keeps_bits() -> None:
    x = np.array([1.0, -0.0], np.float32)
    assert apply("bitcast", [x], dtype=uint32).tolist() == [0x3F800000, 0x80000000]


def test_neg_and_abs() -> None:
    assert apply("neg", [A]).tolist() == [-7, 7, -7, 7]
    assert apply("abs", [A]).tolist() == [7] * 4
    assert apply("neg", [np.array([1, 0], np.uint8)]).tolist() == [255, 0]


def test_each_operation_on_narrow_floats_is_rounded() -> None:
    one, tiny = np.ones(2, ml_dtypes.bfloat16), np.full(2, 2**-9, ml_dtypes.bfloat16)
    assert apply("add", [one, tiny]).tolist() == [1.0, 1.0]


def test_functions_run_elementwise() -> None:
    assert apply("sqrt", [np.array([4.0, 9.0], np.float16)]).tolist() == [2.0, 3.0]
    three = [np.full(2, value, np.float32) for value in (2.0, 3.0, 1.0)]
    assert apply("fma", three).tolist() == [7.0, 7.0]


def test_arange_starts_where_it_is_told() -> None:
    assert apply("arange", [], dtype=int32, shape=(4,), start=-2, end=2).tolist() == [-2, -1, 0, 1]


@pytest.mark.parametrize(("value", "dtype"), [(True, int1), (2.5, float16), (-3, int64)], ids=str)
def test_constant(value: float, dtype: Any) -> None:
    assert apply("constant", [], dtype=dtype, shape=(), value=value)[()] == value


def test_num_programs_counts_one() -> None:
    assert apply("num_programs", [], dtype=int64, shape=(), axis=2)[()] == 1
    assert apply("program_id", [], dtype=int64, shape=(), axis=2)[()] == 0


def test_shapes_change_in_row_major_order() -> None:
    assert apply("transpose", [X], shape=(4, 2), order=(1, 0)).tolist() == X.T.tolist()
    assert apply("reshape", [X], shape=(8,)).tolist() == X.reshape(8).tolist()
    assert apply("expand_dims", [X], shape=(2, 1, 4), axis=1).tolist() == X[:, None].tolist()
    assert apply("broadcast", [X[:1]], shape=(2, 4)).tolist() == [X[0].tolist()] * 2
    assert apply("splat", [np.array(3.0)], shape=(2, 2)).tolist() == [[3.0, 3.0]] * 2
    assert apply("convert_layout", [X]).tolist() == X.tolist()


def test_transposes_of_three_axes_take_result_axes_from_the_order() -> None:
    x = np.arange(16, dtype=np.int32).reshape(2, 4, 2)
    found = apply("transpose", [x], shape=(4, 2, 2), order=(1, 2, 0))
    assert found.tolist() == x.transpose(1, 2, 0).tolist()


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(axis: int) -> None:
    shape = (4, 2)[axis : axis + 1]
    for kind, result in {"sum": X.sum(axis), "max": X.max(axis), "min": X.min(axis)}.items():
        found = apply("reduce", [X], shape=shape, axis=axis, kind=kind)
        assert found.tolist() == result.tolist()


def test_reducing_a_vector_gives_a_scalar() -> None:
    assert apply("reduce", [X[0]], shape=(), axis=0, kind="sum")[()] == 10


def test_sum_is_a_tree_that_halves() -> None:
    # (1 + -1) and (2**-24 + 2**-24) meet first; from left to right the small ones would be lost.
    x = np.array([1, 2**-24, -1, 2**-24], np.float32)
    assert apply("reduce", [x], shape=(), axis=0, kind="sum")[()] == 2**-23
    left_to_right = np.float32(np.float32(1 + 2**-24) - 1) + np.float32(2**-24)
    assert left_to_right == 2**-24


def test_extremes_propagate_nan_and_order_zeros() -> None:
    nan = np.array([1.0, math.nan, 3.0, 0.0], np.float32)
    zeros = np.array([0.0, -0.0], np.float32)
    for kind, sign in {"max": 1.0, "min": -1.0}.items():
        assert math.isnan(apply("reduce", [nan], shape=(), axis=0, kind=kind)[()])
        found = apply("reduce", [zeros], shape=(), axis=0, kind=kind)[()]
        assert math.copysign(1.0, found) == sign


def test_integer_sums_wrap() -> None:
    x = np.full(4, 2**30, np.int32)
    assert apply("reduce", [x], shape=(), axis=0, kind="sum")[()] == 0
