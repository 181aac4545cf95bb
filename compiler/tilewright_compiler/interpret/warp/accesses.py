"""Loads, stores and copies: global memory by address, shared memory by the layout of the tile."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType

import numpy as np

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.fragments import read_fragment, to_bytes, write_fragment
from tilewright_compiler.interpret.warp.moves import Compute, Exchange
from tilewright_compiler.interpret.warp.places import elements, offsets, owned, spread, threads
from tilewright_compiler.interpret.warp.state import (
    Meeting,
    Phase,
    SharedTile,
    Token,
    Warp,
    layout_of,
)
from tilewright_compiler.interpret.warp.traces import SEVERAL
from tilewright_compiler.interpret.warp.vectors import check_copy, check_vectors
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import SharedType, TileType

_EVERYWHERE = np.array(True)


def _load(warp: Warp, operation: Operation) -> Array:
    pointer, *rest = (warp.array(value) for value in operation.operands)
    mask, other = (*rest, None, None)[:2]
    check_vectors(warp, operation, pointer, mask)
    access = warp.global_access(operation, "load")
    loaded = warp.program.batch.memory.load(pointer, mask, other, access=access)
    loaded = spread(loaded, pointer.shape)
    where = _where(pointer, mask)
    warp.program.traces.load(
        pointer[where],
        _threads(warp, pointer.shape)[where],
        size_bytes=access.dtype.size_bytes,
        access=warp.access(operation, operation),
    )
    warp.agree(operation, loaded)
    return loaded


def _store(warp: Warp, operation: Operation) -> None:
    pointer, value, *rest = (warp.array(value) for value in operation.operands)
    mask = rest[0] if rest else None
    check_vectors(warp, operation, pointer, mask)
    type_ = operation.operands[0].type
    if isinstance(type_, TileType):
        owner = owned(layout_of(type_), warp.index)
        mask = owner if mask is None else mask & owner
    elif warp.index:
        return
    access = warp.global_access(operation, "store")
    warp.program.batch.memory.store(pointer, value, mask, access=access)
    where = _where(pointer, mask)
    warp.program.traces.store(
        pointer[where],
        _threads(warp, pointer.shape)[where],
        spread(value, pointer.shape)[where],
        access=warp.access(operation, operation),
    )


def _alloc_shared(warp: Warp, operation: Operation) -> SharedTile:
    type_, start = operation.result.type, operation.attributes.get("shared_offset")
    assert isinstance(type_, SharedType), "the verifier checks types"
    if start is None:
        raise warp.error(operation, f"{type_} has no shared_offset")
    warp.phases.pop(operation, None)  # in another turn of an outer loop, its slots start anew
    return SharedTile(type_, start, operation)


def _shared_slot(warp: Warp, operation: Operation) -> SharedTile:
    ring, type_ = warp.shared(operation.operands[0]), operation.result.type
    assert isinstance(type_, SharedType), "the verifier checks types"
    index, slots = int(warp.array(operation.operands[1])[0]), ring.type.slots
    assert slots is not None, "the verifier checks types"
    if not 0 <= index < slots:
        raise warp.error(operation, f"index {index} of a ring of {slots} slots")
    # Where bulk copies fill rings, mbarriers say which slots meet, and positions say nothing.
    if not warp.program.shared.has_proxies:
        _check_position(warp, operation, ring, (index - operation.attributes["position"]) % slots)
    return SharedTile(type_, ring.start + index * type_.tile_bytes, ring.allocation)


def _check_position(warp: Warp, operation: Operation, ring: SharedTile, slot: int) -> None:
    """Hold the slot that is consumed here, as `position` claims, against earlier claims.

    An iteration consumes one slot, the next iteration the next slot. Where no loop connects two
    uses, there is nothing to compare.
    """
    before = warp.phases.get(ring.allocation)
    here = warp.loops
    warp.phases[ring.allocation] = Phase(here, slot)
    if before is None:
        return
    ahead = 0
    if before.loops != here:
        if not here:
            return
        *outer, last = here
        if before.loops == tuple(outer):  # from the prologue into the loop
            ahead = last.number
        elif before.loops[:-1] == tuple(outer) and before.loops[-1].entry is last.entry:
            ahead = last.number - before.loops[-1].number
        else:
            return
    assert ring.type.slots is not None
    expected = (before.slot + ahead) % ring.type.slots
    if slot != expected:
        position = operation.attributes["position"]
        what = (
            f"position {position} says that this iteration consumes slot {slot}, "
            f"by the uses before it is slot {expected}"
        )
        raise warp.error(operation, what)


def _shared_transpose(warp: Warp, operation: Operation) -> SharedTile:
    source, type_ = warp.shared(operation.operands[0]), operation.result.type
    assert isinstance(type_, SharedType), "the verifier checks types"
    return SharedTile(type_, source.start, source.allocation)


def _shared_load(warp: Warp, operation: Operation) -> Array:
    warp.copies.let_some_arrive()
    tile, layout = warp.shared(operation.operands[0]), layout_of(operation.result.type)
    result = read_fragment(warp, operation, tile, layout)
    warp.agree(operation, result)
    return result


def _shared_store(warp: Warp, operation: Operation) -> None:
    warp.copies.let_some_arrive()
    value, target = operation.operands
    layout = layout_of(value.type)
    write_fragment(warp, operation, warp.shared(target), layout, warp.array(value))


def _async_copy(warp: Warp, operation: Operation) -> None:
    warp.copies.let_some_arrive()
    tile, layout = warp.shared(operation.operands[1]), layout_of(operation.operands[0].type)
    check_copy(warp, operation, tile)
    owner, size = owned(layout, warp.index), tile.type.dtype.size_bytes
    if not owner.any():
        return
    pointers = warp.array(operation.operands[0])
    masks = warp.array(operation.operands[2]) if len(operation.operands) > 2 else None
    check_vectors(warp, operation, pointers, masks)
    pointer, mask = pointers[owner], None if masks is None else masks[owner]
    memory, access = warp.program.batch.memory, warp.global_access(operation, "async_copy")

    def fetch() -> Array:
        loaded = memory.load(pointer, mask, None, access=access)
        return to_bytes(np.broadcast_to(loaded, pointer.shape))

    fetch()  # refuses an address outside every argument, of which nothing could be noted
    here = warp.access(operation, operation)
    senders = np.broadcast_to(threads(warp.index), owner.shape)[owner]
    where = _where(pointer, mask)
    end = warp.program.traces.start_copy(
        pointer[where], senders[where], size_bytes=size, access=here
    )
    # Where threads hold replicas, each of them copies: nobody alone has waited for the bytes.
    is_alone = not (layout.free.lane or layout.free.warp)
    copy = warp.program.shared.start(
        tile.start + offsets(tile.type.layout)[elements(layout, warp.index)[owner]] * size,
        senders if is_alone else np.array(SEVERAL),
        size,
        fetch=fetch,
        end=end,
        access=warp.access(operation, tile.allocation),
    )
    warp.copies.start(copy)


def _async_commit(warp: Warp, _operation: Operation) -> Token:
    return Token(warp.copies.commit())


def _async_wait(warp: Warp, operation: Operation) -> None:
    token = warp.held[operation.operands[0]]
    assert isinstance(token, Token), "the verifier checks types"
    pending = operation.attributes["pending"]
    arrived = warp.copies.wait(pending)
    if arrived <= token.group:
        after = arrived + pending - 1 - token.group
        what = (
            f"pending = {pending} leaves the token's group under way: "
            f"{after} groups were committed after it"
        )
        raise warp.error(operation, what)


def _barrier(warp: Warp, operation: Operation) -> Generator[Meeting, None, None]:
    warp.copies.let_some_arrive()
    yield Meeting(operation, warp.turns[operation], operation.attributes.get("groups", 1))


def _where(pointer: Array, mask: Array | None) -> Array:
    """Return which places access memory."""
    return spread(_EVERYWHERE if mask is None else mask, pointer.shape)


def _threads(warp: Warp, shape: tuple[int, ...]) -> Array:
    """Return the thread of each place of a tile; a scalar is accessed by the first of the warp."""
    numbers = threads(warp.index)
    return spread(numbers if len(shape) == 2 else numbers[0], shape)


COMPUTE: Mapping[str, Compute] = MappingProxyType(
    {
        "load": _load,
        "store": _store,
        "alloc_shared": _alloc_shared,
        "shared_slot": _shared_slot,
        "shared_transpose": _shared_transpose,
        "shared_load": _shared_load,
        "shared_store": _shared_store,
        "async_copy": _async_copy,
        "async_commit": _async_commit,
        "async_wait": _async_wait,
    }
)
EXCHANGES: Mapping[str, Exchange] = MappingProxyType({"barrier": _barrier})
