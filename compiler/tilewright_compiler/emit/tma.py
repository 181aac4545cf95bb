"""Bulk tensor copies between global and shared memory: a box of a tensor map each, by one thread.

Coordinates are those of elements, the fastest axis first. What lies outside the tensor is read as
zero and not written, so nothing here has a mask. A store is a group of its own, so that waiting
counts stores. Threads that copy nothing do not wait either: theirs would cost half a percent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tilewright_compiler.analysis.tensor_maps import copied_tile
from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.emit.shared_access import advanced, moved
from tilewright_compiler.emit.text import AssemblyOperand
from tilewright_compiler.emit.types import GENERIC_POINTER, SHARED_POINTER
from tilewright_compiler.ir.core import Operation, Value
from tilewright_compiler.ir.types import element_dtype

_LOAD = (
    "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[$0], [$1, {{{coordinates}}}], [$2];"
)
_REDUCE = (
    "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{kind}.tile.bulk_group "
    "[$1, {{{coordinates}}}], [$0];"
)
_STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$1, {{{coordinates}}}], [$0];"


def _emit_load(emitter: KernelEmitter, operation: Operation) -> None:
    mbarrier = (emitter.scalar(operation.operands[2]), SHARED_POINTER, "r")
    guard = emitter.one_thread()
    for operands, coordinates in _boxes(emitter, operation, operation.operands[3:]):
        _emit_copy(emitter, _LOAD, [*operands, mbarrier], coordinates, guard)


def _emit_store(emitter: KernelEmitter, operation: Operation) -> None:
    guard = emitter.one_thread(groups=operation.attributes.get("groups", 1))
    kind: str = operation.attributes.get("kind", "")
    template = _REDUCE if kind else _STORE
    for operands, coordinates in _boxes(emitter, operation, operation.operands[2:]):
        _emit_copy(emitter, template, operands, coordinates, guard, kind=kind)
    emitter.text.assembly("cp.async.bulk.commit_group;", guard=guard)


def _emit_copy(
    emitter: KernelEmitter,
    template: str,
    operands: list[AssemblyOperand],
    coordinates: list[AssemblyOperand],
    guard: str | None,
    **names: str,
) -> None:
    places = range(len(operands), len(operands) + len(coordinates))
    text = template.format(
        rank=len(coordinates), coordinates=", ".join(f"${place}" for place in places), **names
    )
    emitter.text.assembly(text, [*operands, *coordinates], guard=guard)


def _boxes(
    emitter: KernelEmitter, operation: Operation, coordinates: tuple[Value, ...]
) -> Iterator[tuple[list[AssemblyOperand], list[AssemblyOperand]]]:
    """Yield shared address and tensor map of each box of a tile, and its coordinates."""
    text = emitter.text
    _, _, boxes = copied_tile(operation)
    tensor_map = (emitter.parameters.tensor_maps[operation], GENERIC_POINTER, "l")
    base = emitter.scalar(operation.operands[1])
    *outer, along = (_index(emitter, coordinate) for coordinate in coordinates)
    rows = emitter.by_group(boxes.shape[boxes.row_axis], groups=boxes.groups)
    if rows is not None:
        # The tile may lack leading axes of the descriptor's block.
        axis = boxes.row_axis - (len(boxes.shape) - 1)
        outer[axis] = text.value(f"llvm.add {outer[axis]}, {rows} : i32")
        distance = emitter.by_group(boxes.box_bytes, groups=boxes.groups)
        assert distance is not None, "groups have parts of their own"
        base = moved(text, base, distance)
    for box in range(boxes.count):
        start = along
        if box:
            step = text.i32(box * boxes.shape[-1])
            start = text.value(f"llvm.add {along}, {step} : i32")
        place = advanced(text, base, box * boxes.panel_bytes)
        yield (
            [(place, SHARED_POINTER, "r"), tensor_map],
            [(name, "i32", "r") for name in (start, *reversed(outer))],
        )


def _index(emitter: KernelEmitter, coordinate: Value) -> str:
    """Return a coordinate as the hardware takes it, in 32 bits.

    No tensor has 2^31 elements along an axis: what lies outside of 32 bits lies outside of all, and
    must not come back in.
    """
    text, dtype, name = emitter.text, element_dtype(coordinate.type), emitter.scalar(coordinate)
    if dtype.bits == 32:
        return name
    if dtype.bits > 32:
        for bound, function in ((-(2**31), "smax"), (2**31 - 1, "smin")):
            limit = text.i64(bound)
            name = text.value(f"llvm.intr.{function}({name}, {limit}) : (i64, i64) -> i64")
    change = "trunc" if dtype.bits > 32 else "sext" if dtype.is_signed else "zext"
    return text.value(f"llvm.{change} {name} : i{dtype.bits} to i32")


def _emit_store_wait(emitter: KernelEmitter, operation: Operation) -> None:
    pending = operation.attributes["pending"]
    emitter.text.assembly(
        f"cp.async.bulk.wait_group.read {pending};",
        guard=emitter.one_thread(groups=emitter.form.storing_groups),
    )


def _emit_fence(emitter: KernelEmitter, operation: Operation) -> None:
    del operation  # it says nothing but where it stands
    emitter.text.line(
        "nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}"
    )


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        "tma_load": _emit_load,
        "tma_store": _emit_store,
        "tma_store_wait": _emit_store_wait,
        "async_fence": _emit_fence,
    }
)
