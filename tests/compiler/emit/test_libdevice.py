"""Functions of libdevice: the emitted calls against the interpreter, within the stated accuracy.

libdevice and the interpreter are two implementations that share nothing, so that their agreement
speaks for both. The bound is the one of the function's docstring. The PTX interpreter rounds the
hardware's approximate instructions correctly, so what is measured is libdevice's own error.
"""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from helpers.emitted import apply_emitted
from helpers.every_way import lower_text
from helpers.tile_operation import Array, apply
from tilewright.abi.dtypes import DType, float32, float64
from tilewright.abi.numpy_types import to_numpy
from tilewright.language.registry import FUNCTIONS as STUBS
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.ops.libdevice import FUNCTIONS, MODES
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

_ROUNDED = [name for name in FUNCTIONS if name.rpartition("_")[2] in MODES]
_OF_FLOATS = [
    name
    for name, overloads in FUNCTIONS.items()
    if name not in _ROUNDED and overloads[0].operands == (float32,) * len(overloads[0].operands)
]
_FAST = [name for name in _OF_FLOATS if name.startswith("fast_")]
_OF_INTEGERS = [name for name in FUNCTIONS if not FUNCTIONS[name][0].operands[0].is_float]
_EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.5, 1e-30]
_SIZE = 256
# The interpreter's own error in f64, on top of libdevice's.
_OWN_ULP = {"erfcx": 4, "normcdfinv": 4, "erfinv": 4, "erfcinv": 4}
# Their f64 forms keep functions of their own, which the PTX interpreter cannot call.
_CALLS = {("lgamma", float64), ("tgamma", float64), ("pow", float64)}
_RANGES = {
    "acos": (-1, 1),
    "asin": (-1, 1),
    "atanh": (-1, 1),
    "acosh": (1, 50),
    "erfinv": (-1, 1),
    "erfcinv": (0, 2),
    "normcdfinv": (0, 1),
    "normcdf": (-6, 6),
    "erfcx": (-4, 60),
    "erfc": (-6, 9),
    "lgamma": (0.1, 80),
    "tgamma": (-8, 30),
    "cyl_bessel_i0": (-40, 40),
    "cyl_bessel_i1": (-40, 40),
    "exp10": (-36, 37),
    "pow": (0, 20),
    "rcbrt": (-50, 50),
}


def _ulps_of(name: str, dtype: DType) -> float:
    """Return the bound that the docstring states."""
    document = inspect.getdoc(STUBS[f"libdevice.{name}"])
    assert document is not None
    single = re.search(r"(\d+) ulp", document)
    double = re.search(r"(\d+) in f64", document)
    if single is None:
        assert "exact" in document or "int" in document or name == "saturatef", document
        return 0
    return float((double or single)[1] if dtype == float64 else single[1])


def _inputs(name: str, dtype: DType, count: int) -> list[Array]:
    random = np.random.default_rng(len(name))
    low, high = _RANGES.get(name, (-30, 30))
    arrays = []
    for number in range(count):
        drawn = random.uniform(low, high, _SIZE)
        small = random.standard_normal(_SIZE) * 10.0 ** random.uniform(-6, 1, _SIZE)
        values = np.where(np.arange(_SIZE) % 4 == 0, np.clip(small, low, high), drawn)
        values[: len(_EDGES)] = np.roll(_EDGES, number)
        arrays.append(values.astype(to_numpy(dtype)))
    return arrays


def _distance(got: Array, expected: Array) -> Array:
    """Return how many floats lie between two, for each pair."""
    bits = np.dtype(f"i{got.dtype.itemsize}")
    lowest = np.iinfo(bits).min
    steps = []
    for array in (got, expected):
        whole = array.view(bits)
        steps.append(np.where(whole < 0, lowest - whole, whole).astype(object))
    return np.asarray(np.abs(steps[0] - steps[1]))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in _OF_FLOATS
        if name not in _FAST
        for dtype in (float32, float64)
        if (name, dtype) not in _CALLS
        and any(overload.operands[0] == dtype for overload in FUNCTIONS[name])
    ],
    ids=str,
)
def test_accuracy_is_what_the_documentation_states(name: str, dtype: DType) -> None:
    overloads = [o for o in FUNCTIONS[name] if o.operands[0] == dtype]
    for overload in overloads:
        inputs = _inputs(name, dtype, len(overload.operands))
        if overload.operands[-1] != dtype:
            inputs[-1] = (np.arange(_SIZE) % 23 - 9).astype(np.int32)
        got = apply_emitted("libdevice", inputs, dtype=overload.result, function=name)
        expected = apply("libdevice", inputs, dtype=overload.result, function=name)
        if not overload.result.is_float:
            np.testing.assert_array_equal(got, expected)
            continue
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        known = ~np.isnan(expected)
        bound = _ulps_of(name, dtype)
        if dtype == float64 and bound:
            bound += _OWN_ULP.get(name, 2)
        far = _distance(got[known], expected[known])
        assert far.max() <= bound, [array[known][far.argmax()] for array in inputs]


@pytest.mark.parametrize("name", _FAST)
def test_fast_functions_are_near(name: str) -> None:
    inputs = _inputs(name, float32, len(FUNCTIONS[name][0].operands))
    inputs = [np.where(np.isfinite(x), np.clip(np.abs(x), 0.01, 3), np.float32(1)) for x in inputs]
    got = apply_emitted("libdevice", inputs, function=name)
    expected = apply("libdevice", inputs, function=name)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2.0**-20)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", _ROUNDED)
def test_rounding_goes_where_it_is_told(name: str, dtype: DType) -> None:
    count = len(FUNCTIONS[name][0].operands)
    inputs = _inputs(name, dtype, count)
    got = apply_emitted("libdevice", inputs, function=name)
    expected = apply("libdevice", inputs, function=name)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    known = ~np.isnan(expected)
    bits = f"u{dtype.size_bytes}"
    np.testing.assert_array_equal(got[known].view(bits), expected[known].view(bits))


@pytest.mark.parametrize("name", _OF_INTEGERS)
def test_functions_of_integers_are_exact(name: str) -> None:
    for overload in FUNCTIONS[name]:
        random = np.random.default_rng(3)
        inputs = []
        for dtype in overload.operands:
            drawn = np.frombuffer(random.bytes(_SIZE * dtype.size_bytes), to_numpy(dtype)).copy()
            limits = np.iinfo(to_numpy(dtype))
            drawn[:4] = [0, 1, limits.max, limits.min]
            drawn[4:40] >>= np.arange(36, dtype=drawn.dtype) % dtype.bits
            inputs.append(drawn)
        got = apply_emitted("libdevice", inputs, dtype=overload.result, function=name)
        expected = apply("libdevice", inputs, dtype=overload.result, function=name)
        np.testing.assert_array_equal(got, expected)


def test_functions_that_stay_functions_are_assembled() -> None:
    text = (
        "@tl.kernel\ndef k(x, out):\n    n = tl.arange(0, 128)\n    a = tl.load(x + n)\n"
        "    b = tl.libdevice.lgamma(a) + tl.libdevice.tgamma(a)\n"
        "    tl.store(out + n, b + tl.libdevice.pow(a, b))\n"
    )
    x = np.zeros(128)
    module = schedule_module(optimize(lower_text(text, {"x": x, "out": x})))
    ptx = lower_to_ptx(emit_module(module))
    assert ".func" in ptx.text
    for target in TARGETS:
        assert assemble(ptx, target).spill_bytes == 0
