"""Whether two accesses of global memory touch an element with one and the same lane.

A lane is an element of a tile of pointers; in one layout equal lanes are of one thread. Lanes agree
if two tiles begin at the same address, or so far apart that they share none: as the chunks of a row
do, which a loop visits.

    row + start * stride + lanes * stride      start = 0, 1024, 2048, ...    lanes < 1024

Addresses are read as polynomials (`analysis.affine`), a loop's counter as `lower + step * turn`.
Values inside a loop are unknowns of their own in an earlier iteration. The distance of two
addresses, in units of a stride, is then a multiple of some number; if that is 0, or more than the
lanes span, no two different lanes meet. Of a number its largest power of two counts: products may
wrap, and multiples of that remain multiples.

Strides that are arguments are taken for those of an array: not 0, and rows along one of them do not
overlap (docs/language.md, "Order within a program"). So tiles may lie whole rows apart. What moves
along a row, or along one of two such strides, may reach the next row: that is not proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.affine import AffineValues
from tilewright_compiler.analysis.polynomials import (
    ONE,
    Atom,
    Lane,
    Monomial,
    Polynomial,
    atom,
    number,
)
from tilewright_compiler.analysis.ranges import analyze_ranges
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import shape_of


@dataclass(frozen=True, slots=True)
class _Address:
    """A tile of pointers: a scalar one, elements for each lane along an axis, elements for all."""

    base: Value
    strides: tuple[Polynomial, ...]
    rest: Polynomial


class ElementLanes:
    """Compares the tiles of pointers of one module without calls.

    `inside` are the values that each iteration of a loop has anew.
    """

    def __init__(self, module: Module) -> None:
        """Read the loops of the kernel."""
        self._module = module
        self._counters: dict[Value, Operation] = {}
        self.inside: dict[Operation, frozenset[Value]] = {}
        self._earlier: dict[Value, Value] = {}
        self._addresses: dict[Value, _Address | None] = {}
        self._known: dict[tuple[Value, Value, Operation | None], bool] = {}
        self._arguments = frozenset(module.kernel.body.arguments)
        for operation in module.kernel.body.walk():
            if operation.name in ("for", "while"):
                self.inside[operation] = frozenset(_values_inside(operation))
            if operation.name == "for":
                self._counters[operation.regions[0].arguments[0]] = operation

    @cached_property
    def _values(self) -> AffineValues:
        # Few kernels have two stores to compare.
        return AffineValues(self._module, analyze_ranges(self._module))

    def agree(self, now: Value, before: Value, loop: Operation | None) -> bool:
        """Return whether each element that both tiles of pointers name is of one lane.

        The tiles have one layout; `before` may be of an earlier iteration of the loop.
        """
        key = now, before, loop
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._agree(now, before, loop)
        return found

    def _agree(self, now: Value, before: Value, loop: Operation | None) -> bool:
        own, met = self._address(now), self._address(before)
        if own is None or met is None or own.base is not met.base:
            return False
        inside = frozenset[Value]() if loop is None else self.inside[loop]
        if own.strides != met.strides or own.base in inside:
            return False
        if not all(self._arguments.issuperset(stride.atoms()) for stride in own.strides):
            return False
        distance = own.rest - met.rest.with_atoms(
            lambda found: self._as_earlier(found) if found in inside else found
        )
        return _is_apart(distance, own.strides, shape_of(now.type))

    def _address(self, pointers: Value) -> _Address | None:
        if pointers not in self._addresses:
            self._addresses[pointers] = self._read(pointers)
        return self._addresses[pointers]

    def _read(self, pointers: Value) -> _Address | None:
        """Read a tile of pointers; None if they do not grow evenly along its axes."""
        address = self._values.address(pointers)
        if address is None:
            return None
        parts = self._by_turns(address.offset).split(lambda found: not isinstance(found, Lane))
        rest = parts.pop(ONE, number(0))
        lanes = [frozenset({(Lane(axis), 1)}) for axis in range(len(shape_of(pointers.type)))]
        strides = tuple(parts.pop(lane, number(0)) for lane in lanes)
        return None if parts else _Address(address.base, strides, rest)

    def _by_turns(self, polynomial: Polynomial) -> Polynomial:
        """Replace counters of loops: from here on their atoms count iterations."""
        return polynomial.substituted(self._turns)

    def _turns(self, found: Atom) -> Polynomial:
        loop = self._counters.get(found) if isinstance(found, Value) else None
        if loop is None:
            return atom(found)
        lower, _, step, *_ = map(self._values.integer, loop.operands[:3])
        if lower is None or step is None:
            return atom(found)
        return self._by_turns(lower) + self._by_turns(step) * atom(found)

    def _as_earlier(self, found: Atom) -> Atom:
        assert isinstance(found, Value), "lanes are of no loop"
        return self._earlier.setdefault(found, Value(found.type, found.name))


def _values_inside(loop: Operation) -> Iterator[Value]:
    for inner in loop.walk():
        for region in inner.regions:
            yield from region.arguments
        if inner is not loop:
            yield from inner.results


def _is_apart(
    distance: Polynomial, strides: tuple[Polynomial, ...], extents: tuple[int, ...]
) -> bool:
    """Return whether no two different lanes of tiles this far apart have the same address."""
    units: dict[Monomial, list[tuple[int, int]]] = {}
    for stride, extent in zip(strides, extents, strict=True):
        if extent == 1 and not stride.terms:
            continue
        if len(stride.terms) != 1:
            return False
        ((factors, coefficient),) = stride.terms.items()
        units.setdefault(factors, []).append((abs(coefficient), extent))
    spans = {unit: _span(axes) for unit, axes in units.items()}
    if None in spans.values():
        return False
    if not distance.terms:
        return True
    # Whole rows apart: along an argument, beside which there are numbers at most.
    rows = [unit for unit in spans if unit != ONE]
    if len(rows) > 1:
        return False
    unit = rows[0] if rows else ONE
    if not all(_divides(unit, monomial) for monomial in distance.terms):
        return False
    multiple = math.gcd(*distance.terms.values())
    span = spans.get(unit)
    return span is not None and multiple & -multiple > span


def _span(axes: list[tuple[int, int]]) -> int | None:
    """Return how far the last lane is from the first; None if two lanes may be in one place."""
    span = 0
    for stride, extent in sorted(axes):
        if extent > 1 and stride <= span:
            return None
        span += stride * (extent - 1)
    return span


def _divides(unit: Monomial, monomial: Monomial) -> bool:
    powers: Mapping[Atom, int] = dict(monomial)
    return all(powers.get(found, 0) >= power for found, power in unit)
