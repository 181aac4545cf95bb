"""Blocks of tensor descriptors -> tiles of pointers with masks, for schedules that copy no blocks.

    d.load([i, j])  =>  load(base + i * stride + j + lane offsets, inside)

The scalar part of an address is added first, axis by axis, so that the offsets of lanes are the
same for every block; those and the masks of axes along which a loop does not walk then leave it.
An axis has a lower bound only where its coordinate may be negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from tilewright.abi.dtypes import int1, int32, int64
from tilewright_compiler.analysis.ranges import Interval, analyze_ranges
from tilewright_compiler.ir.builder import Builder, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.types import (
    DescriptorType,
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

_ACCESSES = ("descriptor_load", "descriptor_store")
_I64 = ScalarType(int64)
_CLEANUP = (fold, cse, narrow_comparisons, licm, cse, dce)


def lower_descriptors(module: Module) -> Module:
    """Return the module without descriptors, optimised again if it had any; calls are inlined."""
    operations = list(module.kernel.body.walk())
    if not any(o.name == "make_descriptor" for o in operations):
        return module
    made = {o.result: o for o in operations if o.name == "make_descriptor"}
    lowering = _Lowering(analyze_ranges(module))

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation.name == "make_descriptor":
            lowering.numbers[operation.result] = operands
            # Nothing uses it any more; the clean-up removes it.
            return None
        if operation.name in _ACCESSES:
            return lowering.access(operation, made[operation.operands[0]], operands, builder)
        return None

    lowered = rewrite_module(module, rewrite)
    for run in _CLEANUP:
        lowered = run(lowered)
    return lowered


class _Lowering:
    """Builds accesses; `numbers` has base, sizes and strides of each descriptor, as rebuilt."""

    def __init__(self, ranges: Mapping[Value, Interval]) -> None:
        self.numbers: dict[Value, tuple[Value, ...]] = {}
        self._ranges = ranges

    def access(
        self, operation: Operation, made: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...]:
        is_load = operation.name == "descriptor_load"
        places = operands[1 if is_load else 2 :]
        may_be_negative = [
            self._ranges[place].low < 0 for place in operation.operands[1 if is_load else 2 :]
        ]
        type_ = made.result.type
        assert isinstance(type_, DescriptorType), "the verifier checks types"
        base, *numbers = self.numbers[made.result]
        rank = len(type_.block)
        sizes = numbers[:rank]
        strides: list[Value | None] = [*numbers[rank:], None]
        wide = [_wide(builder, place) for place in places]
        steps = [None if stride is None else _wide(builder, stride) for stride in strides]
        pointer = _pointer(builder, type_, base, wide, steps)
        limits = [_wide(builder, size) for size in sizes]
        mask = _mask(builder, type_, wide, limits, may_be_negative)
        if is_load:
            tile = builder.value(
                "load", [pointer, mask], operation.result.type, cache="", eviction=""
            )
            tile.name = operation.result.name
            return (tile,)
        builder.create("store", [pointer, operands[1], mask], cache="", eviction="")
        return ()


def _wide(builder: Builder, value: Value) -> Value:
    return value if value.type == _I64 else builder.value("cast", [value], _I64)


def _pointer(
    builder: Builder,
    type_: DescriptorType,
    base: Value,
    places: Sequence[Value],
    strides: Sequence[Value | None],
) -> Value:
    """Build the pointers of a block; a stride None is 1."""
    lanes: list[Value] = []
    for axis, (place, stride) in enumerate(zip(places, strides, strict=True)):
        lane = builder.value("cast", [_lanes(builder, type_.block, axis)], _index(type_, axis))
        if stride is not None:
            place = builder.value("mul", [place, stride], _I64)
            step = builder.value("splat", [stride], lane.type)
            lane = builder.value("mul", [lane, step], lane.type)
        base = builder.value("addptr", [base, place], base.type)
        lanes.append(_broadcast(builder, lane, type_.block))
    offset = reduce(lambda a, b: builder.value("add", [a, b], a.type), lanes)
    origin = builder.value(
        "splat", [base], TileType(type_.block, PointerType(element_dtype(base.type)))
    )
    return builder.value("addptr", [origin, offset], origin.type)


def _mask(
    builder: Builder,
    type_: DescriptorType,
    places: Sequence[Value],
    sizes: Sequence[Value],
    may_be_negative: Sequence[bool],
) -> Value:
    """Build which elements of a block lie inside the tensor."""
    inside: list[Value] = []
    for axis, (place, size) in enumerate(zip(places, sizes, strict=True)):
        lane = builder.value("cast", [_lanes(builder, type_.block, axis)], _index(type_, axis))
        start = builder.value("splat", [place], lane.type)
        index = builder.value("add", [start, lane], lane.type)
        bounds = [("lt", size)]
        if may_be_negative[axis]:
            bounds.append(("ge", builder.value("constant", [], _I64, value=0)))
        for predicate, bound in bounds:
            limit = builder.value("splat", [bound], lane.type)
            mask_type = TileType(shape_of(lane.type), ScalarType(int1))
            mask = builder.value("cmp", [index, limit], mask_type, predicate=predicate)
            inside.append(mask)
    whole = [_broadcast(builder, mask, type_.block) for mask in inside]
    return reduce(lambda a, b: builder.value("and", [a, b], a.type), whole)


def _lanes(builder: Builder, block: tuple[int, ...], axis: int) -> Value:
    """Build 0, 1, ... along one axis of a block, of extent 1 along the others."""
    extent = block[axis]
    element = ScalarType(int32)
    lane = builder.value("arange", [], TileType((extent,), element), start=0, end=extent)
    shape: tuple[int, ...] = (extent,)
    for other in range(len(block)):
        if other != axis:
            shape = (*shape[:other], 1, *shape[other:])
            lane = builder.value("expand_dims", [lane], TileType(shape, element), axis=other)
    return lane


def _index(type_: DescriptorType, axis: int) -> TileType:
    rank = len(type_.block)
    shape = tuple(type_.block[axis] if a == axis else 1 for a in range(rank))
    return TileType(shape, _I64)


def _broadcast(builder: Builder, value: Value, block: tuple[int, ...]) -> Value:
    if shape_of(value.type) == block:
        return value
    target = TileType(block, ScalarType(element_dtype(value.type)))
    return builder.value("broadcast", [value], target)
