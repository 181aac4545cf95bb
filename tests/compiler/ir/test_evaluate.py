"""Constants against NumPy and ml_dtypes: every defined result has their bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strategies import values_of
from tilewright.abi.dtypes import ALL, DType, bfloat16, float16, float32, float64, int1, int8, int64
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.interpret import numerics
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.evaluate import Constant, evaluate, is_exact_cast
from tilewright_compiler.ir.ops.arithmetic import BINARY, PREDICATES
from tilewright_compiler.ir.types import ScalarType

_COMPUTED = tuple(dtype for dtype in ALL if dtype.has_arithmetic)
_FLOATS = (float16, bfloat16, float32, float64)
_BITS = ("mulhi", "and", "or", "xor", "shl", "shr")


def any_value(dtype: DType) -> st.SearchStrategy[Constant]:
    if not dtype.is_float:
        return values_of(dtype)
    return values_of(dtype) | st.floats(allow_nan=False)


def operation(name: str, operands: list[DType], result: DType, **attributes: str) -> Operation:
    values = tuple(Value(ScalarType(dtype)) for dtype in operands)
    return Operation(name, values, (Value(ScalarType(result)),), dict(attributes))


def assert_same(got: Constant | None, expected: numerics.Array, dtype: DType) -> None:
    """Compare with an array of one element; a None is a refusal, which others tests judge."""
    if got is None:
        return
    ours = np.asarray(got).astype(to_numpy(dtype))
    assert float(ours.astype(np.float64)) == got or not dtype.is_float, "more digits than kept"
    assert ours.tobytes() == expected.astype(to_numpy(dtype)).tobytes(), (got, expected)


@settings(max_examples=400)
@given(data=st.data())
def test_binary_has_numpys_bits(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(_COMPUTED))
    names = [name for name in BINARY if not (dtype.is_float and name in _BITS)]
    name = data.draw(st.sampled_from(names))
    left, right = data.draw(any_value(dtype)), data.draw(any_value(dtype))
    got = evaluate(operation(name, [dtype, dtype], dtype), [left, right])
    with np.errstate(all="ignore"):
        expected = numerics.binary(
            name, numerics.constant(left, dtype), numerics.constant(right, dtype), dtype
        )
    assert_same(got, expected, dtype)


@settings(max_examples=400)
@given(data=st.data())
def test_cast_has_numpys_bits(data: st.DataObject) -> None:
    source, target = data.draw(st.sampled_from(ALL)), data.draw(st.sampled_from(ALL))
    value = data.draw(any_value(source))
    got = evaluate(operation("cast", [source], target), [value])
    with np.errstate(all="ignore"):
        expected = numerics.cast(numerics.constant(value, source), source, target)
    assert got is not None
    assert_same(got, expected, target)


@settings(max_examples=400)
@given(data=st.data())
def test_compare_and_unary_have_numpys_bits(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(_COMPUTED))
    left, right = data.draw(any_value(dtype)), data.draw(any_value(dtype))
    predicate = data.draw(st.sampled_from(PREDICATES))
    with np.errstate(all="ignore"):
        a, b = numerics.constant(left, dtype), numerics.constant(right, dtype)
    got = evaluate(operation("cmp", [dtype, dtype], int1, predicate=predicate), [left, right])
    assert got is bool(numerics.compare(predicate, a, b)[0])
    with np.errstate(all="ignore"):
        assert_same(
            evaluate(operation("neg", [dtype], dtype), [left]), numerics.negate(a, dtype), dtype
        )
        assert_same(
            evaluate(operation("abs", [dtype], dtype), [left]), numerics.absolute(a, dtype), dtype
        )
        if dtype.is_float:
            for name in ("sqrt", "floor", "ceil"):
                got = evaluate(operation(name, [dtype], dtype), [left])
                assert_same(got, numerics.function(name, a, dtype), dtype)


@given(pattern=st.integers(0, 2**16 - 1), dtype=st.sampled_from([float16, bfloat16]))
@example(pattern=0x8000, dtype=bfloat16)
def test_bitcast_of_every_half(pattern: int, dtype: DType) -> None:
    (expected,) = np.array([pattern], np.uint16).view(to_numpy(dtype)).astype(np.float64)
    word = DType("u16", "uint", 16)
    got = evaluate(operation("bitcast", [word], dtype), [pattern])
    if math.isnan(expected):
        assert got is None
        return
    assert got == expected
    assert evaluate(operation("bitcast", [dtype], word), [float(expected)]) == pattern


@pytest.mark.parametrize(
    ("name", "dtype", "operands"),
    [
        ("div", int64, [1, 0]),
        ("rem", int64, [1, 0]),
        ("div", float32, [1.0, 0.0]),
        ("shl", int8, [1, 8]),
        ("shr", int8, [1, -1]),
        ("add", float32, [math.inf, 1.0]),
        ("mul", float32, [math.nan, 1.0]),
        ("sqrt", float32, [-1.0]),
        ("exp", float32, [0.0]),
    ],
)
def test_undecided(name: str, dtype: DType, operands: list[Constant]) -> None:
    assert evaluate(operation(name, [dtype] * len(operands), dtype), operands) is None


@pytest.mark.parametrize(
    ("name", "dtype", "operands", "expected"),
    [
        ("add", int8, [127, 1], -128),
        ("div", int64, [-7, 2], -3),
        ("rem", int64, [-7, 2], -1),
        ("shr", int64, [-8, 1], -4),
        ("add", bfloat16, [1.0, 2.0**-9], 1.0),
        ("mul", float16, [300.0, 300.0], math.inf),
        ("div", float32, [1.0, 3.0], float(np.float32(1) / np.float32(3))),
        ("min", float32, [0.0, -0.0], -0.0),
    ],
)
def test_decided(name: str, dtype: DType, operands: list[Constant], expected: Constant) -> None:
    got = evaluate(operation(name, [dtype] * len(operands), dtype), operands)
    assert repr(got) == repr(expected)


def test_exact_casts_are_those_that_lose_no_value() -> None:
    exact = {
        (source.name, target.name)
        for source in (int1, int8, int64, float16, bfloat16, float32)
        for target in (int1, int8, int64, float16, bfloat16, float32)
        if is_exact_cast(source, target)
    }
    assert exact == {
        *((name, name) for name in ("i1", "i8", "i64", "f16", "bf16", "f32")),
        *(("i1", name) for name in ("i8", "i64", "f16", "bf16", "f32")),
        *(("i8", name) for name in ("i64", "f16", "bf16", "f32")),
        ("f16", "f32"),
        ("bf16", "f32"),
    }
