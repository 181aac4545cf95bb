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
from tilewright.abi.signature import INT31_MAX
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.affine import moved_lanes
from tilewright_compiler.analysis.blocks import (
    BlockReader,
    Limit,
    NoBlock,
    block_accesses,
    read_by_products,
)
from tilewright_compiler.analysis.polynomials import ONE, Lane, Polynomial, atom, number
from tilewright_compiler.analysis.ranges import Interval
from tilewright_compiler.ir.builder import Builder, ValueMap, clone_block
from tilewright_compiler.ir.core import Block, Function, Module, Operation, Value
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
    """An operation that gives `index` for the lanes below a limit.

    `tested` says which lanes those are: a mask, or the index and the size that it is less than.
    With `is_from_0` no lane of the index is negative.
    """

    made: Operation
    index: Value
    limit: Limit
    tested: tuple[Value, ...]
    is_from_0: bool

    def values(self) -> frozenset[Value]:
        """Return all that decides which lanes are inside: they are the same while these are."""
        atoms = (found for found in self.limit.room.atoms() if isinstance(found, Value))
        return frozenset((self.index, *self.tested, *atoms))


_Axes = dict[Operation, int]  # of loads, the axis along which an index runs


def unwrap_indices(module: Module) -> Module:
    """Return the module with indices as they are before they wrap; calls are inlined."""
    operations = list(module.kernel.body.walk())
    candidates = [operation for operation in operations if _may_wrap(operation)]
    if not candidates:
        return module
    # Others are not raised, so that no launch would have to keep to their sizes.
    read = read_by_products(operations)
    reader, flow = BlockReader(module), _Flow(module)
    sizes = _sizes(candidates, reader)
    ranges = reader.ranges(sizes)
    wraps: dict[_Wrap, _Axes] = {}
    for wrap in _wraps(candidates, reader, ranges):
        loads = _loads_at(wrap, flow)
        is_read = bool(loads) and read.issuperset(loads)
        if is_read and all(_is_guarded(o, axis, wrap, flow, reader) for o, axis in loads.items()):
            wraps[wrap] = loads
    # Of an index that does not lead to blocks alone, a kernel knows best how it reads there.
    while wraps:
        values: ValueMap = {}
        unwrapped, copies = _unwrapped(module, wraps, values)
        found, _ = block_accesses(unwrapped, list(copies.values()))
        kept = {w: loads for w, loads in wraps.items() if all(copies[o] in found for o in loads)}
        if len(kept) == len(wraps):
            positive = [axis.size for access in found.values() for axis in access.axes]
            is_assumed = all(_renamed(size, values) in positive for size in sizes)
            return unwrapped if is_assumed else module
        wraps = kept
    return module


def _renamed(size: Polynomial, values: ValueMap) -> Polynomial:
    return size.with_atoms(lambda found: found if isinstance(found, Lane) else values[found])


def _unwrapped(
    module: Module, wraps: Mapping[_Wrap, _Axes], values: ValueMap
) -> tuple[Module, dict[Operation, Operation]]:
    """Return a module without wraps, and what has become of loads; of `values` that is noted."""
    indices = {wrap.made: wrap.index for wrap in wraps}
    guarded = {load for loads in wraps.values() for load in loads}
    copies: dict[Operation, Operation] = {}

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation in indices:
            return (values[indices[operation]],)
        if operation not in guarded:
            return None
        pointer, *rest = operands
        shape, masks = shape_of(operation.result.type), rest[:1]
        for wrap, loads in wraps.items():
            if operation in loads:
                mask = _inside([values[value] for value in wrap.tested], builder)
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

    old = module.kernel
    body = clone_block(old.body, values, rewrite)
    kernel = Function(old.name, body, old.result_types, old.is_kernel, old.location)
    return Module({old.name: kernel}, module.signature, dict(module.attributes)), copies


def _inside(tested: list[Value], builder: Builder) -> Value:
    """Build which lanes of an index are inside."""
    first, *size = tested
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


def _sizes(candidates: list[Operation], reader: BlockReader) -> list[Polynomial]:
    """Return what indices wrap at; a launch that copies blocks of these sizes has at least 1."""
    divisors = (made.operands[1] for made in candidates if made.name == "rem")
    return [size for size in map(reader.integer, divisors) if size is not None]


def _wraps(
    candidates: list[Operation], reader: BlockReader, ranges: Mapping[Value, Interval]
) -> Iterator[_Wrap]:
    """Yield the indices that wrap at a size."""
    for made in candidates:
        if made.name == "rem":
            index, size = made.operands
            place, bound = reader.integer(index), reader.integer(size)
            if place is None or bound is None:
                continue
            first = place - atom(_LANE)
            # What is negative keeps its sign, and is none of the rows from 0 on.
            if _is_from_0(first, ranges):
                yield _Wrap(made, index, Limit(bound - first, ()), (index, size), is_from_0=True)
        else:
            inside, index, _ = made.operands
            limit = _limit(inside, 0, reader)
            if limit is not None:
                is_from_0 = _is_from_0(_size(limit, reader) - limit.room, ranges)
                yield _Wrap(made, index, limit, (inside,), is_from_0)


