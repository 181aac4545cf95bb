"""Plans of reductions and scans by any associative function, in the order of the elements.

A plan is a small straight-line program that every thread runs. Its values are numbered: the
registers of the source first, then what each step adds; `Combine` is the function, which sees the
earlier elements on its left. The axis is worked off bit by bit from the lowest, so that what is
combined are always neighbouring runs of elements, and it is enough that the function is
associative:

1. *Register* bits: the totals of two runs are combined in the thread; in a scan the first total
also goes before each prefix in the second run.
2. *Lane* bits: totals are exchanged by butterflies, and both lanes combine them the same way round.
3. *Warp* bits, all at once: totals go through shared memory (`layout.shared`).

In a scan, what precedes a thread within a row of lane and warp bits is collected in one carry,
which is combined with the prefixes of the thread once at the end of that row. Every thread that
holds an element computes it from equal values in one order, so replicas have equal bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Literal

from tilewright.errors import InternalCompilerError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout, flatten, log2, unflatten
from tilewright_compiler.layout.shared import SharedExchange, plan_exchange

_CACHED = 512
_ALIGNMENT = 16  # of the part of shared memory that each operand of an exchange has


@dataclass(frozen=True, slots=True)
class Combine:
    """Apply the function to two values."""

    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Take a value of the lane whose index differs by `lane_xor`."""

    value: int
    lane_xor: int


@dataclass(frozen=True, slots=True)
class ThreadTest:
    """Whether any of these bits of the thread's lane and warp is set, or with `is_clear`, clear."""

    lanes: int = 0
    warps: int = 0
    is_clear: bool = False


