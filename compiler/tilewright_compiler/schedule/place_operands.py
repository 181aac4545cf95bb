"""Dots that are handed fragments -> dots that read them from shared memory themselves.

An operand that a `shared_load` gave becomes the shared tile it was loaded from, seen through
`shared_transpose` where a `transpose` stood between: reading is then part of the dot, which knows
the instruction for it. An operand that a conversion through shared memory gave, right before the
dot, is stored there once and stays for the dot to read: an exchange would read it back by general
loads, and two operands would meet at two barriers. So does one from before the dot's loop that
would fill a thread's registers all the while: every factor of multiply-adds, of which threads want
many copies, and long rows. What nothing else uses is left for dead code elimination.

What the warpgroup's instruction is to read is stored in panels, behind an `async_fence`; where such
do not fit the tile, its exchange stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.ir.builder import Builder, copy_operation, rewrite_module
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.types import SharedType, TileType, element_bytes, element_dtype
from tilewright_compiler.layout.access import vector_width
from tilewright_compiler.layout.atoms import ATOMS, FMA
from tilewright_compiler.layout.panels import ALIGNMENT_BYTES, panelled
from tilewright_compiler.layout.swizzle import CHUNK_BYTES, swizzled
from tilewright_compiler.layout.wgmma_operand import plan_wgmma_operand
from tilewright_compiler.schedule.running_dots import is_asynchronous
from tilewright_compiler.schedule.scratch import scratch_bytes

# What a thread may hold of an operand across a loop: a quarter of its registers.
_MOST_HELD_BYTES = 256


def place_operands(module: Module, *, stores: bool = True) -> Module:
    """Let dots read operands from shared memory: where they lie there, and if `stores` also where
    they would only pass through.

    A slot keeps its tile for the whole iteration, so reading it later within the iteration is
    reading the same.
    """
    conversions = dict(_conversions(module.kernel.body)) if stores else {}
    return rewrite_module(module, _Placement(conversions))


def _conversions(body: Block) -> Iterator[tuple[Operation, _Place]]:
    """Yield the conversions that only dots use, and whose tiles are better read from memory."""
    blocks = {operation: block for block in _blocks(body) for operation in block.operations}
    definitions = {result: operation for operation in blocks for result in operation.results}
    uses: dict[Value, int] = {}
    for operation in blocks:
        for operand in operation.operands:
            uses[operand] = uses.get(operand, 0) + 1
    fed: dict[Operation, list[tuple[Operation, int]]] = {}
    for dot in (operation for operation in blocks if operation.name == "dot"):
        for operand, k_axis in zip(dot.operands[:2], (1, 0), strict=True):
            source = definitions.get(operand)
            while source is not None and source.name == "transpose" and uses[source.result] == 1:
                k_axis = source.attributes["order"][k_axis]
                source = definitions.get(source.operands[0])
            if source is not None and source.name == "convert_layout":
                fed.setdefault(source, []).append((dot, k_axis))
    for conversion, readers in fed.items():
        if len(readers) != uses[conversion.result] or not scratch_bytes(conversion):
            continue
        atoms = {dot.attributes["atom"] for dot, _ in readers}
        is_here = any(blocks[dot] is blocks[conversion] for dot, _ in readers)
        if not (_is_large(conversion.result) or is_here or FMA.name in atoms):
            continue
        place = _place(conversion.operands[0], {a for _, a in readers}, _has_wgmma(atoms))
        if place is not None:
            yield conversion, place


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for operation in block.operations:
        for region in operation.regions:
            yield from _blocks(region)


def _is_large(value: Value) -> bool:
    assert isinstance(value.type, TileType)
    assert value.type.layout is not None, "only tiles with layouts are scheduled"
    return value.type.layout.num_registers * element_bytes(value.type) > _MOST_HELD_BYTES


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tile is stored; `is_panelled` as the warpgroup's instruction reads it."""

    type: SharedType
    is_panelled: bool


