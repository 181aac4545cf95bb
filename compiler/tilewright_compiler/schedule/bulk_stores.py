"""Scheduled tile IR with `descriptor_store` and `descriptor_rmw` -> parts of tiles that go to
global memory by bulk copies, through two buffers in shared memory.

A part is one swizzle line wide: a choice of registers where the tile is an accumulator. While one
part is on its way, the next is written to the other buffer:

    tma_store_wait pending = 1      the buffer's last copy has read it
    shared_store part -> buffer
    async_fence                     copies see what was stored
    tma_store buffer                by one thread

`insert_barriers` finds where the threads must wait for each other. A tile that cannot be parted
goes through one buffer as a whole; so does one that the copy engine adds, say, to what is there: in
a loop perhaps, where two parts would take as much memory and twice as many meetings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, int32, int64, uint32, uint64
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.analysis.alias import Roots, pointer_roots
from tilewright_compiler.ir.builder import Builder, copy_operation, rewrite_module
from tilewright_compiler.ir.core import Module, Operation, Value
from tilewright_compiler.ir.ops.atomics import ATOMICS, BLOCK_KINDS
from tilewright_compiler.ir.types import (
    DescriptorType,
    ScalarType,
    SharedType,
    TileType,
    element_dtype,
)
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.layout.panels import ALIGNMENT_BYTES, LINE_BYTES, panelled
from tilewright_compiler.schedule.mapped_descriptors import MappedDescriptors
from tilewright_compiler.schedule.unsuited import Unsuited
from tilewright_compiler.schedule.warp_groups import row_groups

_STORES = ("descriptor_store", "descriptor_rmw")
_BY_POINTERS = ("load", "store", *ATOMICS)
# What the copy engine computes (PTX ISA, "cp.reduce.async.bulk.tensor"). It knows extrema of halves
# too, and does not say what they are of NaN and of -0, which `atomic_max` does.
_INTEGERS = (int32, uint32, int64, uint64)
_COMPUTED: Mapping[str, tuple[DType, ...]] = MappingProxyType(
    dict.fromkeys(BLOCK_KINDS, _INTEGERS)
    | {"add": (float32, float16, bfloat16, int32, uint32, uint64)}
)
_BUFFERS = 2
# A swizzle repeats after as many rows, so that parts of a buffer begin where it does.
_SWIZZLE_ROWS = 32


def bulk_stores(module: Module) -> Module:
    """Replace every `descriptor_store` and `descriptor_rmw`; tiles have layouts.

    Raises Unsuited if a block cannot be copied in bulk, or pointers of the kernel may meet it.
    """
    operations = list(module.kernel.body.walk())
    descriptors = MappedDescriptors(module)
    made = {o.result: o for o in operations if o.name == "make_descriptor"}
    plans: dict[Operation, list[_Plan]] = {}
    by_store = {}
    for store in (o for o in operations if o.name in _STORES):
        make = made.get(store.operands[0])
        if make is None:
            msg = "which tensor descriptor is written depends on the program's flow"
            raise Unsuited(msg, store)
        by_store[store] = _plan(store)
        plans.setdefault(make, []).append(by_store[store])
    # Each thread counts its own stores, so that all are sent by the same threads.
    if len({plan.groups for plan in by_store.values()}) > 1:
        for plan in by_store.values():
            plan.groups = 1
    for store, plan in by_store.items():
        descriptors.check(store.operands[0], plan.buffer.layout, user=store, groups=plan.groups)
    _check_pointers(module, plans)

    buffers: dict[tuple[SharedType, int, Operation | None], list[Value]] = {}

    def rewrite(
        operation: Operation, operands: tuple[Value, ...], builder: Builder
    ) -> tuple[Value, ...] | None:
        if operation in by_store:
            _store(operation, by_store[operation], operands, builder)
            return ()
        if operation not in plans:
            return None
        values = dict(zip(operation.operands, operands, strict=True))
        results = copy_operation(operation, values, builder).results
        descriptors: dict[DescriptorType, Value] = {}
        for plan in plans[operation]:
            type_ = plan.descriptor_type
            if type_ not in descriptors:
                descriptors[type_] = builder.value("make_descriptor", operands, type_)
            plan.descriptor = descriptors[type_]
            # Stores of one form take turns in the same buffers: each has an even number of parts,
            # or one. What is made inside of a loop or branch is not there for others.
            count = min(_BUFFERS, len(plan.starts))
            owner = None if operation in module.kernel.body.operations else operation
            form = plan.buffer, count, owner
            if form not in buffers:
                buffers[form] = [
                    builder.value("alloc_shared", [], plan.buffer, alignment=ALIGNMENT_BYTES)
                    for _ in range(count)
                ]
            plan.buffers = buffers[form]
        return results

    return rewrite_module(module, rewrite)


@dataclass(slots=True)
class _Plan:
    """How a store is done: the parts' type and starts along the last axis, and a buffer's type.

    As many `groups` of warps hold rows of their own, and send them without waiting for the others.

    `descriptor` and `buffers` are those of the rebuilt module, next to the store's descriptor.
    """

    part: TileType
    starts: range
    buffer: SharedType
    whole: DescriptorType
    groups: int
    descriptor: Value | None = None
    buffers: list[Value] = field(default_factory=list)

    @property
    def descriptor_type(self) -> DescriptorType:
        return DescriptorType(self.buffer.dtype, self.whole.padded(self.buffer.shape))


def _plan(store: Operation) -> _Plan:
    type_, kind = store.operands[1].type, store.attributes.get("kind")
    assert isinstance(type_, TileType), "the verifier checks types"
    assert type_.layout is not None, "only tiles with layouts are scheduled"
    dtype, axis = element_dtype(type_), len(type_.shape) - 1
    if kind is not None and dtype not in _COMPUTED[kind]:
        msg = f"no bulk copy does {kind} of {dtype} in memory"
        raise Unsuited(msg, store)
    extent = type_.shape[axis]
    part = type_
    line = max(1, LINE_BYTES[0] // dtype.size_bytes)
    if axis and extent > line and not (kind is not None and extent <= _BUFFERS * line):
        layout: LinearLayout | None = type_.layout.part(axis, line)
        if layout is not None:
            part = TileType(layout.shape, ScalarType(dtype), layout)
    placed = panelled(part.shape, axis, size_bytes=dtype.size_bytes)
    if placed is None:
        msg = f"a row of a block {type_} has less than {LINE_BYTES[-1]} bytes"
        raise Unsuited(msg, store)
    buffer = SharedType(part.shape, dtype, placed)
    whole = store.operands[0].type
    assert isinstance(whole, DescriptorType), "the verifier checks types"
    assert part.layout is not None, "parts have the layouts of their tiles"
    # What is added, say, in a loop is between other things that all warps meet for.
    is_divided = axis and kind is None
    groups = row_groups(part.layout, least_rows=_SWIZZLE_ROWS) if is_divided else 1
    return _Plan(part, range(0, extent, part.shape[axis]), buffer, whole, groups)


def _store(
    operation: Operation, plan: _Plan, operands: tuple[Value, ...], builder: Builder
) -> None:
    _, tile, *outer, last = operands
    axis = len(plan.part.shape) - 1
    assert plan.descriptor is not None, "descriptors are made before they are used"
    for number, start in enumerate(plan.starts):
        buffer = plan.buffers[number % len(plan.buffers)]
        part = tile
        if len(plan.starts) > 1:
            part = builder.value("tile_part", [tile], plan.part, axis=axis, start=start)
        column = last
        if start:
            assert isinstance(last.type, ScalarType), "the verifier checks types"
            distance = builder.value("constant", [], last.type, value=start)
            column = builder.value("add", [last, distance], last.type)
        builder.create("tma_store_wait", pending=len(plan.buffers) - 1)
        builder.create("shared_store", [part, buffer])
        builder.create("async_fence")
        store = builder.create("tma_store", [plan.descriptor, buffer, *outer, column])
        if plan.groups > 1:
            store.attributes["groups"] = plan.groups
        if operation.name == "descriptor_rmw":
            store.attributes["kind"] = operation.attributes["kind"]


def _check_pointers(module: Module, plans: dict[Operation, list[_Plan]]) -> None:
    """Demand that no access by pointers may meet what a store sends: nothing waits for that."""
    roots = pointer_roots(module)
    nowhere: Roots = frozenset()
    written = nowhere.union(*(roots.get(make.operands[0], nowhere) for make in plans))
    for operation in module.kernel.body.walk():
        if operation.name not in _BY_POINTERS:
            continue
        if roots.get(operation.operands[0], nowhere) & written:
            msg = "the kernel accesses a tensor by pointers that it stores through a descriptor"
            raise Unsuited(msg, operation)
