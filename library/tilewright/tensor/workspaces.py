"""Memory that a launch needs besides its operands: planned with the launch, obtained for each call.

What is unwritten before a launch is allocated anew, in the order of the call's stream. Counters are
zeros, and a kernel leaves them so; one array of them serves all launches of a stream, which come
one after the other. A captured graph may run beside its stream, so it has counters of its own. Both
are memory that the program never sees: the pool keeps it for a graph that another program captures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.abi.dtypes import int32
from tilewright.abi.numpy_types import to_numpy
from tilewright.runtime.geometry import row_major
from tilewright.runtime.launcher import CODES, DTYPES, native
from tilewright.runtime.memory import DeviceArray, allocate
from tilewright.tensor.arrays import Array
from tilewright.tensor.geometry import Arrays, Geometry

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


def obtain(workspaces: Sequence[Workspace], arrays: Arrays, device: int | None) -> list[Array]:
    """Return arrays for workspaces of a launch that has `arrays`, on its device and stream."""
    if device is None:
        return [_on_host(workspace) for workspace in workspaces]
    return [
        _zeros(workspace, arrays, device)
        if workspace.is_counting
        else allocate(_geometry(workspace.shape, workspace.code, device), arrays)
        for workspace in workspaces
    ]


def _on_host(workspace: Workspace) -> Array:
    dtype = to_numpy(DTYPES[workspace.code])
    is_counting = workspace.is_counting
    return np.zeros(workspace.shape, dtype) if is_counting else np.empty(workspace.shape, dtype)


def _geometry(shape: tuple[int, ...], code: int, device: int) -> Geometry:
    return Geometry(shape, row_major(shape), code, is_aligned=True, device=device)


def _zeros(workspace: Workspace, arrays: Arrays, device: int) -> DeviceArray:
    (count,) = workspace.shape
    stream = native.launch_stream(arrays, device)
    if native.is_capturing(stream):
        return _new_zeros(count, arrays, device)
    found = _counters.get((device, stream))
    if found is None or found.shape[0] < count:
        found = _new_zeros(max(count, _LEAST_COUNTERS), arrays, device)
        _counters[device, stream] = found
    return found


def _new_zeros(count: int, arrays: Arrays, device: int) -> DeviceArray:
    array = allocate(_geometry((count,), CODES[int32], device), arrays)
    native.fill(array, 0)
    return array