def _has_wgmma(atoms: Collection[str]) -> bool | None:
    """Return whether all of the instructions are the warpgroup's; None if some are."""
    kinds = {ATOMS[atom].is_wgmma for atom in atoms}
    return kinds.pop() if len(kinds) == 1 else None


def _place(tile: Value, k_axes: Collection[int], has_wgmma: bool | None) -> _Place | None:
    """Return where to store a tile, fastest along the axis that threads hold vectors of."""
    type_ = tile.type
    assert isinstance(type_, TileType)
    assert type_.layout is not None, "only tiles with layouts are scheduled"
    dtype, layout = element_dtype(type_), type_.layout
    limit = max(1, CHUNK_BYTES // dtype.size_bytes)
    axes = range(len(type_.shape))
    fastest = max(axes, key=lambda axis: (vector_width(layout, axis, limit=limit), axis))
    if has_wgmma is False:
        order = (fastest, *(axis for axis in reversed(axes) if axis != fastest))
        place = swizzled(type_.shape, order, size_bytes=dtype.size_bytes)
        return _Place(SharedType(type_.shape, dtype, place), is_panelled=False)
    if has_wgmma is None or len(k_axes) > 1:
        return None
    (k_axis,) = k_axes
    for axis in (fastest, k_axis):
        panels = panelled(type_.shape, axis, size_bytes=dtype.size_bytes)
        if panels is not None and plan_wgmma_operand(
            panels, k_axis=k_axis, size_bytes=dtype.size_bytes
        ):
            return _Place(SharedType(type_.shape, dtype, panels), is_panelled=True)
    return None


class _Placement:
    """Rewrites dots. `_sources` holds the shared tiles of values, as of the rebuilt module."""

    def __init__(self, conversions: Mapping[Operation, _Place]) -> None:
        self._conversions = conversions
        self._sources: dict[Value, Value] = {}
        self._loaded: set[Value] = set()

    def __call__(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        match operation.name:
            case "shared_load":
                results = self._with_source(operation, operands, operands[0], builder)
                self._loaded.update(results)
                return results
            case "transpose" if operands[0] in self._sources:
                order: tuple[int, ...] = operation.attributes["order"]
                view = _transposed(self._sources[operands[0]], order, builder)
                return self._with_source(operation, operands, view, builder)
            case "convert_layout" if operation in self._conversions:
                source = _store(operands[0], self._conversions[operation], builder)
                return self._with_source(operation, operands, source, builder)
            case "dot":
                a, b, acc = operands
                # `bulk_loads` has a warpgroup's dot hold in registers what it loads.
                is_held = is_asynchronous(operation) and a in self._loaded
                first = a if is_held else self._sources.get(a, a)
                return _copy(operation, [first, self._sources.get(b, b), acc], builder)
        return None

    def _with_source(
        self,
        operation: Operation,
        operands: tuple[Value, ...],
        source: Value,
        builder: Builder,
    ) -> tuple[Value, ...]:
        """Keep the operation for other users, and remember where its result lies in memory."""
        results = _copy(operation, operands, builder)
        self._sources[results[0]] = source
        return results


def _store(tile: Value, place: _Place, builder: Builder) -> Value:
    alignment = {"alignment": ALIGNMENT_BYTES} if place.is_panelled else {}
    shared = builder.value("alloc_shared", [], place.type, **alignment)
    shared.name = f"{tile.name}_shared" if tile.name else ""
    builder.create("shared_store", [tile, shared])
    if place.is_panelled:
        builder.create("async_fence")
    return shared


def _transposed(shared: Value, order: tuple[int, ...], builder: Builder) -> Value:
    type_ = shared.type
    assert isinstance(type_, SharedType)
    layout = type_.layout.transpose(order)
    result = SharedType(layout.shape, type_.dtype, layout)
    return builder.value("shared_transpose", [shared], result, order=order)


def _copy(operation: Operation, operands: Iterable[Value], builder: Builder) -> tuple[Value, ...]:
    values = dict(zip(operation.operands, operands, strict=True))
    return copy_operation(operation, values, builder).results
