"""Blocks of tensor descriptors -> tiles of pointers with masks, for schedules that copy no blocks.

    d.load([i, j])  =>  load(base + i * stride + j + lane offsets, inside)

The scalar part of an address is added first, axis by axis, so that the offsets of lanes are the
same for every block; those and the masks of axes along which a loop does not walk then leave it. A
bound that surely holds is left out: 0 where a coordinate is not negative, the extent of a batch
that the grid walks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from tilewright.abi.dtypes import int1, int32, int64
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.ranges import Interval, analyze_ranges
from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import (
    PointerType,
    ScalarType,
    TileType,
    element_dtype,
    shape_of,
)
from tilewright_compiler.passes.cse import cse
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.passes.fold import fold
from tilewright_compiler.passes.licm import licm
from tilewright_compiler.passes.narrow_comparisons import narrow_comparisons

# Where the coordinates begin.
_ACCESSES = {"descriptor_load": 1, "descriptor_store": 2, "descriptor_rmw": 2}
_CLEANUP = (fold, cse, narrow_comparisons, licm, cse, dce)
_I64 = ScalarType(int64)


def lower_descriptors(module: Module) -> Module:
    """Return the module without descriptors, optimised again if it had any; calls are inlined."""
    if not any(o.name == "make_descriptor" for o in module.kernel.body.walk()):
        return module
    lowered = rewrite_module(module, _Lowering(module))
    for run in _CLEANUP:
        lowered = run(lowered)
    return lowered


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of an access: coordinate, size and stride (None is 1), and the bounds to check."""

    place: Value
    size: Value
    stride: Value | None
    has_lower: bool
    has_upper: bool


