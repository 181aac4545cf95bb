"""Scans, reductions by functions and look-ups in a schedule: places, barriers, and what is refused
when one of them is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.every_way import lower_text
from helpers.mutations import find, with_attributes, with_type, without
from tilewright.errors import InternalCompilerError, ScheduleError
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.interpret.traffic import shared_traffic
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.types import TileType
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module
from tilewright_compiler.schedule.scratch import scratch_bytes
from tilewright_compiler.schedule.verify_scheduled import verify_scheduled

Array = np.ndarray[Any, np.dtype[Any]]

# The memory of each exchange is used again in the next round: someone has to wait.
TEXT = """
@tl.kernel
def later(a, i, b, j):
    return tl.where(b >= a, b, a), tl.where(b >= a, j, i)

@tl.kernel
def k(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    row = tl.load(x + i)
    for turn in range(3):
        {body}
    tl.store(out + i, row)
"""
BODIES = {
    "scan": "row = tl.cumsum(row, 0)",
    "reduce_with": "row += tl.reduce((row, i), 0, later)[1]",
    "gather": "row = tl.gather(row, row, 0) + turn",
    "histogram": "row += tl.histogram(row, N)",
}


def _arrays() -> dict[str, Array]:
    x = (np.arange(256) * 7 % 31).astype(np.int32)
    return {"x": x, "out": np.zeros_like(x)}


def _scheduled(name: str) -> Module:
    module = optimize(lower_text(TEXT.format(body=BODIES[name]), _arrays(), N=256))
    return schedule_module(module)


def _run(module: Module) -> None:
    scheduled.run(module, grid=(1, 1, 1), arguments=_arrays())


# A thread sets the counters to zero that it read before: histograms alone do not meet.
@pytest.mark.parametrize("name", ["scan", "reduce_with", "gather"])
def test_who_uses_a_place_again_waits(name: str) -> None:
    module = _scheduled(name)
    (operation,) = find(module, name)
    assert scratch_bytes(operation) > 0
    assert "shared_offset" in operation.attributes
    _run(module)
    (barrier,) = find(module, "barrier")
    with pytest.raises(ScheduleError, match="no barrier between them"):
        _run(without(module, barrier))


@pytest.mark.parametrize("name", ["gather", "histogram"])
def test_a_place_beyond_shared_memory_is_refused(name: str) -> None:
    module = _scheduled(name)
    (operation,) = find(module, name)
    moved = with_attributes(module, operation, shared_offset=1024)
    with pytest.raises(InternalCompilerError, match="ends beyond the module's 1024 shared bytes"):
        verify_scheduled(moved)
    with pytest.raises(ScheduleError, match="reaches beyond the 1024 bytes"):
        _run(moved)


def test_a_gather_whose_index_lies_elsewhere_is_refused() -> None:
    module = _scheduled("gather")
    (operation,) = find(module, "gather")
    type_ = operation.result.type
    assert isinstance(type_, TileType)
    assert type_.layout is not None
    other = LinearLayout(type_.shape, type_.layout.register, type_.layout.lane[::-1], (32, 64))
    moved = with_type(module, operation, type_.with_layout(other))
    message = "the index and the result have one layout"
    with pytest.raises(InternalCompilerError, match=message):
        verify_scheduled(moved)
    with pytest.raises(ScheduleError, match=message):
        _run(moved)


def _without_offset(module: Module, operation: Operation) -> Module:
    del operation.attributes["shared_offset"]
    return module


@pytest.mark.parametrize("name", BODIES)
def test_an_exchange_without_a_place_is_refused(name: str) -> None:
    module = _scheduled(name)
    (operation,) = find(module, name)
    size = scratch_bytes(operation)
    moved = _without_offset(module, operation)
    with pytest.raises(InternalCompilerError, match=f"needs {size} bytes of shared memory"):
        verify_scheduled(moved)
    with pytest.raises(ScheduleError, match=f"needs {size} bytes and has no shared_offset"):
        _run(moved)


def test_a_scan_that_is_not_in_order_is_refused() -> None:
    module = _scheduled("scan")
    (operation,) = find(module, "scan")
    (operand,), (result,) = operation.operands, operation.results
    assert isinstance(operand.type, TileType)
    # A register that is two bits of the axis at once.
    layout = LinearLayout((256,), (1 | 2,), (2, 4, 8, 16, 32), (64, 128))
    operand.type = operand.type.with_layout(layout)
    result.type = operand.type
    with pytest.raises(InternalCompilerError, match="cannot be reduced along axis 0"):
        verify_scheduled(module)


def test_what_an_ordered_exchange_moves_is_counted() -> None:
    module = _scheduled("reduce_with")
    traffic = [entry for entry in shared_traffic(module) if entry.operation.name == "reduce_with"]
    # Each of the two operands is written and read; nobody waits for a bank.
    assert [entry.access.name for entry in traffic] == ["write", "read", "write", "read"]
    assert all(entry.access.ways == 1 for entry in traffic)
    assert all(entry.loops == 1 for entry in traffic)
