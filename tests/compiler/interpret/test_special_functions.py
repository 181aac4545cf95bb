"""Functions that NumPy lacks: against values of 17 digits, at their edges, against inverses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright_compiler.interpret.directed_rounding import rounded
from tilewright_compiler.interpret.special_functions import FUNCTIONS


@pytest.mark.parametrize(
    ("name", "argument", "truth"),
    [
        ("erfcx", 30.0, 0.018795888861416751),
        ("erfcx", 2.0, 0.25539567631050574),
        ("erfcx", -2.0, 108.94090438997797),
        ("erfinv", 0.5, 0.47693627620446987),
        ("erfinv", 1e-12, 8.8622692545275806e-13),
        ("erfinv", 0.999, 2.3267537655135246),
        ("erfcinv", 1e-20, 6.6015806223551426),
        ("erfcinv", 1.25, -0.2253120550121781),
        ("normcdf", -8.0, 6.2209605742717841e-16),
        ("normcdf", 1.0, 0.84134474606854295),
        ("normcdfinv", 0.975, 1.9599639845400541),
        ("normcdfinv", 1e-10, -6.3613409024040562),
        ("cyl_bessel_i0", 1.0, 1.2660658777520083),
        ("cyl_bessel_i0", 50.0, 2.9325537838493363e20),
        ("cyl_bessel_i1", 1.0, 0.565159103992485),
        ("cyl_bessel_i1", -3.0, -3.9533702174026093),
        ("lgamma", 0.5, 0.57236494292470008),
        ("lgamma", -1.5, 0.86004701537648098),
        ("tgamma", -1.5, 2.3632718012073548),
        ("tgamma", 5.0, 24.0),
        ("sinpi", 1e15 + 0.5, 1.0),
        ("cospi", 0.25, 0.70710678118654757),
        ("logb", 1e-310, -1030.0),
        ("round", 0.49999999999999994, 0.0),
    ],
)
def test_value_is_right_to_a_few_units(name: str, argument: float, truth: float) -> None:
    (found,) = FUNCTIONS[name](np.array([argument]))
    assert abs(found - truth) <= 6 * math.ulp(truth)


@pytest.mark.parametrize(
    ("name", "argument", "truth"),
    [
        ("lgamma", -2.0, math.inf),
        ("lgamma", -math.inf, math.inf),
        ("tgamma", -2.0, math.nan),
        ("tgamma", -0.0, -math.inf),
        ("tgamma", 200.0, math.inf),
        ("erfinv", 1.0, math.inf),
        ("erfinv", 1.5, math.nan),
        ("erfinv", -0.0, -0.0),
        ("erfcinv", 2.0, -math.inf),
        ("erfcx", -30.0, math.inf),
        ("erfcx", math.inf, 0.0),
        ("normcdf", -math.inf, 0.0),
        ("normcdf", math.inf, 1.0),
        ("cyl_bessel_i1", -math.inf, -math.inf),
        ("sinpi", math.inf, math.nan),
        ("sinpi", -3.0, -0.0),
        ("logb", 0.0, -math.inf),
        ("logb", -math.inf, math.inf),
        ("round", -0.4, -0.0),
    ],
)
def test_value_at_an_edge(name: str, argument: float, truth: float) -> None:
    with np.errstate(all="ignore"):
        (found,) = FUNCTIONS[name](np.array([argument]))
    assert repr(float(found)) == repr(truth)


def test_inverses_undo_their_functions() -> None:
    x = np.concatenate([-np.logspace(-8, 0.3, 60), np.logspace(-8, 0.3, 60)])
    np.testing.assert_allclose(FUNCTIONS["erfinv"](FUNCTIONS["erf"](x)), x, rtol=1e-13)
    wide = np.linspace(0.2, 20, 100)
    np.testing.assert_allclose(FUNCTIONS["erfcinv"](FUNCTIONS["erfc"](wide)), wide, rtol=1e-14)
    np.testing.assert_allclose(
        FUNCTIONS["normcdfinv"](FUNCTIONS["normcdf"](-wide)), -wide, rtol=1e-14
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_brackets_the_exact_result(dtype: type[np.float32 | np.float64]) -> None:
    random = np.random.default_rng(6)
    operands = tuple(random.standard_normal((3, 200)).astype(dtype))
    for name, count in (("add", 2), ("mul", 2), ("div", 2), ("fma", 3), ("rcp", 1)):
        down, up, zero, near = (
            rounded(name, operands[:count], mode) for mode in ("rd", "ru", "rz", "rn")
        )
        assert ((down == up) | (np.nextafter(down, dtype(np.inf)) == up)).all()
        assert ((near == down) | (near == up)).all()
        np.testing.assert_array_equal(zero, np.where(near < 0, up, down))