class _Lowering:
    """Rewrites one module."""

    def __init__(self, module: Module) -> None:
        self._ranges: Mapping[Value, Interval] = analyze_ranges(module)
        self._producers = {
            result: operation
            for operation in module.kernel.body.walk()
            for result in operation.results
        }
        self._made: dict[Value, tuple[Value, ...]] = {}  # a descriptor's operands, as rebuilt

    def __call__(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation.name == "make_descriptor":
            self._made[operation.result] = operands
            return None  # copied, although nothing uses it any more: the clean-up removes it
        if operation.name not in _ACCESSES:
            return None
        return self._access(operation, operands, builder)

    def _access(
        self, operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        is_load = operation.name == "descriptor_load"
        tile = operation.result if is_load else operation.operands[1]
        assert isinstance(tile.type, TileType), "the verifier checks types"
        base = self._made[operation.operands[0]][0]
        axes = self._axes(operation, operands)
        pointer = _pointers(builder, base, axes, tile.type.shape)
        mask = _mask(builder, axes, tile.type.shape)
        masks = [] if mask is None else [mask]
        if is_load:
            loaded = builder.value("load", [pointer, *masks], tile.type, cache="", eviction="")
            loaded.name = tile.name
            return (loaded,)
        if operation.name == "descriptor_rmw":
            given, kind = [pointer, operands[1], *masks], operation.attributes["kind"]
            builder.create("atomic_rmw", given, kind=kind, sem="relaxed", scope="gpu")
            return ()
        builder.create("store", [pointer, operands[1], *masks], cache="", eviction="")
        return ()

    def _axes(self, operation: Operation, operands: tuple[Value, ...]) -> list[_Axis]:
        first = _ACCESSES[operation.name]
        places, old_places = operands[first:], operation.operands[first:]
        rank = len(places)
        numbers = self._made[operation.operands[0]][1:]
        old_sizes = self._producers[operation.operands[0]].operands[1 : 1 + rank]
        return [
            _Axis(
                place,
                numbers[axis],
                numbers[rank + axis] if axis < rank - 1 else None,
                has_lower=self._ranges[old_places[axis]].low < 0,
                has_upper=not self._is_of_grid(old_places[axis], old_sizes[axis]),
            )
            for axis, place in enumerate(places)
        ]

    def _is_of_grid(self, place: Value, size: Value) -> bool:
        """Whether a coordinate is the program's along an axis of the grid, and the size its own."""
        index, extent = self._producers.get(place), self._producers.get(size)
        if index is None or extent is None:
            return False
        names = (index.name, extent.name) == ("program_id", "num_programs")
        return names and index.attributes["axis"] == extent.attributes["axis"]


def _pointers(
    builder: Builder, base: Value, axes: Sequence[_Axis], shape: tuple[int, ...]
) -> Value:
    """Build the pointers of a tile, which may lack leading axes of its block."""
    for axis in axes:
        place = _wide(builder, axis.place)
        if axis.stride is not None:
            place = builder.value("mul", [place, _wide(builder, axis.stride)], _I64)
        base = builder.value("addptr", [base, place], base.type)
    offsets = []
    for number, axis in enumerate(axes[len(axes) - len(shape) :]):
        lanes = _lanes(builder, shape, number)
        if axis.stride is not None:
            step = builder.value("splat", [_wide(builder, axis.stride)], lanes.type)
            lanes = builder.value("mul", [lanes, step], lanes.type)
        offsets.append(_broadcast(builder, lanes, shape))
    offset = reduce(lambda a, b: builder.value("add", [a, b], a.type), offsets)
    pointer = TileType(shape, PointerType(element_dtype(base.type)))
    return builder.value("addptr", [builder.value("splat", [base], pointer), offset], pointer)


def _mask(builder: Builder, axes: Sequence[_Axis], shape: tuple[int, ...]) -> Value | None:
    """Build which elements of a tile lie inside the tensor; None if all do."""
    inside: list[Value] = []
    missing = len(axes) - len(shape)
    for number, axis in enumerate(axes):
        index = _wide(builder, axis.place)
        if number >= missing:
            lanes = _lanes(builder, shape, number - missing)
            start = builder.value("splat", [index], lanes.type)
            index = builder.value("add", [start, lanes], lanes.type)
        if axis.has_upper:
            inside.append(_compared(builder, index, "lt", _wide(builder, axis.size)))
        if axis.has_lower:
            zero = builder.value("constant", [], _I64, value=0)
            inside.append(_compared(builder, index, "ge", zero))
    if not inside:
        return None
    whole = [_broadcast(builder, mask, shape) for mask in inside]
    return reduce(lambda a, b: builder.value("and", [a, b], a.type), whole)


def _compared(builder: Builder, index: Value, predicate: str, bound: Value) -> Value:
    if not isinstance(index.type, TileType):
        return builder.value("cmp", [index, bound], ScalarType(int1), predicate=predicate)
    limit = builder.value("splat", [bound], index.type)
    mask = TileType(index.type.shape, ScalarType(int1))
    return builder.value("cmp", [index, limit], mask, predicate=predicate)


def _wide(builder: Builder, value: Value) -> Value:
    return value if value.type == _I64 else builder.value("cast", [value], _I64)


def _lanes(builder: Builder, shape: tuple[int, ...], axis: int) -> Value:
    """Build 0, 1, ... along one axis of a tile, of extent 1 along the others."""
    extent, element = shape[axis], ScalarType(int32)
    lanes = builder.value("arange", [], TileType((extent,), element), start=0, end=extent)
    held: tuple[int, ...] = (extent,)
    for other in range(len(shape)):
        if other != axis:
            held = (*held[:other], 1, *held[other:])
            lanes = builder.value("expand_dims", [lanes], TileType(held, element), axis=other)
    return builder.value("cast", [lanes], TileType(held, _I64))


def _broadcast(builder: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    if shape_of(value.type) == shape:
        return value
    target = TileType(shape, ScalarType(element_dtype(value.type)))
    name = "broadcast" if isinstance(value.type, TileType) else "splat"
    return builder.value(name, [value], target)
