"""Loads and stores of pointers that move a block of a tensor: as descriptors and coordinates.

A tile of pointers moves a block if its addresses are `base + row * stride + column` with `base` and
`stride` of the launch, and its mask says no more than that row and column lie inside sizes of the
launch. What else an address adds, such as the offset of a batch, is one more axis, of which a block
has one element.

    rows = pid * M + arange(M)                  sizes    [m, k]
    a + rows * stride + columns                 strides  [stride, 1]
    rows < m, columns < k                  =>   block    [pid * M, start]

A mask bounds indices from above, a descriptor from below as well: that they are not negative has to
be known, of ranges or of `tl.assume`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from tilewright.abi.dtypes import uint64
from tilewright.abi.signature import INT31_MAX
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.affine import AffineValues, moved_lanes
from tilewright_compiler.analysis.clamps import ALL, unclamped, without_clamps
from tilewright_compiler.analysis.polynomials import (
    ONE,
    Atom,
    Lane,
    Monomial,
    Polynomial,
    atom,
    number,
    product,
)
from tilewright_compiler.analysis.ranges import Interval, analyze_ranges
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import ScalarType, TileType, element_dtype, shape_of

_MOST_AXES = 5
_MASK, _OTHER = {"load": 1, "store": 2}, 2  # where operands stand
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_SIZES = Interval(1, INT31_MAX)


class Axis(NamedTuple):
    """One axis of a block: its first index, the size of the tensor, and the stride."""

    place: Polynomial
    size: Polynomial
    stride: Polynomial


@dataclass(frozen=True, slots=True)
class BlockAccess:
    """A load or store as a block: axes from the outermost, the last one of stride 1.

    With `is_turned` the tile is the block with its two axes exchanged.
    """

    base: Value
    axes: tuple[Axis, ...]
    is_turned: bool


class NoBlock(Exception):
    """An access that is no block: the reason."""


class Limit(NamedTuple):
    """What a lane is less than, if each of these values of the launch lies where it has to."""

    room: Polynomial
    needed: tuple[tuple[Polynomial, Interval], ...]


class _Bound(NamedTuple):
    """An index of which the first is `place`, and the size that it stays below."""

    place: Polynomial
    size: Polynomial


_Turn = Callable[[Atom], Atom]


def block_accesses(
    module: Module, operations: list[Operation]
) -> tuple[dict[Operation, BlockAccess], dict[Operation, str]]:
    """Return those of the loads and stores that move blocks, and why the others do not.

    That sizes are positive is taken for granted: it is a condition of every launch that copies
    blocks.
    """
    found: dict[Operation, BlockAccess] = {}
    reasons: dict[Operation, str] = {}
    reader = BlockReader(module)
    for operation in operations:
        try:
            found[operation] = reader.read(operation)
        except NoBlock as reason:
            reasons[operation] = str(reason)
    while True:
        # Sizes of blocks tell more about ranges, and ranges whether an access is a block.
        ranges = reader.ranges([axis.size for access in found.values() for axis in access.axes])
        outside = {
            operation: why
            for operation, access in found.items()
            if (why := _why_outside(operation, access, ranges, reader.bounded_below(operation)))
        }
        if not outside:
            return found, reasons
        reasons.update(outside)
        found = {o: access for o, access in found.items() if o not in outside}


def read_by_products(operations: list[Operation]) -> set[Operation]:
    """Return the loads that dots read as they are, or turned."""
    made = {result: operation for operation in operations for result in operation.results}
    found: set[Operation] = set()
    for dot in (o for o in operations if o.name == "dot"):
        for operand in dot.operands[:2]:
            source = made.get(operand)
            while source is not None and source.name == "transpose":
                source = made.get(source.operands[0])
            if source is not None and source.name == "load":
                found.add(source)
    return found


def _assumed(module: Module) -> dict[Value, Interval]:
    """Return what `tl.assume` says of values in the body of the kernel itself."""
    body = module.kernel.body
    made = {result: o for o in body.operations for result in o.results}
    found: dict[Value, Interval] = {}
    for operation in body.operations:
        condition = made.get(operation.operands[0]) if operation.name == "assume" else None
        if condition is None or condition.name != "cmp":
            continue
        left, right = condition.operands
        bound = made.get(right)
        value = bound.attributes["value"] if bound and bound.name == "constant" else None
        least = {"ge": 0, "gt": 1}.get(condition.attributes["predicate"])
        if value is None or least is None:
            continue
        known = found.get(left, ALL)
        found[left] = Interval(max(known.low, int(value) + least), known.high)
    return found


def _tile(operation: Operation) -> Value:
    return operation.result if operation.name == "load" else operation.operands[1]


def _why_outside(
    operation: Operation,
    access: BlockAccess,
    ranges: Mapping[Value, Interval],
    below: list[Polynomial],
) -> str:
    """Return what a descriptor would leave out of an access; empty if nothing."""
    extents = shape_of(_tile(operation).type)
    missing = len(access.axes) - len(extents)
    order = extents[::-1] if access.is_turned else extents
    for index, axis in enumerate(access.axes):
        lies = axis.place.interval(ranges.get)
        if axis.place not in below and (lies is None or lies.low < 0):
            return "that an index is not negative is not known; tl.assume may say so"
        extent = order[index - missing] if index >= missing else 1
        is_open = axis.size == number(INT31_MAX)
        if is_open and (lies is None or lies.high > INT31_MAX - extent):
            return "an index without a mask may need more than 31 bits"
    return ""


class BlockReader:
    """Reads accesses of one module without calls, and what they are made of."""

    def __init__(self, module: Module) -> None:
        """Read the kernel."""
        self._module = module
        self._assumed = _assumed(module)
        self._values = AffineValues(module, self.ranges([]))
        body = module.kernel.body
        extents = (o.result for o in body.operations if o.name == "num_programs")
        self._arguments = set(body.arguments)
        self._of_launch = self._arguments.union(extents)
        self._below: dict[Operation, list[Polynomial]] = {}

    def bounded_below(self, operation: Operation) -> list[Polynomial]:
        """Return the first indices that a mask keeps from being negative."""
        return self._below[operation]

    def integer(self, value: Value) -> Polynomial | None:
        """Return what an integer is, or each element of a tile of them; None if it is no sum."""
        return self._values.integer(value)

    def is_of_launch(self, found: Atom) -> bool:
        """Whether an atom is an argument of the launch, or an extent of its grid."""
        return found in self._of_launch

    def ranges(self, sizes: Collection[Polynomial]) -> Mapping[Value, Interval]:
        """Return where values lie, by `tl.assume` and if these sizes are at least 1."""
        positive = {v: _SIZES for v in self._module.kernel.body.arguments if atom(v) in sizes}
        return analyze_ranges(self._module, {**positive, **self._assumed})

    def limits(self, mask: Value) -> dict[int, Limit]:
        """Return what the lanes of each axis are less than where a mask holds, and no more.

        Raises NoBlock of another mask, also of one that bounds them from below.
        """
        upper, below = self._limits(mask)
        if below:
            msg = "its mask bounds indices from below"
            raise NoBlock(msg)
        return upper

    def read(self, operation: Operation) -> BlockAccess:
        """Return an access as a block; raises NoBlock."""
        type_ = _tile(operation).type
        if not isinstance(type_, TileType) or len(type_.shape) != 2:
            msg = "it moves no tile of two axes"
            raise NoBlock(msg)
        self._check_other(operation)
        address = self._values.address(operation.operands[0])
        if address is None or address.base not in self._arguments:
            msg = "its addresses are no pointer argument plus sums and products"
            raise NoBlock(msg)
        parts = address.offset.split(lambda found: not isinstance(found, Lane))
        lanes = [frozenset({(Lane(axis), 1)}) for axis in range(2)]
        if set(parts) - {ONE, *lanes}:
            msg = "its addresses do not grow evenly along its axes"
            raise NoBlock(msg)
        strides = [parts.get(lane, number(0)) for lane in lanes]
        dense = [axis for axis in range(2) if strides[axis] == number(1)]
        if len(dense) != 1:
            msg = "it is contiguous along neither axis, or along both"
            raise NoBlock(msg)
        inner, outer = dense[0], 1 - dense[0]
        if not all(map(self.is_of_launch, strides[outer].atoms())):
            msg = "the stride of its rows is none of the launch"
            raise NoBlock(msg)
        place = _MASK[operation.name]
        has_mask = len(operation.operands) > place
        limits, below = self._limits(operation.operands[place]) if has_mask else ({}, [])
        rest = parts.get(ONE, number(0))
        ways = (
            self._axes(rest, strides[outer], bounds[outer], bounds[inner])
            for bounds in self._bounds(limits)
        )
        axes = min((way for way in ways if way is not None), key=len, default=None)
        if axes is None:
            msg = "what its addresses add is no offset of whole rows, nor an axis of its own"
            raise NoBlock(msg)
        own = {outer: axes[-2].place, inner: axes[-1].place}
        if any(own[axis] != least for axis, least in below):
            msg = "its mask bounds an index from below, and not by 0"
            raise NoBlock(msg)
        self._below[operation] = [least for _, least in below]
        return BlockAccess(address.base, axes, is_turned=inner == 0)

    def _check_other(self, operation: Operation) -> None:
        """Demand that a load gives 0 where it reads nothing, as blocks do."""
        if operation.name != "load" or len(operation.operands) <= _OTHER:
            return
        made = self._values.producer(operation.operands[_OTHER])
        while made is not None and made.name in ("splat", "broadcast", "cast"):
            made = self._values.producer(made.operands[0])
        if made is None or made.name != "constant" or made.attributes["value"] != 0:
            msg = "`other` of a load is not 0"
            raise NoBlock(msg)

    def _axes(
        self, rest: Polynomial, stride: Polynomial, outer: _Bound | None, inner: _Bound | None
    ) -> tuple[Axis, ...] | None:
        """Return the axes of a block, if all that addresses add belongs to one."""
        places = []
        if outer is None:
            row, _ = self._divided(rest, stride)
            outer = _Bound(row, number(INT31_MAX))
        rest = rest - outer.place * stride
        if inner is None:
            # What the launch does not scale is a column.
            column = rest.split(self.is_of_launch)
            terms = [product(m) * c for m, c in column.items() if c.constant() is not None]
            inner = _Bound(sum(terms, number(0)), number(INT31_MAX))
        rest = rest - inner.place
        for varying, factor in rest.split(self.is_of_launch).items():
            place = product(varying) if varying != ONE else number(1)
            places.append(Axis(place, number(INT31_MAX), factor))
        if len(places) + 2 > _MOST_AXES:
            return None
        # A number is no stride of rows, and no stride is negative.
        strides = [axis.stride for axis in places]
        if any(s.constant() is not None or min(s.terms.values()) < 0 for s in strides):
            return None
        own = Axis(outer.place, outer.size, stride), Axis(inner.place, inner.size, number(1))
        return (*places, *own)

    def _divided(self, value: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Return quotient and rest of a division by one product."""
        if len(divisor.terms) != 1:
            return number(0), value
        ((factors, coefficient),) = divisor.terms.items()
        quotient: dict[Monomial, int] = {}
        for monomial, count in value.terms.items():
            powers = dict(monomial)
            left = {found: powers.get(found, 0) - power for found, power in factors}
            if all(power >= 0 for power in left.values()) and not count % coefficient:
                powers.update(left)
                key = frozenset((found, power) for found, power in powers.items() if power)
                quotient[key] = count // coefficient
        result = Polynomial(quotient)
        return result, value - result * divisor

    def _bounds(self, limits: Mapping[int, Limit]) -> Iterator[tuple[_Bound | None, _Bound | None]]:
        """Yield the ways to read `lane < limit` of each axis as `place + lane < size`."""
        ways: list[list[_Bound | None]] = []
        for axis in range(2):
            limit = limits.get(axis)
            if limit is None:
                ways.append([None])
                continue
            bounds = (self._bound(limit, constant_in_size=way) for way in (True, False))
            ways.append([bound for bound in bounds if bound is not None])
        yield from itertools.product(*ways)

    def _bound(self, limit: Limit, *, constant_in_size: bool) -> _Bound | None:
        parts = limit.room.split(self.is_of_launch)
        size = parts.pop(ONE, number(0))
        # A number belongs to the size, or to the index.
        if not constant_in_size and size.constant() is None:
            size = size - number(size.terms.get(ONE, 0))
        place = size - limit.room
        # Of launches it is known where the size lies, and so what is more than it by a number.
        for value, inside in limit.needed:
            more = (value - size).constant()
            if more is None or not inside.contains(Interval(_SIZES.low + more, _SIZES.high + more)):
                return None
        return _Bound(place, size)

    def _limits(self, mask: Value) -> tuple[dict[int, Limit], list[tuple[int, Polynomial]]]:
        """Return for each axis what its lanes are less than, and what is not negative with them."""
        upper: dict[int, Limit] = {}
        below: list[tuple[int, Polynomial]] = []
        for compared, turn in self._comparisons(mask, lambda found: found):
            predicate = compared.attributes["predicate"]
            if predicate not in _MIRRORED:
                msg = "its mask is more than bounds of its indices"
                raise NoBlock(msg)
            first, second = compared.operands
            if element_dtype(first.type) == uint64:
                msg = "its mask compares unsigned 64-bit numbers, whose sums wrap at 0"
                raise NoBlock(msg)
            left = self._side(first, second, least=0 if predicate in ("gt", "le") else -1)
            right = self._side(second, first, least=0 if predicate in ("lt", "ge") else -1)
            if left is None or right is None:
                msg = "its mask is more than bounds of its indices"
                raise NoBlock(msg)
            if predicate in ("gt", "ge"):
                left, right, predicate = right, left, _MIRRORED[predicate]
            room = (right.room - left.room).with_atoms(turn)
            room = room + number(1) if predicate == "le" else room
            parts = room.split(lambda found: not isinstance(found, Lane))
            free = parts.pop(ONE, number(0))
            if len(parts) != 1:
                msg = "its mask compares indices of two axes, or of none"
                raise NoBlock(msg)
            ((lane, factor),) = parts.items()
            ((found, _),) = lane
            axis = found.axis if isinstance(found, Lane) else -1
            limit = Limit(free, (*left.needed, *right.needed))
            if factor == number(1) and not limit.needed and axis >= 0:
                below.append((axis, free - number(1)))  # 0 < place + 1 + lane
            elif factor == number(-1) and upper.setdefault(axis, limit) == limit:
                continue
            else:
                msg = "its mask bounds an axis twice, or not by its index"
                raise NoBlock(msg)
        return upper, below

    def _comparisons(self, mask: Value, turn: _Turn) -> Iterator[tuple[Operation, _Turn]]:
        """Yield the comparisons that a mask is the conjunction of, and how their lanes turn."""
        made = self._values.producer(mask)
        if made is None:
            msg = "its mask is no conjunction of comparisons"
            raise NoBlock(msg)
        if made.name == "and":
            for operand in made.operands:
                yield from self._comparisons(operand, turn)
        elif made.name in ("broadcast", "splat"):
            yield from self._comparisons(made.operands[0], turn)
        elif made.name in ("expand_dims", "transpose"):
            moved = moved_lanes(made)
            yield from self._comparisons(made.operands[0], lambda found: turn(moved(found)))
        elif made.name == "cmp":
            yield made, turn
        else:
            msg = "its mask is no conjunction of comparisons"
            raise NoBlock(msg)

    def _side(self, value: Value, other: Value, *, least: int) -> Limit | None:
        """Return a side of a comparison, a scalar without what bare lanes do not tell from it.

        Those compare alike with all that is at most `least`, and with all from their extent on.
        """
        scalar = value
        made = self._values.producer(scalar)
        while made is not None and made.name in ("splat", "broadcast", "expand_dims"):
            scalar = made.operands[0]
            made = self._values.producer(scalar)
        lanes = self._values.integer(other)
        is_bare = lanes in [atom(Lane(axis)) for axis in range(len(shape_of(other.type)))]
        if is_bare and isinstance(scalar.type, ScalarType):
            value = unclamped(self._values, scalar, least, max(shape_of(value.type)) + least)
        found = self._values.integer(value)
        return None if found is None else Limit(*without_clamps(self._values, found))
