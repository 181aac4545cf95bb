"""Integer polynomials over values of a kernel: what an address or a bound is made of.

Integers wrap at 64 bits, and sums and products of polynomials with them: equal polynomials are
equal values, whatever wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.ranges import Interval
from tilewright_compiler.ir.core import Value


class Lane(NamedTuple):
    """The index of an element along an axis of a tile."""

    axis: int


Atom = Value | Lane
Monomial = frozenset[tuple[Atom, int]]  # atoms with their powers


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of products of atoms: the coefficient of each monomial, none of which is 0."""

    terms: Mapping[Monomial, int]

    def __add__(self, other: Polynomial) -> Polynomial:
        """Return the sum."""
        found = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            found[monomial] = found.get(monomial, 0) + coefficient
        return _of(found)

    def __sub__(self, other: Polynomial) -> Polynomial:
        """Return the difference."""
        return self + other.times(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        """Return the product."""
        found: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                powers = dict(left)
                for atom, power in right:
                    powers[atom] = powers.get(atom, 0) + power
                monomial = frozenset(powers.items())
                found[monomial] = found.get(monomial, 0) + a * b
        return _of(found)

    def times(self, factor: int) -> Polynomial:
        """Return the product with a number."""
        return _of({monomial: factor * c for monomial, c in self.terms.items()})

    def divided(self, divisor: int) -> Polynomial | None:
        """Return the quotient; None if a coefficient is no multiple of the divisor."""
        if not divisor or any(c % divisor for c in self.terms.values()):
            return None
        return _of({monomial: c // divisor for monomial, c in self.terms.items()})

    def atoms(self) -> set[Atom]:
        """Return all atoms."""
        return {atom for monomial in self.terms for atom, _ in monomial}

    def constant(self) -> int | None:
        """Return the number that this is; None if it is none."""
        if not self.terms:
            return 0
        return self.terms.get(ONE) if len(self.terms) == 1 else None

    def split(self, keeps: Callable[[Atom], bool]) -> dict[Monomial, Polynomial]:
        """Return, for each product of the atoms that are not kept, what it is multiplied with."""
        found: dict[Monomial, dict[Monomial, int]] = {}
        for monomial, coefficient in self.terms.items():
            kept = frozenset(factor for factor in monomial if keeps(factor[0]))
            found.setdefault(monomial - kept, {})[kept] = coefficient
        return {left: Polynomial(terms) for left, terms in found.items()}

    def with_atoms(self, change: Callable[[Atom], Atom]) -> Polynomial:
        """Return this over other atoms, each of which stands for one."""
        return Polynomial(
            {
                frozenset((change(atom), power) for atom, power in monomial): coefficient
                for monomial, coefficient in self.terms.items()
            }
        )

    def substituted(self, change: Callable[[Atom], Polynomial]) -> Polynomial:
        """Return this with a polynomial in the place of each atom."""
        total = number(0)
        for monomial, coefficient in self.terms.items():
            term = number(coefficient)
            for found, power in monomial:
                for _ in range(power):
                    term = term * change(found)
            total = total + term
        return total

    def interval(self, ranges: Callable[[Value], Interval | None]) -> Interval | None:
        """Return where this lies if no product and no sum wraps; None if nothing is known."""
        low = high = 0
        for monomial, coefficient in self.terms.items():
            corners = [Interval(coefficient, coefficient)]
            for atom, power in monomial:
                known = ranges(atom) if isinstance(atom, Value) else None
                if known is None:
                    return None
                corners += [known] * power
            product = corners[0]
            for factor in corners[1:]:
                ends = [
                    a * b for a in (product.low, product.high) for b in (factor.low, factor.high)
                ]
                product = Interval(min(ends), max(ends))
            low, high = low + product.low, high + product.high
        return Interval(low, high)


ONE: Monomial = frozenset()


def number(value: int) -> Polynomial:
    """Return a number as a polynomial."""
    return _of({ONE: value})


def atom(value: Atom) -> Polynomial:
    """Return a value, or a lane, as a polynomial."""
    return Polynomial({frozenset({(value, 1)}): 1})


def product(monomial: Iterable[tuple[Atom, int]]) -> Polynomial:
    """Return a product of atoms as a polynomial."""
    return Polynomial({frozenset(monomial): 1})


def _of(terms: Mapping[Monomial, int]) -> Polynomial:
    return Polynomial({monomial: c for monomial, c in terms.items() if c})
