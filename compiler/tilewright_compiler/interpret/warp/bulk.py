"""Bulk copies of blocks between tensors in global memory and shared memory, as one thread starts
them and the hardware carries them out: late, and in any order.

A load brings its bytes at any time from its start on, and counts them on its mbarrier then. A store
reads shared memory at any time until it is waited for, and writes global memory some time later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

import numpy as np

from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret.numerics import Array, rounded_to_even_tf32
from tilewright_compiler.interpret.ops.atomics import modify
from tilewright_compiler.interpret.warp.clocks import Mbarrier
from tilewright_compiler.interpret.warp.fragments import from_bytes, to_bytes
from tilewright_compiler.interpret.warp.moves import Compute
from tilewright_compiler.interpret.warp.places import offsets
from tilewright_compiler.interpret.warp.state import Descriptor, SharedTile, Warp
from tilewright_compiler.interpret.warp.traces import Access
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import DescriptorType

_ALIGNMENT = 16  # of bases and strides of tensor maps (CUDA driver API, cuTensorMapEncodeTiled)
_READS_EARLY = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """A block on its way to shared memory. `fetch` gives its bytes."""

    fetch: Callable[[], Array]
    deliver: Callable[[Array], None]
    mbarrier: Mbarrier
    size_bytes: int
    access: Access


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A block on its way to global memory, and what to call when its reading is over.

    `sender` is the warp whose first thread has sent it, and waits for it.
    """

    read: Callable[[], Array]
    write: Callable[[Array], None]
    end: Callable[[], None]
    sender: int
    access: Access


