"""A launch on host arrays is made on a GPU by one given binary: copy there, launch, copy back.

What lies in one piece of host memory lies in one piece of device memory, at an address that leaves
the same remainder, so that views overlap as they did and the same specialization fits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tilewright.abi.dtypes import uint8
from tilewright.abi.numpy_types import from_numpy
from tilewright.abi.signature import KernelSignature
from tilewright.errors import InternalCompilerError
from tilewright.language.kernel import Kernel
from tilewright.language.parameters import NO_DEFAULT
from tilewright.runtime.launcher import CODES, native
from tilewright.runtime.memory import DeviceArray, empty
from tilewright.runtime.module import LoadedKernel, load, make_plan
from tilewright.runtime.resolve import Candidate, Decision
from tilewright.runtime.sources import fetch_bundled

Array = npt.NDArray[Any]

_ALIGNMENT = 256  # of what the driver allocates


@dataclass(frozen=True, slots=True)
class _Span:
    """A piece of host memory, from one address up to another, and its copy."""

    start: int
    end: int
    copy: DeviceArray

    @property
    def host(self) -> Array:
        """The host's bytes."""
        kind = ctypes.c_uint8 * (self.end - self.start)
        return np.ctypeslib.as_array(kind.from_address(self.start))

    @property
    def device(self) -> DeviceArray:
        """The same bytes in the copy."""
        offset = self.start % _ALIGNMENT
        return self.copy[offset : offset + self.end - self.start]


def load_candidate(decision: Decision, candidate: Candidate, device: int) -> LoadedKernel:
    """Load this candidate of a decision and no other; raises ResolveError when it is refused."""
    alone = replace(decision, candidates=(candidate,))
    return load(alone, device=device, fetch=partial(fetch_bundled, decision.source_key))


def launch_on_device(
    loaded: LoadedKernel,
    kernel: Kernel,
    signature: KernelSignature,
    *,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Any],
) -> None:
    """Launch `loaded` on host arrays, in place; raises what a launch raises."""
    plan = make_plan(loaded, signature)
    parameters = kernel.parameters
    dispatcher = native.Dispatcher(
        name=kernel.name,
        names=tuple(p.name for p in parameters),
        constexprs=tuple(p.is_constexpr for p in parameters),
        defaults=tuple(p.default for p in parameters),
        missing=NO_DEFAULT,
        divisible=tuple(p.name in kernel.rule.divisible for p in parameters),
        unit=tuple(p.name in kernel.rule.unit for p in parameters),
        resolve=lambda *_: plan,
        interpret=_refuse,
    )
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    with _on_device(list(arrays.values()), loaded.device) as spans:
        values = {**signature.constexprs, **arguments}
        values |= {name: _moved(array, spans) for name, array in arrays.items()}
        dispatcher(grid)(
            *(values[p.name] for p in parameters),
            num_warps=signature.num_warps,
            num_stages=signature.num_stages,
        )


@contextmanager
def _on_device(arrays: Sequence[Array], device: int) -> Iterator[Sequence[_Span]]:
    """Copy the memory of arrays to a device for a while; on success it is copied back."""
    spans = []
    for start, end in _merged(arrays):
        copy = empty(end - start + 2 * _ALIGNMENT, uint8, device=device)
        spans.append(_Span(start, end, copy))
        spans[-1].device.copy_from(spans[-1].host)
    yield spans
    for span in spans:
        span.host[:] = span.device.numpy()


def _merged(arrays: Sequence[Array]) -> list[tuple[int, int]]:
    """Return the pieces of memory that arrays lie in: those of overlapping arrays are one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(map(_bounds, arrays)):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def _bounds(array: Array) -> tuple[int, int]:
    """Return the addresses that an array lies between, whatever the signs of its strides."""
    start = array.ctypes.data
    if not array.size:
        return start, start
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low, high = (sum(step for step in steps if step * sign > 0) for sign in (-1, 1))
    return start + low, start + high + array.itemsize


def _moved(array: Array, spans: Sequence[_Span]) -> DeviceArray:
    """Return what stands for an array on the device: only its address and dtype matter."""
    address = array.ctypes.data
    span = next((span for span in spans if span.start <= address < span.end), None)
    code = CODES[from_numpy(array.dtype)]
    if span is None:  # an empty array, which is not read
        moved = empty(_ALIGNMENT, uint8).alias(DeviceArray, address % _ALIGNMENT, 0, code)
    else:
        size = span.end - address
        size -= size % array.itemsize
        moved = span.device.alias(DeviceArray, address - span.start, size, code)
    moved.lay_out((moved.size_bytes // array.itemsize,), (1,))
    return moved


def _refuse(*_arguments: object) -> NoReturn:
    msg = "a launch of validation went to the interpreter"
    raise InternalCompilerError(msg)