@dataclass(frozen=True, slots=True)
class Choose:
    """Take `value` in threads that pass the test, `otherwise` in the others."""

    test: ThreadTest
    value: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Write `values` to shared memory, let all warps meet, and read `count` values.

    There is one plan for each operand of the function, whose registers are the values in order.
    """

    values: tuple[int, ...]
    count: int
    plans: tuple[SharedExchange, ...]


Step = Combine | Shuffle | Choose | Exchange


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """The steps, and the value of each register of the result, whose layout is `layout`."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]
    layout: LinearLayout

    @property
    def exchange(self) -> Exchange | None:
        """The one step that goes through shared memory, if there is one."""
        return next((step for step in self.steps if isinstance(step, Exchange)), None)

    @property
    def places(self) -> tuple[int, ...]:
        """Where in the scratch each operand's part of the exchange starts, in bytes; then its end.

        The parts follow each other, each aligned to 16 bytes.
        """
        starts = [0]
        for plan in self.exchange.plans if self.exchange else ():
            starts.append(starts[-1] + -(-plan.scratch_bytes // _ALIGNMENT) * _ALIGNMENT)
        return tuple(starts)

    @property
    def scratch_bytes(self) -> int:
        """Shared memory that the exchange needs."""
        return self.places[-1]

    def cost(self, operands: int) -> int:
        """Return instructions of one warp for so many operands; the function counts as one each."""
        cost = 0
        for step in self.steps:
            match step:
                case Shuffle():
                    cost += 2 * operands
                case Exchange(plans=plans):
                    cost += sum(plan.cost for plan in plans)
                case _:
                    cost += operands
        return cost


def is_ordered(layout: LinearLayout, axis: int) -> bool:
    """Whether a tile can be reduced and scanned in order: each bit of the axis is one bit of the
    hardware index, and those of warps follow each other.
    """
    bits = _axis_bits(layout, axis)
    if bits is None or not layout.is_separable(axis):
        return False
    warps = [index for index, place in enumerate(bits) if place.kind == "warp"]
    return not warps or warps[-1] - warps[0] == len(warps) - 1


@lru_cache(_CACHED)
def plan_ordered_reduction(
    layout: LinearLayout, axis: int, *, sizes: tuple[int, ...]
) -> OrderedPlan:
    """Plan reducing tiles along an axis; `sizes` are the bytes of an element of each operand.

    Raises InternalCompilerError if the layout is not ordered along the axis.
    """
    writer = _Writer(layout, axis, sizes, is_scan=False, is_reversed=False)
    writer.run()
    result = layout.slice(axis)
    by_row = {_across(e, layout.shape, axis): total for e, total in writer.totals.items()}
    rows = (gf2.apply(result.register, register) for register in range(result.num_registers))
    return OrderedPlan(tuple(writer.steps), tuple(by_row[row] for row in rows), result)


@lru_cache(_CACHED)
def plan_scan(
    layout: LinearLayout, axis: int, *, sizes: tuple[int, ...], is_reversed: bool
) -> OrderedPlan:
    """Plan scanning tiles along an axis: each element becomes what it and all before it combine to.

    With `is_reversed` the last element is the first. Raises InternalCompilerError if the layout is
    not ordered along the axis.
    """
    writer = _Writer(layout, axis, sizes, is_scan=True, is_reversed=is_reversed)
    writer.run()
    elements = (gf2.apply(layout.register, r) for r in range(layout.num_registers))
    results = tuple(writer.prefixes[element] for element in elements)
    return OrderedPlan(tuple(writer.steps), results, layout)


_Kind = Literal["register", "lane", "warp"]


@dataclass(frozen=True, slots=True)
class _AxisBit:
    """One bit of the axis: the hardware bit that it is, and its basis as a flat element index."""

    kind: _Kind
    bit: int
    basis: int


def _axis_bits(layout: LinearLayout, axis: int) -> tuple[_AxisBit, ...] | None:
    """Return the bits of an axis, lowest first; None if one of them is not one hardware bit."""
    owners: dict[int, _AxisBit] = {}
    kinds: tuple[tuple[_Kind, tuple[int, ...]], ...] = (
        ("register", layout.register),
        ("lane", layout.lane),
        ("warp", layout.warp),
    )
    for kind, bases in kinds:
        for bit, basis in enumerate(bases):
            along = unflatten(basis, layout.shape)[axis]
            if along in owners:
                # A register may repeat another; threads would meet elements in different orders.
                if kind == "register":
                    continue
                return None
            if along:
                owners[along] = _AxisBit(kind, bit, basis)
    units = [1 << bit for bit in range(log2(layout.shape[axis]))]
    return tuple(owners[unit] for unit in units) if sorted(owners) == units else None


def _across(element: int, shape: tuple[int, ...], axis: int) -> int:
    """Return the flat index of an element in the tile without the axis."""
    coordinates = unflatten(element, shape)
    return flatten(
        (*coordinates[:axis], *coordinates[axis + 1 :]), (*shape[:axis], *shape[axis + 1 :])
    )


@dataclass(slots=True)
class _Carry:
    """What precedes a thread's elements in a row of lane and warp bits.

    `values` holds it by element, right only where one of the bits so far, `lanes` and `warps`, puts
    the thread behind another.
    """

    values: Mapping[int, int] | None = None
    lanes: int = 0
    warps: int = 0


@dataclass(slots=True)
class _Writer:
    """Writes the steps. `totals` and `prefixes` are values by the element that a register of thread
    0 holds, so that registers with equal elements are one; equal steps are written once.
    """

    layout: LinearLayout
    axis: int
    sizes: tuple[int, ...]
    is_scan: bool
    is_reversed: bool
    steps: list[Step] = field(default_factory=list)
    totals: dict[int, int] = field(default_factory=dict)
    prefixes: dict[int, int] = field(default_factory=dict)
    _count: int = 0
    _known: dict[Step, int] = field(default_factory=dict)

    def run(self) -> None:
        """Work off the axis from its lowest bit."""
        bits = _axis_bits(self.layout, self.axis)
        if bits is None or not is_ordered(self.layout, self.axis):
            msg = f"{self.layout} is not ordered along axis {self.axis}: convert it first"
            raise InternalCompilerError(msg)
        for register in range(self.layout.num_registers):
            self.totals.setdefault(gf2.apply(self.layout.register, register), register)
        self.prefixes = dict(self.totals)
        self._count = self.layout.num_registers
        position = 0
        while position < len(bits):
            if bits[position].kind == "register":
                self._registers(bits[position].basis)
                position += 1
                continue
            end = position
            while end < len(bits) and bits[end].kind != "register":
                end += 1
            self._threads(bits, position, end)
            position = end

    def _registers(self, basis: int) -> None:
        for low in [element for element in self.totals if not element & basis]:
            high = low ^ basis
            first, second = (high, low) if self.is_reversed else (low, high)
            before = self.totals[first]
            if self.is_scan:
                self.prefixes[second] = self._add(Combine(before, self.prefixes[second]))
            total = self._add(Combine(before, self.totals[second]))
            self.totals[first] = self.totals[second] = total

    def _threads(self, bits: Sequence[_AxisBit], position: int, end: int) -> None:
        carry = _Carry()
        while position < end:
            if bits[position].kind == "lane":
                self._lane(1 << bits[position].bit, carry)
                position += 1
                continue
            warps = [place.bit for place in bits[position:end] if place.kind == "warp"]
            self._warps(warps, position, carry)
            position += len(warps)
        if self.is_scan:
            assert carry.values is not None, "a row has at least one bit"
            is_behind = ThreadTest(carry.lanes, carry.warps, is_clear=self.is_reversed)
            for element, before in carry.values.items():
                prefix = self.prefixes[element]
                with_carry = self._add(Combine(before, prefix))
                self.prefixes[element] = self._choose(is_behind, with_carry, prefix)

    def _lane(self, mask: int, carry: _Carry) -> None:
        is_behind = ThreadTest(lanes=mask, is_clear=self.is_reversed)
        before: dict[int, int] = {}
        for element, own in self.totals.items():
            other = self._add(Shuffle(own, mask))
            before[element] = self._choose(is_behind, other, own)
            after = self._choose(is_behind, own, other)
            self.totals[element] = self._add(Combine(before[element], after))
        self._extend(carry, is_behind, before)
        carry.lanes |= mask

    def _warps(self, warps: Sequence[int], position: int, carry: _Carry) -> None:
        gathered = self._exchange(warps, position)
        mask = sum(1 << bit for bit in warps)
        before: dict[int, int] = {}
        for element, partials in gathered.items():
            ordered = partials[::-1] if self.is_reversed else partials
            self.totals[element] = self._tree(ordered)
            if self.is_scan:
                before[element] = self._before(ordered, warps)
        self._extend(carry, ThreadTest(warps=mask, is_clear=self.is_reversed), before)
        carry.warps |= mask

    def _before(self, ordered: Sequence[int], warps: Sequence[int]) -> int:
        """Combine the totals of the warps before the thread's; in the first warp any value."""
        prefixes = [ordered[0], ordered[0]]
        for total in ordered[1:-1]:
            prefixes.append(self._add(Combine(prefixes[-1], total)))
        return self._own(prefixes, warps)

    def _own(self, values: Sequence[int], warps: Sequence[int]) -> int:
        """Choose the value at the place of the thread's warp among those of these bits."""
        if not warps:
            return values[0]
        half = len(values) // 2
        low, high = self._own(values[:half], warps[:-1]), self._own(values[half:], warps[:-1])
        return self._choose(ThreadTest(warps=1 << warps[-1], is_clear=self.is_reversed), high, low)

    def _extend(self, carry: _Carry, is_behind: ThreadTest, before: Mapping[int, int]) -> None:
        """Put `before` in front of the carry of those threads that it precedes."""
        if not self.is_scan:
            return
        if carry.values is None:
            carry.values = before
            return
        has_carry = ThreadTest(carry.lanes, carry.warps, is_clear=self.is_reversed)
        extended: dict[int, int] = {}
        for element, held in carry.values.items():
            earlier = before[element]
            both = self._choose(has_carry, self._add(Combine(earlier, held)), earlier)
            extended[element] = self._choose(is_behind, both, held)
        carry.values = extended

    def _tree(self, values: Sequence[int]) -> int:
        if len(values) == 1:
            return values[0]
        half = len(values) // 2
        return self._add(Combine(self._tree(values[:half]), self._tree(values[half:])))

    def _exchange(self, warps: Sequence[int], position: int) -> dict[int, list[int]]:
        """Return by element the totals of the warps along these bits, lowest first.

        What goes through shared memory is a tile of totals: `position` bits of the axis are in each
        of them already.
        """
        layout, axis = self.layout, self.axis
        shape = tuple(
            extent >> position if a == axis else extent for a, extent in enumerate(layout.shape)
        )

        def total_of(element: int) -> int:
            coordinates = list(unflatten(element, layout.shape))
            coordinates[axis] >>= position
            return flatten(coordinates, shape)

        registers = gf2.independent(map(total_of, layout.register))
        lane, warp = (tuple(map(total_of, bases)) for bases in (layout.lane, layout.warp))
        partials = tuple(warp[bit] for bit in warps)
        rest = tuple(0 if bit in warps else basis for bit, basis in enumerate(warp))
        source = LinearLayout(shape, registers, lane, warp)
        target = LinearLayout(shape, (*partials, *registers), lane, rest)
        numbers = {gf2.apply(registers, number): number for number in range(source.num_registers)}
        held = {numbers[total_of(element)]: total for element, total in self.totals.items()}
        step = Exchange(
            tuple(held[number] for number in range(source.num_registers)),
            target.num_registers,
            tuple(plan_exchange(source, target, size_bytes=size) for size in self.sizes),
        )
        start, count = self._append(step, step.count), len(partials)
        return {
            element: [
                start + (numbers[total_of(element)] << count | index) for index in range(1 << count)
            ]
            for element in self.totals
        }

    def _choose(self, test: ThreadTest, value: int, otherwise: int) -> int:
        return value if value == otherwise else self._add(Choose(test, value, otherwise))

    def _add(self, step: Combine | Shuffle | Choose) -> int:
        if step not in self._known:
            self._known[step] = self._append(step, 1)
        return self._known[step]

    def _append(self, step: Step, count: int) -> int:
        self.steps.append(step)
        self._count += count
        return self._count - count
