"""Scalars that are a minimum or maximum of another with numbers, and where they equal that.

Passes clamp bounds so that they fit 32 bits (`passes.narrow_comparisons`), and kernels clamp their
indices. Signed numbers alone: sums of unsigned ones wrap at 0.
"""

from __future__ import annotations

from tilewright.abi.dtypes import uint64
from tilewright_compiler.analysis.affine import AffineValues
from tilewright_compiler.analysis.polynomials import Polynomial, atom
from tilewright_compiler.analysis.ranges import Interval
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.types import element_dtype

ALL = Interval(-(1 << 63), (1 << 63) - 1)


def clamped(values: AffineValues, scalar: Value) -> tuple[Value, Interval]:
    """Return x of `min(max(x, low), high)`, in any order and number, and where both are equal."""
    low, high = ALL.low, ALL.high
    made = values.producer(scalar)
    while made is not None and made.name in ("max", "min"):
        number = values.integer(made.operands[1])
        bound = None if number is None else number.constant()
        if bound is None or element_dtype(scalar.type) == uint64:
            break
        low, high = (max(low, bound), high) if made.name == "max" else (low, min(high, bound))
        scalar = made.operands[0]
        made = values.producer(scalar)
    return scalar, Interval(low, high)


def unclamped(values: AffineValues, value: Value, least: int, most: int) -> Value:
    """Return x of `min(max(x, low), high)` if `low <= least` and `high >= most`, else `value`."""
    made = values.producer(value)
    if made is not None and made.name == "cast":
        scalar, inside = clamped(values, made.operands[0])
    else:
        scalar, inside = clamped(values, value)
    return scalar if inside != ALL and inside.contains(Interval(least, most)) else value


def without_clamps(
    values: AffineValues, found: Polynomial
) -> tuple[Polynomial, tuple[tuple[Polynomial, Interval], ...]]:
    """Return a sum with what is clamped in the place of clamps, and where each of those has to be.

    Only then is it the same.
    """
    needed: list[tuple[Polynomial, Interval]] = []
    for monomial, coefficient in list(found.terms.items()):
        factors = [factor for factor, power in monomial if power == 1]
        if len(monomial) != 1 or not factors or not isinstance(factors[0], Value):
            continue
        scalar, inside = clamped(values, factors[0])
        value = values.integer(scalar)
        if scalar is not factors[0] and value is not None:
            found = found + (value - atom(factors[0])).times(coefficient)
            needed.append((value, inside))
    return found, tuple(needed)
