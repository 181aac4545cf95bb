"""Warp roles, mbarriers and bulk copies: what only the Hopper schedule makes.

| operation | operands | meaning |
|---|---|---|
| tma_tile | descriptor, coordinates -> shared tile | a block that shared memory will hold; the \
schedule replaces it by a ring before emission; those with one attribute ring share it; with the \
attribute rounding, "tf32", it will hold f32 rounded to that |
| alloc_mbarriers | -> ring of mbarriers | attributes arrivals, and shared_offset once placed |
| mbarrier_init | ring | one thread sets the arrivals of all slots; visible after a `barrier` |
| mbarrier_slot | ring, i32 index -> mbarrier | 0 <= index < slots |
| mbarrier_wait | mbarrier, i32 parity | until the phase of that parity is complete |
| mbarrier_arrive | mbarrier | one arrival for each warp that executes it |
| mbarrier_expect | mbarrier | one arrival, and attribute bytes more to come in this phase |
| tma_load | descriptor, shared tile, mbarrier, coordinates | a block on its way; its bytes count \
on the mbarrier; the attribute rounding is as of `tma_tile` |
| tma_store | descriptor, shared tile, coordinates | a block on its way to global memory; with \
the attribute groups, one thread of each group of warps (see `barrier`) sends its part of rows; \
with kind, elements become `kind(old, value)` by relaxed atomic operations |
| tma_store_wait | | attribute pending: stores of this thread that may still read shared memory |
| tile_part | tile -> tile | attributes axis, start: the block from `start` on along `axis`, as \
long as the result, a multiple of which `start` is; each thread has its own registers of it |
| async_fence | | what this thread wrote to shared memory is visible to bulk copies and wgmma |
| dot_wait | accumulators -> the same | attribute pending: groups of dots that may still run |
| roles | | regions producer, consumer; attributes producer_registers, consumer_registers |
| cta_index, num_ctas | -> i32 | the place among the CTAs that run, of a persistent kernel |
| grid_extent | -> i64 | attribute axis: the logical grid of a persistent kernel |

Inside `roles` the consumer region is what the program's `num_warps` warps execute; the producer
region is executed by one thread of a further warpgroup. A `barrier` in the consumer region is one
of the consumers alone. The module's attribute `producer_warps` is 4 then, else absent.

A dot with the atom `wgmma...` reads B, and A unless it is in registers, from shared memory that
`async_fence` or a bulk copy wrote. It is asynchronous: its result may be read after a `dot_wait`
that names it, and is its own accumulator's registers until then. Each dot is a group of its own.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.abi.dtypes import int32, int64
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.ops.atomics import BLOCK_KINDS
from tilewright_compiler.ir.ops.spec import Effect, OperationSpec
from tilewright_compiler.ir.types import (
    DescriptorType,
    MbarrierType,
    ScalarType,
    SharedType,
    TileType,
    Type,
)

_MANY = 1 << 30
_I32 = ScalarType(int32)


def _types(operation: Operation) -> list[Type]:
    return [value.type for value in operation.operands]


def _verify_block(descriptor: Type, shared: Type) -> str | None:
    if not isinstance(descriptor, DescriptorType) or not isinstance(shared, SharedType):
        return f"moves a block between a descriptor and shared memory, got {descriptor}, {shared}"
    good = shared.slots is None and shared.dtype == descriptor.dtype
    good = good and descriptor.is_block(shared.shape)
    return None if good else f"{shared} is no block of {descriptor}"


def _verify_tile(operation: Operation) -> str | None:
    return _verify_block(_types(operation)[0], operation.result.type)


def _verify_tma_load(operation: Operation) -> str | None:
    descriptor, shared, mbarrier, *_ = _types(operation)
    if mbarrier != MbarrierType():
        return f"counts on an mbarrier, got {mbarrier}"
    return _verify_block(descriptor, shared)


def _verify_tma_store(operation: Operation) -> str | None:
    descriptor, shared, *_ = _types(operation)
    kind = operation.attributes.get("kind")
    if kind is not None and kind not in BLOCK_KINDS:
        return f"kind is one of {', '.join(BLOCK_KINDS)}, or not there"
    return _verify_block(descriptor, shared)


def _verify_alloc(operation: Operation) -> str | None:
    ring = operation.result.type
    good = isinstance(ring, MbarrierType) and ring.slots is not None
    return None if good else "gives a ring of mbarriers"


def _verify_init(operation: Operation) -> str | None:
    (ring,) = _types(operation)
    good = isinstance(ring, MbarrierType) and ring.slots is not None
    return None if good else f"takes a ring of mbarriers, got {ring}"


def _verify_slot(operation: Operation) -> str | None:
    ring, index = _types(operation)
    if not isinstance(ring, MbarrierType) or ring.slots is None or index != _I32:
        return f"takes a ring of mbarriers and an i32 index, got {ring}, {index}"
    return None if operation.result.type == MbarrierType() else "gives one mbarrier"


def _verify_mbarrier(operation: Operation) -> str | None:
    mbarrier, *parity = _types(operation)
    good = mbarrier == MbarrierType() and all(type_ == _I32 for type_ in parity)
    return None if good else f"takes an mbarrier and its parity, got {mbarrier}, {parity}"


def _verify_dot_wait(operation: Operation) -> str | None:
    same = _types(operation) == [value.type for value in operation.results]
    return None if same else "results are the operands"


def _verify_part(operation: Operation) -> str | None:
    source, result = operation.operands[0].type, operation.result.type
    if not isinstance(source, TileType) or not isinstance(result, TileType):
        return f"takes a part of a tile, got {source} -> {result}"
    axis, start = operation.attributes["axis"], operation.attributes["start"]
    if not 0 <= axis < len(source.shape) or len(result.shape) != len(source.shape):
        return f"axis {axis} is none of {source}, or {result} has another rank"
    extent = result.shape[axis]
    expected = (*source.shape[:axis], extent, *source.shape[axis + 1 :])
    layout = None if source.layout is None else source.layout.part(axis, extent)
    if result != replace(source, shape=expected, layout=layout):
        return f"the result is {replace(source, shape=expected, layout=layout)}"
    if (source.layout is None) != (layout is None):
        return f"threads do not hold blocks of {extent} along axis {axis} of {source}"
    good = start % extent == 0 and 0 <= start < source.shape[axis]
    return None if good else f"start {start} is no multiple of {extent} within {source}"


def _verify_index(operation: Operation) -> str | None:
    return None if operation.result.type == _I32 else "gives i32"


def _verify_extent(operation: Operation) -> str | None:
    good = operation.attributes["axis"] in (0, 1, 2)
    good = good and operation.result.type == ScalarType(int64)
    return None if good else "axis is 0, 1 or 2 and the result i64"


SPECS = (
    OperationSpec(
        "tma_tile",
        (2, _MANY),
        effect=Effect.READ,
        optional_attributes=("ring", "rounding"),
        verify=_verify_tile,
    ),
    OperationSpec(
        "alloc_mbarriers",
        (0, 0),
        ("arrivals",),
        optional_attributes=("shared_offset",),
        verify=_verify_alloc,
    ),
    OperationSpec("mbarrier_init", (1, 1), (), Effect.WRITE, results=0, verify=_verify_init),
    OperationSpec("mbarrier_slot", (2, 2), verify=_verify_slot),
    OperationSpec("mbarrier_wait", (2, 2), (), Effect.WRITE, results=0, verify=_verify_mbarrier),
    OperationSpec("mbarrier_arrive", (1, 1), (), Effect.WRITE, results=0, verify=_verify_mbarrier),
    OperationSpec(
        "mbarrier_expect", (1, 1), ("bytes",), Effect.WRITE, results=0, verify=_verify_mbarrier
    ),
    OperationSpec(
        "tma_load",
        (4, _MANY),
        (),
        Effect.WRITE,
        results=0,
        optional_attributes=("rounding",),
        verify=_verify_tma_load,
    ),
    OperationSpec(
        "tma_store",
        (3, _MANY),
        (),
        Effect.WRITE,
        results=0,
        optional_attributes=("groups", "kind"),
        verify=_verify_tma_store,
    ),
    OperationSpec("tma_store_wait", (0, 0), ("pending",), Effect.WRITE, results=0),
    OperationSpec("tile_part", (1, 1), ("axis", "start"), verify=_verify_part),
    OperationSpec("async_fence", (0, 0), (), Effect.WRITE, results=0),
    OperationSpec(
        "dot_wait", (1, _MANY), ("pending",), Effect.WRITE, results=None, verify=_verify_dot_wait
    ),
    OperationSpec(
        "roles",
        (0, 0),
        ("producer_registers", "consumer_registers"),
        Effect.CONTROL,
        regions=2,
        results=0,
    ),
    OperationSpec("cta_index", (0, 0), verify=_verify_index),
    OperationSpec("num_ctas", (0, 0), verify=_verify_index),
    OperationSpec("grid_extent", (0, 0), ("axis",), verify=_verify_extent),
)