class BulkCopies:
    """The bulk copies of a program that are under way."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._loads: list[tuple[Load, Array | None]] = []
        self._stores: list[tuple[Store, Array | None]] = []
        self._written: list[tuple[Store, Array]] = []

    @property
    def under_way(self) -> list[Access]:
        """Loads that have not arrived, and stores that nobody has waited for."""
        return [load.access for load, _ in self._loads] + [s.access for s, _ in self._stores]

    def start_load(self, load: Load) -> None:
        """Start a load."""
        is_early = self._random.random() < _READS_EARLY
        self._loads.append((load, load.fetch() if is_early else None))

    def start_store(self, store: Store) -> None:
        """Start a store, a group of its own."""
        is_early = self._random.random() < _READS_EARLY
        self._stores.append((store, store.read() if is_early else None))

    def wait_for_stores(self, sender: int, *, pending: int) -> None:
        """Let all stores of a warp but the last `pending` have read what they send."""
        own = [pair for pair in self._stores if pair[0].sender == sender]
        done = own[: max(0, len(own) - pending)]
        for store, data in done:
            self._written.append((store, store.read() if data is None else data))
            store.end()
        self._stores = [pair for pair in self._stores if pair not in done]

    def let_one_arrive(self) -> bool:
        """Let a copy arrive, any one; False if none is under way."""
        choices = len(self._loads) + len(self._written)
        if not choices:
            return False
        chosen = self._random.randrange(choices)
        if chosen < len(self._loads):
            load, data = self._loads.pop(chosen)
            load.deliver(load.fetch() if data is None else data)
            load.mbarrier.deliver(load.size_bytes)
        else:
            # Stores to one place arrive in any order, too, but nothing may rest on that.
            store, sent = self._written.pop(chosen - len(self._loads))
            store.write(sent)
        return True


def _make_descriptor(warp: Warp, operation: Operation) -> Descriptor:
    type_ = operation.result.type
    assert isinstance(type_, DescriptorType), "the verifier checks types"
    base, *numbers = (int(warp.array(value)[0]) for value in operation.operands)
    rank = len(type_.block)
    return Descriptor(type_, base, tuple(numbers[:rank]), (*numbers[rank:], 1))


def _tma_load(warp: Warp, operation: Operation) -> None:
    descriptor, tile, mbarrier = (warp.held[value] for value in operation.operands[:3])
    assert isinstance(descriptor, Descriptor), "the verifier checks types"
    assert isinstance(tile, SharedTile), "the verifier checks types"
    assert isinstance(mbarrier, Mbarrier), "the verifier checks types"
    pointer, inside = _block(warp, operation, descriptor, operation.operands[3:])
    size = descriptor.type.dtype.size_bytes
    memory, global_access = warp.program.batch.memory, warp.global_access(operation, "tma_load")
    shared, here = warp.program.shared, warp.access(operation, tile.allocation)
    starts = tile.start + offsets(tile.type.layout) * size
    count = starts.size * size

    is_rounded = operation.attributes.get("rounding") == "tf32"

    def fetch() -> Array:
        loaded = memory.load(pointer, inside, None, access=global_access)
        loaded = rounded_to_even_tf32(loaded) if is_rounded else loaded
        return to_bytes(np.broadcast_to(loaded, pointer.shape))

    shared.bring(starts, size, mbarrier=mbarrier, access=here)
    load = Load(fetch, lambda data: shared.place(starts, data, here), mbarrier, count, here)
    warp.program.bulk.start_load(load)


def _tma_store(warp: Warp, operation: Operation) -> None:
    groups: int = operation.attributes.get("groups", 1)
    group, within = divmod(warp.index, warp.program.num_warps // groups)
    if within:
        return
    descriptor, tile = (warp.held[value] for value in operation.operands[:2])
    assert isinstance(descriptor, Descriptor), "the verifier checks types"
    assert isinstance(tile, SharedTile), "the verifier checks types"
    pointer, inside = _block(warp, operation, descriptor, operation.operands[2:])
    size = descriptor.type.dtype.size_bytes
    memory, global_access = warp.program.batch.memory, warp.global_access(operation, "tma_store")
    shared, here = warp.program.shared, warp.access(operation, tile.allocation)
    starts = tile.start + offsets(tile.type.layout) * size
    part = starts.size // groups
    own = slice(group * part, (group + 1) * part)
    pointer, inside, starts = pointer[own], inside[own], starts[own]
    units = shared.begin_reading(starts, size, access=here)

    def write(data: Array) -> None:
        values = from_bytes(data, tile.type)
        kind = operation.attributes.get("kind")
        if kind is None:
            memory.store(pointer, values, inside, access=global_access)
            return
        operands = pointer[None], values[None], inside[None]
        modify(memory, kind, tile.type.dtype, *operands, access=global_access)

    warp.program.bulk.start_store(
        Store(
            lambda: shared.peek(starts, size),
            write,
            lambda: shared.end_reading(units, warp.index),
            warp.index,
            here,
        )
    )


def _tma_store_wait(warp: Warp, operation: Operation) -> None:
    warp.program.bulk.wait_for_stores(warp.index, pending=operation.attributes["pending"])


def _async_fence(warp: Warp, _operation: Operation) -> None:
    warp.program.shared.proxies.fence(warp.index)


def _block(
    warp: Warp, operation: Operation, descriptor: Descriptor, coordinates: tuple[object, ...]
) -> tuple[Array, Array]:
    """Return the address of each element of a block in row-major order, and which are inside."""
    size = descriptor.type.dtype.size_bytes
    outer = [stride * size for stride in descriptor.strides[:-1]]
    if any(place % _ALIGNMENT for place in (descriptor.base, *outer)):
        what = f"base and strides of a tensor map are multiples of {_ALIGNMENT} bytes, not {outer}"
        raise warp.error(operation, what)
    starts = [int(warp.array(value)[0]) for value in operation.operands[-len(coordinates) :]]
    kind = operation.attributes.get("kind")
    if kind is not None and min(starts) < 0:
        what = f"no bulk copy does {kind} at negative coordinates, {starts}"
        raise warp.error(operation, what)
    address = np.full((), descriptor.base, np.int64)
    inside = np.ones((), np.bool_)
    for axis, (start, extent) in enumerate(zip(starts, descriptor.type.block, strict=True)):
        index = start + np.arange(extent)
        shape = [1] * len(descriptor.type.block)
        shape[axis] = extent
        address = address + (index * descriptor.strides[axis] * size).reshape(shape)
        inside = inside & ((index >= 0) & (index < descriptor.sizes[axis])).reshape(shape)
    block = descriptor.type.block
    full = (np.broadcast_to(array, block).ravel() for array in (address, inside))
    pointer, mask = full
    return pointer, mask


COMPUTE: Mapping[str, Compute] = MappingProxyType(
    {
        "make_descriptor": _make_descriptor,
        "tma_load": _tma_load,
        "tma_store": _tma_store,
        "tma_store_wait": _tma_store_wait,
        "async_fence": _async_fence,
    }
)
