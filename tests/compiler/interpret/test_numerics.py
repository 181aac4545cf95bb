"""Numerics against independent truths: ml_dtypes, exact fractions, and the constant evaluator."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    uint8,
    uint64,
)
from tilewright.abi.numpy_types import to_numpy
from tilewright_compiler.interpret import numerics
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.evaluate import convert, evaluate, integer_limits
from tilewright_compiler.ir.ops.arithmetic import BINARY, PREDICATES
from tilewright_compiler.ir.types import ScalarType

COMPUTED = tuple(dtype for dtype in ALL if dtype.has_arithmetic)
INTEGER_ONLY = ("mulhi", "and", "or", "xor", "shl", "shr")
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 65504.0, 65520.0, 3.3895e38, 1e-45]


def numbers(dtype: DType) -> st.SearchStrategy[float]:
    """Values of a dtype, its corners often."""
    if dtype == int1:
        return st.booleans()
    if dtype.is_integer:
        low, high = integer_limits(dtype)
        corners = [low, high, 0, 1, high - 1, *([-1] if low else [])]
        return st.one_of(st.sampled_from(corners), st.integers(low, high))
    some = st.one_of(st.sampled_from(SPECIAL), st.floats(width=16), st.floats(width=64))
    return some.map(lambda value: float(one(value, dtype)[0]))


def one(value: float, dtype: DType) -> numerics.Array:
    with np.errstate(all="ignore"):
        return numerics.constant(value, dtype)


def same(left: Any, right: Any) -> bool:
    """Whether two numbers are equal, signs of zero and NaN included."""
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right) and math.copysign(1, left) == math.copysign(1, right)


def item(array: numerics.Array) -> Any:
    return array[0].item() if array.dtype.kind in "biu" else float(array[0])


def expected(
    name: str, operands: list[Any], source: DType, result: DType, **attributes: str
) -> Any:
    """Return what the constant evaluator gives: exact fractions, rounded once."""
    values = tuple(Value(ScalarType(source)) for _ in operands)
    operation = Operation(name, values, (Value(ScalarType(result)),), dict(attributes))
    return evaluate(operation, operands)


@given(st.sampled_from(COMPUTED).flatmap(lambda d: st.tuples(st.just(d), numbers(d), numbers(d))))
def test_arithmetic_is_exact_and_rounded_once(case: tuple[DType, float, float]) -> None:
    dtype, left, right = case
    for name in BINARY:
        if dtype.is_float and name in INTEGER_ONLY:
            continue
        truth = expected(name, [left, right], dtype, dtype)
        with np.errstate(all="ignore"):
            found = numerics.binary(name, one(left, dtype), one(right, dtype), dtype)
        assert found.dtype == to_numpy(dtype)
        assert truth is None or same(item(found), truth), (name, item(found), truth)


@given(st.sampled_from(COMPUTED).flatmap(lambda d: st.tuples(st.just(d), numbers(d), numbers(d))))
def test_comparisons_are_those_of_python(case: tuple[DType, float, float]) -> None:
    dtype, left, right = case
    for predicate in PREDICATES:
        found = numerics.compare(predicate, one(left, dtype), one(right, dtype))
        truth = expected("cmp", [left, right], dtype, int1, predicate=predicate)
        if truth is None:  # NaN
            truth = predicate == "ne"
        assert item(found) is truth, predicate


@given(
    st.sampled_from(ALL).flatmap(
        lambda source: st.tuples(st.just(source), numbers(source), st.sampled_from(ALL))
    )
)
def test_casts_round_once_wrap_and_saturate(case: tuple[DType, float, DType]) -> None:
    source, value, target = case
    with np.errstate(all="ignore"):
        found = item(numerics.cast(one(value, source), source, target))
    if isinstance(value, float) and math.isnan(value):
        nan: dict[str, Any] = {"float": math.nan, "bool": True}
        assert same(found, nan.get(target.kind, 0))
    else:
        assert same(found, convert(value, target))


@given(st.floats(width=32))
def test_rounding_to_bfloat16_is_that_of_ml_dtypes(value: float) -> None:
    wide = np.array([value], np.float32)
    found = numerics.cast(wide, float32, bfloat16)
    truth = wide.astype(ml_dtypes.bfloat16)
    assert np.array_equal(found.view(np.uint16), truth.view(np.uint16)) or math.isnan(value)


@pytest.mark.parametrize("source", [float64, int64, uint64], ids=str)
def test_a_wide_number_just_above_a_tie_rounds_up_to_bfloat16(source: DType) -> None:
    # Rounding to f32 on the way would lose the last bit and then round the tie down.
    value = (1 << 55) + (1 << 47) + 1 if source.is_integer else 1 + 2**-8 + 2**-40
    truth = (1 << 55) + (1 << 48) if source.is_integer else 1 + 2**-7
    assert item(numerics.cast(one(value, source), source, bfloat16)) == truth


@pytest.mark.parametrize(
    ("value", "dtype", "truth"),
    [
        (0.1, float16, 0.0999755859375),
        (257, uint8, 1),
        (-1, uint64, 2**64 - 1),
        (2**31, int32, -(2**31)),
        (1e300, float32, np.inf),
    ],
)
def test_constants_are_rounded_and_wrapped(value: float, dtype: DType, truth: float) -> None:
    assert item(numerics.constant(value, dtype)) == truth


@given(st.sampled_from([d for d in ALL if d.is_integer and d.bits > 1]), st.integers(0, 2**64 - 1))
def test_integer_division_by_zero_gives_all_ones_and_the_dividend(dtype: DType, bits: int) -> None:
    dividend = one(bits, dtype)
    zero = one(0, dtype)
    assert numerics.binary("div", dividend, zero, dtype) == one(-1, dtype)
    assert numerics.binary("rem", dividend, zero, dtype) == dividend


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_minimum_and_maximum_propagate_nan_from_either_side(dtype: DType) -> None:
    nan, number = one(math.nan, dtype), one(1, dtype)
    for name in ("min", "max"):
        assert math.isnan(item(numerics.binary(name, nan, number, dtype)))
        assert math.isnan(item(numerics.binary(name, number, nan, dtype)))


def test_negative_and_absolute_lowest_integer_wraps() -> None:
    lowest = np.array([-(2**31)], np.int32)
    assert numerics.negate(lowest, int32) == lowest
    assert numerics.absolute(lowest, int32) == lowest


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_sign_operations_keep_zero_signs(dtype: DType) -> None:
    assert same(item(numerics.negate(one(0.0, dtype), dtype)), -0.0)
    assert same(item(numerics.absolute(one(-0.0, dtype), dtype)), 0.0)


def exact_fma(left: float, right: float, addend: float, dtype: DType) -> float:
    total = Fraction(left) * Fraction(right) + Fraction(addend)
    if total == 0:
        return left * right + addend  # the sign of an exact zero
    # f64 rounds once already; below, an exact fraction is rounded once by `convert`.
    return float(convert(total, dtype))  # type: ignore[arg-type]  # a Fraction is exact


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@given(data=st.data())
def test_fma_rounds_once(dtype: DType, data: st.DataObject) -> None:
    finite = st.floats(-(2.0**60), 2.0**60).map(lambda value: item(one(value, dtype)))
    left, right, addend = (data.draw(finite) for _ in range(3))
    # Half the cases cancel, where two roundings differ from one.
    if data.draw(st.booleans()):
        with np.errstate(all="ignore"):
            addend = item(numerics.binary("mul", one(-left, dtype), one(right, dtype), dtype))
    with np.errstate(all="ignore"):
        found = item(numerics.fma(one(left, dtype), one(right, dtype), one(addend, dtype), dtype))
    assert same(found, exact_fma(left, right, addend, dtype))


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_fma_of_what_is_not_finite(dtype: DType) -> None:
    cases = [
        (math.inf, 2.0, 1.0, math.inf),
        (math.inf, 0.0, 1.0, math.nan),
        (1.0, 1.0, -math.inf, -math.inf),
        (0.0, -1.0, -0.0, -0.0),
        (0.0, -1.0, 0.0, 0.0),
    ]
    for left, right, addend, truth in cases:
        with np.errstate(all="ignore"):
            found = numerics.fma(one(left, dtype), one(right, dtype), one(addend, dtype), dtype)
        assert same(item(found), truth)


TRUTHS = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "floor": math.floor,
    "ceil": math.ceil,
}


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_functions_are_within_a_unit_in_the_last_place(name: str, dtype: DType) -> None:
    x = np.linspace(0.03, 9.7, 257).astype(to_numpy(dtype))
    found = numerics.function(name, x, dtype)
    truth = np.array([TRUTHS[name](float(value)) for value in x])
    # Spacing of the numbers at the result; f64 depends on the C library, which promises no more.
    bits = {float16: 10, bfloat16: 7, float32: 23, float64: 51}[dtype]
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(truth), 1e-30)))) * 2.0**-bits
    assert found.dtype == x.dtype
    assert (np.abs(found.astype(np.float64) - truth) <= unit).all()


@pytest.mark.parametrize(
    ("name", "value", "truth"),
    [
        ("log", 0.0, -math.inf),
        ("log", -1.0, math.nan),
        ("sqrt", -1.0, math.nan),
        ("sqrt", -0.0, -0.0),
        ("rsqrt", 0.0, math.inf),
        ("exp", 1e3, math.inf),
        ("exp", -math.inf, 0.0),
        ("erf", 9.0, 1.0),
    ],
)
def test_functions_at_the_edges(name: str, value: float, truth: float) -> None:
    with np.errstate(all="ignore"):
        found = numerics.function(name, one(value, float32), float32)
    assert same(item(found), truth)
