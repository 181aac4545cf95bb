"""Mbarriers, and where a CTA stands among those of a persistent kernel."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType

import numpy as np

from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.clocks import Mbarrier
from tilewright_compiler.interpret.warp.moves import Compute, Exchange
from tilewright_compiler.interpret.warp.state import MbarrierRing, Stop, Waiting, Warp
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import MbarrierType


def _alloc_mbarriers(warp: Warp, operation: Operation) -> MbarrierRing:
    type_ = operation.result.type
    assert isinstance(type_, MbarrierType), "the verifier checks types"
    assert type_.slots is not None, "the verifier checks types"
    rings = warp.program.mbarriers
    if operation not in rings:
        rings[operation] = MbarrierRing(operation, type_.slots)
    return rings[operation]


def _mbarrier_init(warp: Warp, operation: Operation) -> None:
    ring = warp.held[operation.operands[0]]
    assert isinstance(ring, MbarrierRing), "the verifier checks types"
    if warp.index:
        return
    clocks, name = warp.program.clocks, operation.operands[0].name or "mbarrier"
    ring.members[:] = [
        Mbarrier(
            ring.operation.attributes["arrivals"],
            clocks.new_actor(),
            (warp.index, clocks.time(warp.index)),
            f"%{name}[{slot}]",
        )
        for slot in range(ring.slots)
    ]


def _mbarrier_slot(warp: Warp, operation: Operation) -> Mbarrier:
    ring = warp.held[operation.operands[0]]
    assert isinstance(ring, MbarrierRing), "the verifier checks types"
    index = int(warp.array(operation.operands[1])[0])
    if not 0 <= index < ring.slots:
        raise warp.error(operation, f"index {index} of a ring of {ring.slots} mbarriers")
    if not ring.members:
        raise warp.error(operation, "nobody has initialised the mbarriers")
    by, time = ring.members[index].started
    if warp.program.clocks.heard(warp.index)[by] < time:
        raise warp.error(operation, "no barrier stands between this and the initialisation")
    return ring.members[index]


def _mbarrier_wait(warp: Warp, operation: Operation) -> Generator[Stop, None, None]:
    mbarrier = _member(warp, operation)
    parity = int(warp.array(operation.operands[1])[0])
    if parity not in (0, 1):
        raise warp.error(operation, f"a parity is 0 or 1, got {parity}")
    yield Waiting(operation, warp.turns[operation], mbarrier, parity)
    if mbarrier.told is not None:
        warp.program.clocks.acquire(warp.index, mbarrier.told)


def _mbarrier_arrive(warp: Warp, operation: Operation) -> None:
    _arrive(warp, operation, _member(warp, operation))


def _mbarrier_expect(warp: Warp, operation: Operation) -> None:
    mbarrier = _member(warp, operation)
    mbarrier.bytes += operation.attributes["bytes"]
    _arrive(warp, operation, mbarrier)


def _arrive(warp: Warp, operation: Operation, mbarrier: Mbarrier) -> None:
    if not mbarrier.arrive(warp.program.clocks.release(warp.index)):
        what = f"{mbarrier.name} expects {mbarrier.arrivals} arrivals in a phase, this is one more"
        raise warp.error(operation, what)


def _member(warp: Warp, operation: Operation) -> Mbarrier:
    held = warp.held[operation.operands[0]]
    assert isinstance(held, Mbarrier), "the verifier checks types"
    return held


def _cta_index(warp: Warp, _operation: Operation) -> Array:
    return np.array([warp.program.cta], np.int32)


def _num_ctas(warp: Warp, _operation: Operation) -> Array:
    return np.array([warp.program.num_ctas], np.int32)


def _grid_extent(warp: Warp, operation: Operation) -> Array:
    return np.array([warp.program.batch.grid[operation.attributes["axis"]]], np.int64)


COMPUTE: Mapping[str, Compute] = MappingProxyType(
    {
        "alloc_mbarriers": _alloc_mbarriers,
        "mbarrier_init": _mbarrier_init,
        "mbarrier_slot": _mbarrier_slot,
        "mbarrier_arrive": _mbarrier_arrive,
        "mbarrier_expect": _mbarrier_expect,
        "cta_index": _cta_index,
        "num_ctas": _num_ctas,
        "grid_extent": _grid_extent,
    }
)
EXCHANGES: Mapping[str, Exchange] = MappingProxyType({"mbarrier_wait": _mbarrier_wait})