def _is_from_0(first: Polynomial, ranges: Mapping[Value, Interval]) -> bool:
    lies = first.interval(ranges.get)
    return lies is not None and lies.low >= 0


def _limit(mask: Value, axis: int, reader: BlockReader) -> Limit | None:
    """Return what the lanes of an axis are less than where a mask holds; None if it is unsaid."""
    try:
        return reader.limits(mask).get(axis)
    except NoBlock:
        return None


def _size(limit: Limit, reader: BlockReader) -> Polynomial:
    """Return what of a limit is of the launch."""
    return limit.room.split(reader.is_of_launch).get(ONE, number(0))


def _is_limit_of(wrap: _Wrap, limit: Limit | None, reader: BlockReader) -> bool:
    """Whether the lanes below a limit are those that do not wrap."""
    if limit is None or limit.room != wrap.limit.room:
        return False
    if limit.needed == wrap.limit.needed:
        return True
    # Of lanes from 0 on none is below a size that is negative, nor below its maximum with 0; and no
    # launch that copies blocks has a larger size than INT31_MAX.
    size = _size(limit, reader)
    clamps = [*limit.needed, *wrap.limit.needed]
    return wrap.is_from_0 and all(
        value == size and inside.contains(Interval(0, INT31_MAX)) for value, inside in clamps
    )


def _loads_at(wrap: _Wrap, flow: _Flow) -> _Axes:
    """Return the loads at addresses made of an index; none if it is used for anything else."""
    found: _Axes = {}
    for operation, place, axis in flow.ends(wrap.made.result, 0, _ADDRESSES, fixed=wrap.values()):
        is_address = operation.name == "load" and place == 0
        if not is_address or found.setdefault(operation, axis) != axis:
            return {}
    return found


def _is_guarded(load: Operation, axis: int, wrap: _Wrap, flow: _Flow, reader: BlockReader) -> bool:
    """Whether lanes of a load beyond the size reach nothing but masked lanes of stores."""
    for end, place, along in flow.ends(load.result, axis, _ELEMENTWISE, fixed=wrap.values()):
        masks = end.operands[_STORE_MASK:]
        if end.name != "store" or place != 1 or not masks:
            return False
        if not _is_limit_of(wrap, _limit(masks[0], along, reader), reader):
            return False
    return True


class _Flow:
    """Where the lanes along one axis of a tile go, in one module."""

    def __init__(self, module: Module) -> None:
        self._users: dict[Value, list[tuple[Operation, int]]] = {}
        self._owners: dict[Operation, Operation] = {}
        self._defined: dict[Operation, set[Value]] = {}
        self._note(module.kernel.body)

    def ends(
        self, value: Value, axis: int, elementwise: Collection[str], *, fixed: Collection[Value]
    ) -> Iterator[tuple[Operation, int, int]]:
        """Yield the uses behind which lanes are no lanes of one axis any more, or cannot be told.

        A use is an operation, a place among its operands, and the axis there. What a loop carries
        on is met by the next values of what is computed in it: `fixed` are none of those.
        """
        pending, seen = [(value, axis)], {(value, axis)}
        while pending:
            value, axis = pending.pop()
            for operation, place in self._users.get(value, ()):
                following = self._following(operation, place, axis, elementwise, fixed)
                if following is None:
                    yield operation, place, axis
                    continue
                fresh = [lanes for lanes in following if lanes not in seen]
                seen.update(fresh)
                pending += fresh

    def _following(
        self,
        operation: Operation,
        place: int,
        axis: int,
        elementwise: Collection[str],
        fixed: Collection[Value],
    ) -> list[tuple[Value, int]] | None:
        if operation.name == "for":
            return self._carried(operation, place - _CARRIED, axis)
        if operation.name == "yield":
            owner = self._owners[operation]
            if owner.name == "if":
                return [(owner.results[place], axis)]
            is_fixed = owner.name == "for" and self._defined[owner].isdisjoint(fixed)
            return self._carried(owner, place, axis) if is_fixed else None
        given = _given_axis(operation, place, axis, elementwise)
        return None if given is None else [(operation.result, given)]

    def _carried(self, loop: Operation, index: int, axis: int) -> list[tuple[Value, int]]:
        inside = loop.regions[0].arguments[1 + index]
        return [(inside, axis), (loop.results[index], axis)]

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
