"""Addresses and bounds as polynomials of the values and lanes that they are computed from.

Sums and products of 64-bit integers are read, and of smaller ones where nothing can wrap. What a
loop carries and adds the same to in every iteration is read as its start plus that many of it;
any other scalar is an atom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.polynomials import Atom, Lane, Polynomial, atom, number
from tilewright_compiler.analysis.ranges import Interval, limits
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import PointerType, ScalarType, TileType, element_type

_SUMS = ("add", "sub", "mul")
_WIDE_BITS = 64


@dataclass(frozen=True, slots=True)
class Address:
    """A pointer, or a tile of them: a scalar pointer and the elements from there on."""

    base: Value
    offset: Polynomial


class AffineValues:
    """Reads the values of one module without calls."""

    def __init__(self, module: Module, ranges: Mapping[Value, Interval]) -> None:
        """Read the kernel; `ranges` tells where nothing wraps."""
        self._ranges = ranges
        self._producers: dict[Value, Operation] = {}
        self._loops: dict[Value, tuple[Operation, int]] = {}
        self._inside: dict[Operation, set[Value]] = {}
        self._note(module.kernel.body)

    def integer(self, value: Value) -> Polynomial | None:
        """Return what an integer is, or each element of a tile of them; None if it is no sum."""
        if isinstance(value.type, ScalarType):
            return self._sum(value) or self._carried(value) or atom(value)
        made = self._producers.get(value)
        if made is None:
            return self._carried(value)
        match made.name:
            case "splat":
                return self.integer(made.operands[0])
            case "arange":
                return atom(Lane(0)) + number(made.attributes["start"])
            case "broadcast" | "multiple_of" | "max_contiguous" | "max_constancy":
                return self.integer(made.operands[0])
            case "expand_dims" | "transpose":
                inner = self.integer(made.operands[0])
                return None if inner is None else inner.with_atoms(moved_lanes(made))
        return self._sum(value)

    def address(self, value: Value) -> Address | None:
        """Return where a pointer points, or each of a tile of them."""
        if isinstance(value.type, PointerType) and value not in self._producers:
            return Address(value, number(0)) if value not in self._loops else self._walk(value)
        made = self._producers.get(value)
        if made is None:
            return self._walk(value)
        if made.name == "addptr":
            start, offset = self.address(made.operands[0]), self.integer(made.operands[1])
            if start is None or offset is None:
                return None
            return Address(start.base, start.offset + offset)
        if made.name in ("splat", "broadcast", "multiple_of", "max_contiguous", "max_constancy"):
            return self.address(made.operands[0])
        if made.name in ("expand_dims", "transpose"):
            inner = self.address(made.operands[0])
            if inner is None:
                return None
            return Address(inner.base, inner.offset.with_atoms(moved_lanes(made)))
        return None

    def producer(self, value: Value) -> Operation | None:
        """Return the operation that gives a value; None of an argument."""
        return self._producers.get(value)

    def _note(self, block: Block) -> None:
        for operation in block.operations:
            self._producers.update((result, operation) for result in operation.results)
            if operation.name == "for":
                body = operation.regions[0]
                self._loops.update((v, (operation, i)) for i, v in enumerate(body.arguments))
                defined = {r for inner in body.walk() for r in inner.results}
                blocks = (b for inner in body.walk() for b in inner.regions)
                defined.update(a for b in (body, *blocks) for a in b.arguments)
                self._inside[operation] = defined
            for region in operation.regions:
                self._note(region)

    def _sum(self, value: Value) -> Polynomial | None:
        """Read an operation that polynomials know, if nothing wraps below 64 bits."""
        made = self._producers.get(value)
        if made is None or not self._is_exact(value):
            return None
        match made.name:
            case "constant":
                return number(made.attributes["value"])
            case "multiple_of":
                return self.integer(made.operands[0])
            case "cast":
                source = element_type(made.operands[0].type)
                is_integer = isinstance(source, ScalarType) and source.dtype.is_integer
                known = is_integer and self._is_exact(made.operands[0])
                return self.integer(made.operands[0]) if known else None
            case name if name in _SUMS:
                left, right = (self.integer(operand) for operand in made.operands)
                if left is None or right is None:
                    return None
                if name == "add":
                    return left + right
                return left - right if name == "sub" else left * right
        return None

    def _is_exact(self, value: Value) -> bool:
        """Whether a value is what its operation gives without a bound of bits, or modulo 2^64."""
        element = element_type(value.type)
        if not isinstance(element, ScalarType) or not element.dtype.is_integer:
            return False
        is_wide = element.dtype.bits == _WIDE_BITS
        # What could wrap has the range of its type.
        return is_wide or self._ranges.get(value, limits(element.dtype)) != limits(element.dtype)

    def _carried(self, value: Value) -> Polynomial | None:
        """Read an integer that a loop carries and changes by the same amount in each iteration."""
        if value not in self._loops or not self._is_exact(value):
            return None
        loop, index = self._loops[value]
        if index == 0:
            return None
        step = self._step(loop, value, index)
        start = self.integer(loop.operands[2 + index])
        return None if step is None or start is None else start + step

    def _walk(self, value: Value) -> Address | None:
        """Read a pointer that a loop carries and moves by the same distance in each iteration."""
        if value not in self._loops:
            return None
        loop, index = self._loops[value]
        start = self.address(loop.operands[2 + index])
        step = self._step(loop, value, index)
        return None if start is None or step is None else Address(start.base, start.offset + step)

    def _step(self, loop: Operation, value: Value, index: int) -> Polynomial | None:
        """Return what iterations up to this one have added to a carried value."""
        (body,) = loop.regions
        moved = number(0)
        end = body.terminator.operands[index - 1]
        while end is not value:
            made = self._producers.get(end)
            if made is None or made.name not in ("addptr", "add"):
                return None
            last, added = made.operands
            distance = self.integer(added)
            if distance is None:
                return None
            moved, end = moved + distance, last
        lower, _, width = loop.operands[:3]
        step = self.integer(width)
        known = None if step is None else step.constant()
        each = None if known is None else moved.divided(known)
        start = self.integer(lower)
        if each is None or start is None or any(map(self._varies_in(loop), each.atoms())):
            return None
        return (atom(body.arguments[0]) - start) * each

    def _varies_in(self, loop: Operation) -> Callable[[Atom], bool]:
        inside = self._inside[loop]
        return lambda found: isinstance(found, Lane) or found in inside


def moved_lanes(operation: Operation) -> Callable[[Atom], Atom]:
    """Return how lanes of the operand of `expand_dims` or `transpose` are called in its result."""
    if operation.name == "expand_dims":
        axis: int = operation.attributes["axis"]
        places = [i if i < axis else i + 1 for i in range(len(_shape(operation.operands[0])))]
    else:
        order: tuple[int, ...] = operation.attributes["order"]
        places = [order.index(i) for i in range(len(order))]
    return lambda found: Lane(places[found.axis]) if isinstance(found, Lane) else found


def _shape(value: Value) -> tuple[int, ...]:
    return value.type.shape if isinstance(value.type, TileType) else ()
