"""Functions that NumPy lacks, on f64 arrays: within a few units in the last place.

Python's `math` has most of them, an element at a time. Inverses of the error function start from
`statistics.NormalDist`, whose quantiles have full precision, and take a step of Newton's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from tilewright_compiler.interpret.numerics import Array

_NORMAL = NormalDist()
# The root of 1/2 as the sum of two floats.
_HALF_ROOT, _HALF_ROOT_REST = math.sqrt(0.5), -4.833646656726457e-17
_BESSEL_STEPS = 1 << 10
_BESSEL_SERIES = 20.0


def each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function of arrays that is NaN wherever `function` raises ValueError."""

    def guarded(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    def apply(values: Array) -> Array:
        flat = np.fromiter(map(guarded, values.ravel().tolist()), np.float64, values.size)
        return flat.reshape(values.shape)

    return apply


def cospi(values: Array) -> Array:
    """Return cos(pi x), exact where x is a multiple of 1/2."""
    quadrant, rest = _quadrant(values)
    sine, cosine = np.sin(np.pi * rest), np.cos(np.pi * rest)
    result: Array = np.choose(quadrant, [cosine, -sine, -cosine, sine]) + 0.0  # never -0
    return result


def sinpi(values: Array) -> Array:
    """Return sin(pi x), exact where x is a multiple of 1/2; a zero has the sign of x."""
    quadrant, rest = _quadrant(values)
    sine, cosine = np.sin(np.pi * rest), np.cos(np.pi * rest)
    result: Array = np.choose(quadrant, [sine, cosine, -sine, -cosine])
    return np.where(result == 0, np.copysign(0.0, values), result)


def _quadrant(values: Array) -> tuple[Array, Array]:
    turn = np.fmod(np.where(np.isfinite(values), values, 0.0), 2.0)
    half = np.rint(2 * turn)
    rest = np.where(np.isfinite(values), turn - half / 2, np.nan)
    return half.astype(np.int64) & 3, rest


def _erfcx(value: float) -> float:
    if value < 25:
        square = value * value
        if square > 709:
            return math.inf
        # The exponential blows up what the square lost.
        return math.exp(square) * (1 + _lost(value, value)) * math.erfc(value)
    fraction = 0.0
    for step in range(60, 0, -1):
        fraction = step / 2 / (value + fraction)
    return 1 / ((value + fraction) * math.sqrt(math.pi))


def _lost(left: float, right: float) -> float:
    """Return `left * right` less its rounded self (Dekker)."""
    (a, b), (c, d) = _halves(left), _halves(right)
    return ((a * c - left * right) + a * d + b * c) + b * d


def _halves(value: float) -> tuple[float, float]:
    scaled = value * 134217729.0
    high = scaled - (scaled - value)
    return high, value - high


def _erfinv(value: float) -> float:
    if abs(value) >= 1:
        return math.copysign(math.inf, value) if abs(value) == 1 else math.nan
    if abs(value) > 0.5:
        return math.copysign(_erfcinv(1 - abs(value)), value)
    if value == 0:
        return value
    start = value * math.sqrt(math.pi) / 2
    if abs(value) > 1e-9:
        start = _NORMAL.inv_cdf((value + 1) / 2) / math.sqrt(2)
    for _ in range(2):
        slope = 2 / math.sqrt(math.pi) * math.exp(-start * start)
        start -= (math.erf(start) - value) / slope
    return start


def _erfcinv(value: float) -> float:
    if value in (0, 2):
        return math.inf if value == 0 else -math.inf
    if not 0 < value < 2:
        return math.nan
    if value > 1:
        return -_erfcinv(2 - value)
    if value > 0.5:
        return _erfinv(1 - value)
    start = -_NORMAL.inv_cdf(value / 2) / math.sqrt(2)
    slope = -2 / math.sqrt(math.pi) * math.exp(-start * start)
    return start - (math.erfc(start) - value) / slope if slope else start


def _normcdf(value: float) -> float:
    place = -value * _HALF_ROOT
    if not abs(place) < 30:
        return math.erfc(place) / 2
    # The argument's rounding error, which the function's slope multiplies.
    error = _lost(-value, _HALF_ROOT) - value * _HALF_ROOT_REST
    slope = 2 / math.sqrt(math.pi) * math.exp(-place * place)
    return (math.erfc(place) - slope * error) / 2


def _normcdfinv(value: float) -> float:
    return 0.0 - math.sqrt(2) * _erfcinv(2 * value)  # 0 at 1/2, not -0


def _lgamma(value: float) -> float:
    if math.isinf(value) or (value <= 0 and value == math.floor(value)):
        return math.inf
    return math.lgamma(value)


def _tgamma(value: float) -> float:
    if value == 0:
        return math.copysign(math.inf, value)
    return math.gamma(value)


def _bessel(order: int) -> Callable[[float], float]:
    def bessel(value: float) -> float:
        """Integrate `exp(x cos t) cos(n t)` over a period: the trapezoidal rule is exact fast."""
        if not math.isfinite(value):
            return abs(value) if order == 0 else value
        if abs(value) < _BESSEL_SERIES:
            return _bessel_series(order, value)
        angles = np.arange(_BESSEL_STEPS) * (2 * np.pi / _BESSEL_STEPS)
        powers = np.exp(abs(value) * (np.cos(angles) - 1)) * np.cos(order * angles)
        mean = math.fsum(powers.tolist()) / _BESSEL_STEPS
        return math.copysign(1, value) ** order * mean * math.exp(abs(value))

    return bessel


def _bessel_series(order: int, value: float) -> float:
    """Sum powers of x / 2, all of one sign, so that nothing cancels."""
    term = (value / 2) ** order
    total, step = term, 0
    while abs(term) > abs(total) * 1e-18:
        step += 1
        term *= (value / 2) ** 2 / (step * (step + order))
        total += term
    return total


def _logb(values: Array) -> Array:
    _, exponent = np.frexp(values)
    result = np.where(values == 0, -np.inf, exponent - 1.0)
    return np.where(np.isfinite(values), result, np.abs(values))


def _round(values: Array) -> Array:
    whole = np.trunc(values)
    away = np.abs(values - whole) >= 0.5
    return np.copysign(np.where(away, whole + np.copysign(1.0, values), whole), values)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "cospi": cospi,
    "sinpi": sinpi,
    "erf": each(math.erf),
    "erfc": each(math.erfc),
    "erfcx": each(_erfcx),
    "erfinv": each(_erfinv),
    "erfcinv": each(_erfcinv),
    "normcdf": each(_normcdf),
    "normcdfinv": each(_normcdfinv),
    "lgamma": each(_lgamma),
    "tgamma": each(_tgamma),
    "cyl_bessel_i0": each(_bessel(0)),
    "cyl_bessel_i1": each(_bessel(1)),
    "logb": _logb,
    "round": _round,
}
