"""A kernel and its schedule -> nothing, or the difference between them: proofs, kept by content.

A schedule is proven on given launches, small ones of odd sizes. The scheduled kernel runs under the
checker (`interpret.scheduled`), the unscheduled one in the interpreter, and what they leave in
memory is compared. A proof is kept under the hash of the scheduled IR and of the checker, so that
only what changed is proven again.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tilewright.abi.dtypes import DType
from tilewright.abi.numpy_types import from_numpy
from tilewright.errors import ScheduleError
from tilewright.lazy_dataclass import dataclass
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.toolchain import checker_fingerprint

# Sums run in another order than in the interpreter, so f32 results may differ in their last digits;
# rounding to a narrow type makes one of its own steps of that.
_TOLERANCE = {
    "f64": 1e-12,
    "f32": 2e-5,
    "f16": 2e-3,
    "bf16": 1.6e-2,
    "f8e4m3": 0.13,
    "f8e5m2": 0.26,
}
_PROVEN = b"proven"
_ALIGNMENT_BYTES = 64


class Store(Protocol):
    """A content cache. What it damages counts as not there."""

    def get(self, key: str) -> bytes | None:
        """Return what was put under `key`, or None."""

    def put(self, key: str, value: bytes) -> None:
        """Keep `value` under `key`."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A grid with the run-time arguments by name. What a proof writes are copies of the arrays."""

    grid: tuple[int, int, int]
    arguments: Mapping[str, tile.Argument]


def prove(
    module: Module,
    schedule: Module,
    launches: Sequence[Launch],
    *,
    seeds: Sequence[int] = (0, 1),
    store: Store | None = None,
) -> bool:
    """Prove that `schedule` computes what `module` does; return whether it had to run.

    Raises ScheduleError for a schedule that is wrong, with the argument and element that differ.
    """
    key = proof_key(schedule, seeds=seeds)
    if store is not None and store.get(key) == _PROVEN:
        return False
    for launch in launches:
        expected = _copied(launch.arguments)
        tile.run(module, grid=launch.grid, arguments=expected)
        for seed in seeds:
            got = _copied(launch.arguments)
            scheduled.run(schedule, grid=launch.grid, arguments=got, seed=seed)
            _compare(module.kernel.name, launch, expected, got)
    if store is not None:
        store.put(key, _PROVEN)
    return True


def proof_key(schedule: Module, *, seeds: Sequence[int]) -> str:
    """Return the key of a proof: the hash of the scheduled IR, of the checker and of the seeds."""
    digest = hashlib.sha256(checker_fingerprint().encode())
    digest.update(repr(tuple(seeds)).encode())
    digest.update(print_module(schedule).encode())
    return digest.hexdigest()


def _copied(arguments: Mapping[str, tile.Argument]) -> dict[str, tile.Argument]:
    """Copy the arrays with their strides: a view takes the whole buffer along."""
    return {
        name: _copy(argument) if isinstance(argument, np.ndarray) else argument
        for name, argument in arguments.items()
    }


def _copy(array: Array) -> Array:
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if base is array:
        return array.copy(order="K")
    if not (base.flags.c_contiguous or base.flags.f_contiguous):
        # A view that knows no array of all its memory: what lies between its elements comes along.
        low, high = np.lib.array_utils.byte_bounds(base)
        whole = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        start = low % _ALIGNMENT_BYTES
        memory = np.empty(high - low + 2 * _ALIGNMENT_BYTES, np.uint8)
        start += -memory.ctypes.data % _ALIGNMENT_BYTES
        memory[start : start + high - low] = whole
        skip = start + array.__array_interface__["data"][0] - low
        return np.ndarray(array.shape, array.dtype, memory, skip, array.strides)
    moved = base.copy(order="K")
    skip = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, moved, skip, array.strides)


def _compare(
    kernel: str,
    launch: Launch,
    expected: Mapping[str, tile.Argument],
    got: Mapping[str, tile.Argument],
) -> None:
    for name, want in expected.items():
        have = got[name]
        if not isinstance(want, np.ndarray) or not isinstance(have, np.ndarray):
            continue
        wrong = ~_agree(want, have, from_numpy(want.dtype))
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            msg = (
                f"kernel {kernel!r}, grid {launch.grid}: {int(wrong.sum())} elements of {name!r} "
                f"are wrong, the first at {index}: {have[index]!r}, not {want[index]!r}"
            )
            raise ScheduleError(msg)


def _agree(want: Array, have: Array, dtype: DType) -> Array:
    """Return where values agree: floats within a tolerance of the largest of the array."""
    if not dtype.is_float:
        same: Array = want == have
        return same
    with np.errstate(invalid="ignore"):  # what nothing wrote may be any NaN
        left, right = want.astype(np.float64), have.astype(np.float64)
    finite = np.abs(left[np.isfinite(left)])
    # Sums of both signs are as exact as their terms, so the largest element sets the scale.
    scale = np.maximum(np.abs(left), finite.mean() if finite.size else 0.0)
    with np.errstate(invalid="ignore"):
        close = np.abs(left - right) <= _TOLERANCE[dtype.name] * scale
    result: Array = close | (left == right) | (np.isnan(left) & np.isnan(right))
    return result
