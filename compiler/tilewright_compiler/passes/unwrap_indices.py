"""Loads at indices that wrap -> masked loads at the indices themselves, which may be blocks.

    rows = (start + arange(M)) % m              rows = start + arange(M)
    load(a + rows * stride)             =>      load(a + rows * stride, rows < m)
    store(c + ..., start + arange(M) < m)

Kernels wrap indices at a size to load without a mask, and compute what nobody stores of the lanes
beyond. What such lanes hold may change, to 0, where it reaches nothing but the same lanes of
stores, masked by that very size. `where(rows < m, rows, 0)` wraps as well.

The lanes of a load are followed through what is elementwise, changes of shape, products along
their rows or columns, and loops. An index that is used for anything but addresses of loads whose
lanes can all be followed stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import reduce

from tilewright.abi.dtypes import int1
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.affine import moved_lanes
from tilewright_compiler.analysis.blocks import BlockReader, NoBlock, block_accesses
from tilewright_compiler.analysis.polynomials import ONE, Lane, Polynomial, atom
from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.ops import arithmetic, libdevice, math
from tilewright_compiler.ir.types import ScalarType, TileType, element_type, shape_of

_LANE = Lane(0)
_HINTS = ("multiple_of", "max_contiguous", "max_constancy")
_ADDRESSES = ("add", "sub", "mul", "cast", "addptr", *_HINTS)
_ELEMENTWISE = frozenset(
    spec.name for spec in (*arithmetic.SPECS, *math.SPECS, *libdevice.SPECS)
).union(_HINTS)
# Where operands stand: what a loop carries, a product's accumulator, a store's mask.
_CARRIED, _ACCUMULATOR = 3, 2
_STORE_MASK = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Wrap:
    """An operation that gives `index` for the lanes below `room`.

    `tested` says which lanes those are: a mask, or the index and the size that it is less than.
    """

    made: Operation
    index: Value
    room: Polynomial
    tested: tuple[Value, ...]

    def values(self) -> frozenset[Value]:
        """Return all that decides which lanes are inside: they are the same while these are."""
        atoms = (found for found in self.room.atoms() if isinstance(found, Value))
        return frozenset((self.index, *self.tested, *atoms))


_Axes = dict[Operation, int]  # of loads, the axis along which an index runs


def unwrap_indices(module: Module) -> Module:
    """Return the module with indices as they are before they wrap; calls are inlined."""
    candidates = [o for o in module.kernel.body.walk() if _may_wrap(o)]
    if not candidates:
        return module
    reader, flow = BlockReader(module), _Flow(module)
    wraps: dict[_Wrap, _Axes] = {}
    for wrap in _wraps(candidates, reader):
        loads = _loads_at(wrap, flow)
        if loads and all(_is_guarded(o, axis, wrap, flow, reader) for o, axis in loads.items()):
            wraps[wrap] = loads
    # Of an index that does not lead to blocks alone, a kernel knows best how it reads there.
    while wraps:
        unwrapped, copies = _unwrapped(module, wraps)
        found, _ = block_accesses(unwrapped, list(copies.values()))
        kept = {w: loads for w, loads in wraps.items() if all(copies[o] in found for o in loads)}
        if len(kept) == len(wraps):
            return unwrapped
        wraps = kept
    return module


def _unwrapped(
    module: Module, wraps: Mapping[_Wrap, _Axes]
) -> tuple[Module, dict[Operation, Operation]]:
    """Return a module without wraps, and what has become of their loads."""
    indices = {wrap.made: wrap.index for wrap in wraps}
    guarded = {load for loads in wraps.values() for load in loads}
    sources = {value for wrap in wraps for value in (wrap.index, *wrap.tested)}
    renamed: dict[Value, Value] = {}
    copies: dict[Operation, Operation] = {}

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        places = zip(operation.operands, operands, strict=True)
        renamed.update((old, new) for old, new in places if old in sources)
        if operation in indices:
            return (renamed[indices[operation]],)
        if operation not in guarded:
            return None
        pointer, *rest = operands
        shape, masks = shape_of(operation.result.type), rest[:1]
        for wrap, loads in wraps.items():
            if operation in loads:
                mask = _inside(wrap, renamed, builder)
                masks.append(_spread(mask, loads[operation], shape, builder))
        whole = reduce(lambda a, b: builder.value("and", [a, b], a.type), masks)
        load = builder.create(
            "load",
            [pointer, whole, *rest[1:]],
            [operation.result.type],
            **operation.attributes,
        )
        load.result.name = operation.result.name
        copies[operation] = load
        return load.results

    return rewrite_module(module, rewrite), copies


def _inside(wrap: _Wrap, renamed: Mapping[Value, Value], builder: Builder) -> Value:
    """Build which lanes of an index are inside."""
    first, *size = (renamed[value] for value in wrap.tested)
    if not size:
        return first
    type_ = TileType(shape_of(first.type), ScalarType(int1))
    return builder.value("cmp", [first, *size], type_, predicate="lt")


def _spread(mask: Value, axis: int, shape: tuple[int, ...], builder: Builder) -> Value:
    """Build a mask of one axis as one of a tile."""
    held = shape_of(mask.type)
    for other in range(len(shape)):
        if other != axis:
            held = (*held[:other], 1, *held[other:])
            type_ = TileType(held, ScalarType(int1))
            mask = builder.value("expand_dims", [mask], type_, axis=other)
    return builder.value("broadcast", [mask], TileType(shape, ScalarType(int1)))


def _may_wrap(operation: Operation) -> bool:
    if operation.name not in ("rem", "select"):
        return False
    element = element_type(operation.result.type)
    is_integer = isinstance(element, ScalarType) and element.dtype.is_integer
    return is_integer and len(shape_of(operation.result.type)) == 1


def _wraps(candidates: list[Operation], reader: BlockReader) -> Iterator[_Wrap]:
    """Yield the indices that wrap at a size."""
    for made in candidates:
        if made.name == "rem":
            index, size = made.operands
            place, bound = reader.integer(index), reader.integer(size)
            if place is not None and bound is not None:
                yield _Wrap(made, index, bound - (place - atom(_LANE)), (index, size))
        else:
            inside, index, _ = made.operands
            room = _room(inside, 0, reader)
            if room is not None:
                yield _Wrap(made, index, room, (inside,))


def _room(mask: Value, axis: int, reader: BlockReader) -> Polynomial | None:
    """Return what the lanes of an axis are less than where a mask holds; None if it is unsaid."""
    try:
        limit = reader.limits(mask).get(axis)
    except NoBlock:
        return None
    if limit is None:
        return None
    # A size of what is read is 1 at least, and so is its maximum with 0 that size.
    size = limit.room.split(reader.is_of_launch).get(ONE)
    is_exact = all(value == size and floor <= 1 for value, floor in limit.needed)
    return limit.room if is_exact else None


def _loads_at(wrap: _Wrap, flow: _Flow) -> _Axes:
    """Return the loads at addresses made of an index; none if it is used for anything else."""
    found: _Axes = {}
    for operation, place, axis in flow.uses(wrap.made.result, 0):
        if operation.name == "load" and place == 0:
            if found.setdefault(operation, axis) != axis:
                return {}
        elif not flow.follow(operation, place, axis, _ADDRESSES, fixed=wrap.values()):
            return {}
    return found


def _is_guarded(load: Operation, axis: int, wrap: _Wrap, flow: _Flow, reader: BlockReader) -> bool:
    """Whether lanes of a load beyond the size reach nothing but masked lanes of stores."""
    for operation, place, along in flow.uses(load.result, axis):
        if operation.name == "store" and place == 1:
            masks = operation.operands[_STORE_MASK:]
            if not masks or _room(masks[0], along, reader) != wrap.room:
                return False
        elif not flow.follow(operation, place, along, _ELEMENTWISE, fixed=wrap.values()):
            return False
    return True


class _Flow:
    """Where the lanes along one axis of a tile go, in one module."""

    def __init__(self, module: Module) -> None:
        self._users: dict[Value, list[tuple[Operation, int]]] = {}
        self._owners: dict[Operation, Operation] = {}
        self._defined: dict[Operation, set[Value]] = {}
        self._pending: list[tuple[Value, int]] = []
        self._seen: set[tuple[Value, int]] = set()
        self._note(module.kernel.body)

    def uses(self, value: Value, axis: int) -> Iterator[tuple[Operation, int, int]]:
        """Yield the uses of lanes: operation, place among its operands, and axis.

        Of a use that is followed, the uses of what it gives come later.
        """
        self._pending, self._seen = [(value, axis)], {(value, axis)}
        while self._pending:
            value, axis = self._pending.pop()
            for operation, place in self._users.get(value, ()):
                yield operation, place, axis

    def follow(
        self,
        operation: Operation,
        place: int,
        axis: int,
        elementwise: Collection[str],
        *,
        fixed: Collection[Value],
    ) -> bool:
        """Go on with what an operation gives of lanes; whether they stay lanes of one axis.

        What a loop carries on is met by the next values of what is computed in it: none of `fixed`
        may be among these.
        """
        if operation.name == "for":
            return self._go_on(self._carried(operation, place - _CARRIED, axis))
        if operation.name == "yield":
            owner = self._owners[operation]
            if owner.name == "for":
                is_fixed = self._defined[owner].isdisjoint(fixed)
                return is_fixed and self._go_on(self._carried(owner, place, axis))
            return owner.name == "if" and self._go_on([(owner.results[place], axis)])
        given = _given_axis(operation, place, axis, elementwise)
        return given is not None and self._go_on([(operation.result, given)])

    def _carried(self, loop: Operation, index: int, axis: int) -> list[tuple[Value, int]]:
        inside = loop.regions[0].arguments[1 + index]
        return [(inside, axis), (loop.results[index], axis)]

    def _go_on(self, found: list[tuple[Value, int]]) -> bool:
        fresh = [lanes for lanes in found if lanes not in self._seen]
        self._seen.update(fresh)
        self._pending += fresh
        return True

    def _note(self, block: Block, owner: Operation | None = None) -> set[Value]:
        """Note uses and owners in a block; return the values that it defines."""
        defined = set(block.arguments)
        for operation in block.operations:
            defined.update(operation.results)
            for place, value in enumerate(operation.operands):
                self._users.setdefault(value, []).append((operation, place))
            if owner is not None and operation.name == "yield":
                self._owners[operation] = owner
            inside = [self._note(region, operation) for region in operation.regions]
            self._defined[operation] = set().union(*inside)
            defined |= self._defined[operation]
        return defined


def _given_axis(
    operation: Operation, place: int, axis: int, elementwise: Collection[str]
) -> int | None:
    """Return along which axis an operation gives the lanes of an operand; None if they mix."""
    if operation.name in elementwise:
        return axis
    match operation.name:
        case "expand_dims" | "transpose":
            moved = moved_lanes(operation)(Lane(axis))
            return moved.axis if isinstance(moved, Lane) else None
        case "broadcast":
            shapes = shape_of(operation.operands[0].type), shape_of(operation.result.type)
            return axis if shapes[0][axis] == shapes[1][axis] else None
        case "dot":
            # Rows of a and columns of b are those of the result; what is summed along mixes.
            return axis if place == _ACCUMULATOR or axis == place else None
        case "reduce":
            gone: int = operation.attributes["axis"]
            return None if gone == axis else axis - (gone < axis)
    return None
