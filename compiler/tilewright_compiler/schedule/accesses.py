"""Operations of scheduled IR -> the memory that they touch, as far as threads must wait for others.

An access of shared memory is a range of bytes; what was allocated there, and at which position of a
ring, says more, because slots of different positions are different memory. An access of global
memory is the arguments that its pointers may come from. Two accesses of the same memory need no
barrier if they are divided among the threads in the same way (`element_lanes`): each meets only
what it did itself. Nor do those in branches of which only one is taken, and those of two programs,
which have no order: a loop over programs leaves nothing in global memory to wait for.

Atomic operations may meet in one element whichever threads do them, so two of one program keep the
order of its text by a barrier, unless one thread does both or nobody can tell. One that releases is
behind all that the program did before, and one that acquires is ahead of all that it does later: a
barrier lets the one thread speak for the others (PTX ISA, "Causality order").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.alias import Roots, pointer_roots
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops.atomics import ATOMICS, acquires, releases
from tilewright_compiler.ir.types import SharedType, TileType, element_bytes
from tilewright_compiler.layout import gf2
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.matrix_load import plan_matrix_load
from tilewright_compiler.layout.swizzle import SharedLayout
from tilewright_compiler.schedule.element_lanes import ElementLanes
from tilewright_compiler.schedule.running_dots import is_asynchronous
from tilewright_compiler.schedule.scratch import EXCHANGES, scratch_bytes
from tilewright_compiler.schedule.warp_groups import row_groups

_ORDERED = "ordered"


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """Bytes `start .. end` of shared memory; what was allocated there, and where in a ring.

    `threads` says who touches what of a tile, if each element is one thread's: lane and warp for
    each bit of the offset. It is None where any thread may touch any element. As many `groups` of
    warps touch rows of their own (`warp_groups`), where warps have roles.
    """

    start: int
    end: int
    allocation: Operation | None = None
    position: int | None = None

    threads: tuple[tuple[int, int], ...] | None = None
    groups: int = 1

    def meets(self, other: SharedPlace) -> bool:
        """Whether different threads may touch the same bytes."""
        if self.allocation is None or self.allocation is not other.allocation:
            return self.start < other.end and other.start < self.end
        if self.position != other.position and None not in (self.position, other.position):
            return False
        # Where slots are the same, each thread meets only itself; else there is nothing to meet.
        return self.threads is None or self.threads != other.threads


@dataclass(frozen=True, slots=True)
class GlobalPlace:
    """Memory behind some of the kernel's arguments, by a pointer or a tile of pointers.

    It may be of an earlier iteration of `loop` and of those inside. It was touched where `branches`
    were taken: each a condition and what it was. `layout` is None where `pointer` is a scalar.
    """

    arguments: Roots
    pointer: Value
    layout: LinearLayout | None
    loop: Operation | None = None
    branches: frozenset[tuple[Value, bool]] = frozenset()

    def may_alias(self, other: GlobalPlace) -> bool:
        """Whether one program may reach the same memory by both."""
        opposite = {(condition, not held) for condition, held in other.branches}
        return bool(self.arguments & other.arguments) and not opposite & self.branches


@dataclass(frozen=True, slots=True)
class AllGlobal:
    """All of global memory: what a release is behind, and an acquire ahead of."""


Place = SharedPlace | GlobalPlace | AllGlobal


@dataclass(frozen=True, slots=True)
class Access:
    """What all threads together read or write by one operation.

    `groups` is None for what is done when the operation is. For an asynchronous copy it counts the
    groups committed since it started, its own included; a bulk store is a group of its own, and so
    is a warpgroup's dot, which `by_dot` counts apart.
    `atomic` names the kind of an atomic operation: "ordered" where it can be told which of two came
    first. `is_settled` says that each group of warps that divide a tile has met since.
    """

    place: Place
    is_write: bool
    groups: int | None = None
    by_dot: bool = False
    atomic: str | None = None
    is_settled: bool = False

    def divides_like(self, other: Access) -> bool:
        """Whether both are of one tile whose rows they divide among the same groups of warps."""
        own, met = self.place, other.place
        if not isinstance(own, SharedPlace) or not isinstance(met, SharedPlace):
            return False
        is_one_tile = own.allocation is not None and own.allocation is met.allocation
        return is_one_tile and own.groups == met.groups > 1

    @property
    def is_by_one_thread(self) -> bool:
        """Whether the first thread alone touches global memory: all but plain loads of scalars."""
        is_scalar = isinstance(self.place, GlobalPlace) and self.place.layout is None
        return is_scalar and (self.is_write or self.atomic is not None)


class Accesses:
    """The accesses of every operation of a module, and the loops that rings turn with."""

    def __init__(self, module: Module) -> None:
        self._roots = pointer_roots(module)
        self._lanes = ElementLanes(module)
        self._has_roles = any(o.name == "roles" for o in module.kernel.body.operations)
        self._tiles: dict[Value, tuple[SharedPlace, SharedLayout]] = {}
        self._found: dict[Operation, tuple[Access, ...]] = {}
        self._exchanges: set[Operation] = set()
        self._slot_loops: dict[Operation, list[tuple[int, Operation]]] = {}
        self._branches: frozenset[tuple[Value, bool]] = frozenset()
        self._program_loops: set[Operation] = set()
        self._block(module.kernel.body, ())

    def conflict(self, access: Access, before: Access) -> bool:
        """Whether both may touch the same memory, one of them writing, by different threads."""
        if before.is_settled and access.divides_like(before):
            return False
        match access.place, before.place:
            case _ if not (access.is_write or before.is_write):
                return False
            case SharedPlace() as own, SharedPlace() as met:
                return own.meets(met)
            case GlobalPlace() as own, GlobalPlace() as met:
                return own.may_alias(met) and self._conflict_in_global(access, own, before, met)
            case (GlobalPlace(), AllGlobal()) | (AllGlobal(), GlobalPlace()):
                return True
        return False

    def _conflict_in_global(
        self, access: Access, own: GlobalPlace, before: Access, met: GlobalPlace
    ) -> bool:
        if access.atomic is not None or before.atomic is not None:
            is_by_one = access.is_by_one_thread and before.is_by_one_thread
            is_unordered = access.atomic == before.atomic != _ORDERED
            return not is_by_one and not is_unordered
        are_stores = access.is_write and before.is_write
        if own.layout is None and met.layout is None:
            return not are_stores  # the first thread stores
        # What a copy under way reads, its own lane may not write either.
        if own.layout is None or own.layout != met.layout or before.groups is not None:
            return True
        # Of lanes that hold the same element one stores, and all load.
        if not are_stores and not own.layout.is_injective:
            return True
        return not self._lanes.agree(own.pointer, met.pointer, met.loop)

    def of(self, operation: Operation) -> tuple[Access, ...]:
        """Return what an operation without regions touches; for an exchange, what it writes."""
        return self._found.get(operation, ())

    def before(self, operation: Operation) -> tuple[Access, ...]:
        """Return which of its accesses an operation holds against those before it."""
        found = self.of(operation)
        if operation.name in ATOMICS and not releases(operation):
            return tuple(a for a in found if not isinstance(a.place, AllGlobal))
        return found

    def left_by(self, operation: Operation) -> tuple[Access, ...]:
        """Return which of its accesses an operation leaves to those behind it."""
        found = self.of(operation)
        if self.is_exchange(operation):
            # Behind the barrier inside there is only the reading.
            shared = (a for a in found if isinstance(a.place, SharedPlace))
            return tuple(replace(access, is_write=False) for access in shared)
        if operation.name in ATOMICS and not acquires(operation):
            return tuple(a for a in found if not isinstance(a.place, AllGlobal))
        return found

    def is_exchange(self, operation: Operation) -> bool:
        """Whether an operation writes, lets all warps meet, and reads."""
        return operation in self._exchanges

    def next_iteration(self, access: Access, loop: Operation) -> Access | None:
        """Return what an access is to the next iteration of a loop: its slot is one less ahead.

        It is nothing to another program, which shares no more than the slots.
        """
        if loop in self._program_loops and not isinstance(access.place, SharedPlace):
            return None
        place = self._place_outside(access.place, loop)
        if isinstance(place, SharedPlace) and place.position is not None:
            assert place.allocation is not None, "only rings have positions"
            ring = place.allocation.result.type
            assert isinstance(ring, SharedType)
            assert ring.slots is not None, "only rings have positions"
            if self._turns_with(place.allocation, loop):
                place = replace(place, position=(place.position - 1) % ring.slots)
        return replace(access, place=place)

    def after_loop(self, access: Access, loop: Operation) -> Access:
        """Return what an access of a loop is behind it: any slot of its ring."""
        place = self._place_outside(access.place, loop)
        if (
            isinstance(place, SharedPlace)
            and place.allocation is not None
            and self._turns_with(place.allocation, loop)
        ):
            place = replace(place, position=None)
        return replace(access, place=place)

    def _place_outside(self, place: Place, loop: Operation) -> Place:
        """Mark a pointer that the loop changes as of an earlier iteration, and forget the branches
        that the loop decides.
        """
        if not isinstance(place, GlobalPlace):
            return place
        inside = self._lanes.inside[loop]
        branches = frozenset(branch for branch in place.branches if branch[0] not in inside)
        if place.pointer not in inside:
            return replace(place, branches=branches)
        # Both are around the pointer: the outer one has more values inside.
        known = place.loop
        is_outer = known is None or len(inside) > len(self._lanes.inside[known])
        return replace(place, loop=loop if is_outer else known, branches=branches)

    def _turns_with(self, allocation: Operation, loop: Operation) -> bool:
        """Whether a ring's slots are counted by a loop: the innermost that takes slots of it."""
        loops = self._slot_loops.get(allocation, ())
        return bool(loops) and max(loops, key=lambda pair: pair[0])[1] is loop

    def _block(self, block: Block, loops: tuple[Operation, ...]) -> None:
        for operation in block.operations:
            self._operation(operation, loops)
            if operation.name in ("for", "while"):
                for region in operation.regions:
                    self._block(region, (*loops, operation))
            elif operation.name == "if":
                outside = self._branches
                for region, held in zip(operation.regions, (True, False), strict=True):
                    self._branches = outside | {(operation.operands[0], held)}
                    self._block(region, loops)
                self._branches = outside
            else:
                for region in operation.regions:
                    if operation.name == "roles":
                        # A role is a loop over the programs of a CTA, those inside are a program's.
                        loops_here = (inner for inner in region.operations if inner.name == "for")
                        self._program_loops.update(loops_here)
                    self._block(region, loops)

    def _operation(self, operation: Operation, loops: tuple[Operation, ...]) -> None:
        match operation.name:
            case "alloc_shared":
                type_ = operation.result.type
                assert isinstance(type_, SharedType)
                start: int = operation.attributes["shared_offset"]
                place = SharedPlace(start, start + type_.size_bytes, operation)
                self._tiles[operation.result] = place, type_.layout
            case "shared_slot":
                place, layout = self._tiles[operation.operands[0]]
                assert place.allocation is not None
                if loops:
                    found = self._slot_loops.setdefault(place.allocation, [])
                    found.append((len(loops), loops[-1]))
                position: int = operation.attributes["position"]
                self._tiles[operation.result] = replace(place, position=position), layout
            case "shared_transpose":
                place, layout = self._tiles[operation.operands[0]]
                layout = layout.transpose(operation.attributes["order"])
                self._tiles[operation.result] = place, layout
            case _:
                found_here = tuple(self._touched(operation))
                if found_here:
                    self._found[operation] = found_here

    def _touched(self, operation: Operation) -> Iterator[Access]:
        operands = operation.operands
        match operation.name:
            case "shared_load":
                yield self._tile(operands[0], operation.result, is_write=False)
            case "shared_store":
                yield self._tile(operands[1], operands[0], is_write=True)
            case "async_copy":
                copied = self._tile(operands[1], operands[0], is_write=True)
                yield replace(copied, groups=0)
                yield replace(self._global(operands[0], is_write=False), groups=0)
            case "tma_store":
                place, _ = self._tiles[operands[1]]
                divided: int = operation.attributes.get("groups", 1)
                yield Access(replace(place, groups=divided), is_write=False, groups=0)
            case "load" | "store":
                yield self._global(operands[0], is_write=operation.name == "store")
            case "atomic_load" | "atomic_rmw" | "atomic_cas":
                yield from self._atomic(operation)
            case "dot":
                for operand in operands[:2]:
                    if isinstance(operand.type, SharedType):
                        place = self._tiles[operand][0]
                        # What copies write into rings, mbarriers guard.
                        runs_on = is_asynchronous(operation) and place.position is None
                        groups = 0 if runs_on else None
                        yield Access(place, is_write=False, groups=groups, by_dot=runs_on)
            case name if name in EXCHANGES and "shared_offset" in operation.attributes:
                self._exchanges.add(operation)
                start: int = operation.attributes["shared_offset"]
                size = scratch_bytes(operation)
                yield Access(SharedPlace(start, start + size), is_write=True)

    def _atomic(self, operation: Operation) -> Iterator[Access]:
        kind: str = operation.attributes.get("kind", _ORDERED)
        if operation.results or kind == "xchg":
            kind = _ORDERED
        is_write = operation.name != "atomic_load"
        yield replace(self._global(operation.operands[0], is_write=is_write), atomic=kind)
        if acquires(operation) or releases(operation):
            yield Access(AllGlobal(), is_write=True)
        if "shared_offset" in operation.attributes:
            self._exchanges.add(operation)
            start: int = operation.attributes["shared_offset"]
            yield Access(SharedPlace(start, start + scratch_bytes(operation)), is_write=True)

    def _tile(self, shared: Value, tile: Value, *, is_write: bool) -> Access:
        place, offsets = self._tiles[shared]
        layout = _layout_of(tile)
        # What `ldmatrix` reads, a lane addresses for others.
        by_matrices = (
            not is_write
            and layout is not None
            and plan_matrix_load(layout, offsets, size_bytes=element_bytes(tile.type)) is not None
        )
        if layout is not None and layout.is_injective and not by_matrices:
            place = replace(place, threads=_threads(layout, offsets))
        if self._has_roles and layout is not None and len(layout.shape) > 1:
            place = replace(place, groups=row_groups(layout, least_rows=1))
        return Access(place, is_write)

    def _global(self, pointer: Value, *, is_write: bool) -> Access:
        arguments = self._roots.get(pointer, frozenset())
        place = GlobalPlace(arguments, pointer, _layout_of(pointer), branches=self._branches)
        return Access(place, is_write)


def _layout_of(value: Value) -> LinearLayout | None:
    return value.type.layout if isinstance(value.type, TileType) else None


def _threads(layout: LinearLayout, shared: SharedLayout) -> tuple[tuple[int, int], ...]:
    """Return lane and warp that hold the element at each power of two of the tile's offset."""
    elements = gf2.inverse(shared.offsets)
    assert elements is not None, "a shared layout is a bijection"
    places = [layout.locate(element) for element in elements]
    return tuple((place.lane, place.warp) for place in places)
