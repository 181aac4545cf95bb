"""Memory that a launch needs besides its operands: planned with the launch, obtained for each call.

What is unwritten before a launch is allocated anew, in the order of the call's stream. Counters are
zeros, and a kernel leaves them so; one array of them serves all launches of a stream, which come
one after the other. A captured graph may run beside its stream, so it has counters of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.abi.dtypes import int32
from tilewright.abi.numpy_types import to_numpy
from tilewright.runtime.launcher import CODES, DTYPES, native
from tilewright.runtime.memory import DeviceArray, allocate, row_major
from tilewright.tensor.arrays import Array

# Counters of a stream's array; one for each tile of a result.
_LEAST_COUNTERS = 4096

_counters: dict[tuple[int, int], DeviceArray] = {}


class Workspace(NamedTuple):
    """A row-major array of that shape and dtype (by its code); of i32 zeros if `is_counting`."""

    shape: tuple[int, ...]
    code: int
    is_counting: bool = False


def counters(count: int) -> Workspace:
    """Return the workspace of so many counters."""
    return Workspace((count,), CODES[int32], is_counting=True)


def obtain(workspaces: Sequence[Workspace], like: Array) -> list[Array]:
    """Return arrays for workspaces, on the side, device and stream of `like`."""
    if not isinstance(like, DeviceArray):
        return [_on_host(workspace) for workspace in workspaces]
    device, stream = like.device_index, like.stream_handle
    return [
        _zeros(workspace, device, stream)
        if workspace.is_counting
        else allocate(
            workspace.shape, row_major(workspace.shape), workspace.code, device, stream=stream
        )
        for workspace in workspaces
    ]


def _on_host(workspace: Workspace) -> Array:
    dtype = to_numpy(DTYPES[workspace.code])
    is_counting = workspace.is_counting
    return np.zeros(workspace.shape, dtype) if is_counting else np.empty(workspace.shape, dtype)


def _zeros(workspace: Workspace, device: int, stream: int) -> DeviceArray:
    (count,) = workspace.shape
    if native.is_capturing(stream):
        return _new_zeros(count, device, stream)
    found = _counters.get((device, stream))
    if found is None or found.shape[0] < count:
        found = _new_zeros(max(count, _LEAST_COUNTERS), device, stream)
        _counters[device, stream] = found
    return found


def _new_zeros(count: int, device: int, stream: int) -> DeviceArray:
    array = allocate((count,), (1,), CODES[int32], device, stream=stream)
    native.fill(array, 0)
    return array
