"""One sample: an operation on small host arrays, and its definition on the same.

On host arrays an operation ends in `jit.interpret_kernel`, once a launch. Whoever runs a sample
puts his own function there: one that writes the launch down, or one that makes it on a GPU. So the
arguments of every kernel come from the operation that launches it and are written down nowhere
else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np
import numpy.ma  # keeps the numpy.empty that it finds when it is imported, so not ours
import numpy.typing as npt

from tilewright.abi.dtypes import DType, uint8
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import KernelSignature
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit
from tilewright.tensor.launches import forget_plans

Array = npt.NDArray[Any]


class RunLaunch(Protocol):
    """Takes a launch on host arrays, and may run it."""

    def __call__(
        self,
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
        stepwise: bool = False,
    ) -> None:
        """Take one launch."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An operation to call with the arguments that `arguments` makes, and what defines it.

    `family` names the tolerances that its result is held to, with `precision` if there is one apart
    from the dtype's. `choices` replaces functions that choose tiles, by dotted name, so that each
    configuration has its turn. `follows_values` says that what is launched depends on what earlier
    launches computed.
    """

    name: str
    family: str
    operation: Callable[..., Any]
    reference: Callable[..., Any]
    arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    choices: Mapping[str, object] = field(default_factory=dict)
    precision: str = ""
    follows_values: bool = False

    def run(self, launch: RunLaunch) -> Any:
        """Call the operation, giving its launches to `launch`, and return its result."""
        with _launching(launch, self.choices):
            positional, named = self.arguments()
            return self.operation(*positional, **named)

    def expected(self) -> Any:
        """Return what the definition gives for the same arguments."""
        positional, named = self.arguments()
        return self.reference(*positional, **named)


@dataclass(frozen=True, slots=True)
class SampleLaunch:
    """One launch that a sample makes."""

    kernel: Kernel
    signature: KernelSignature
    grid: tuple[int, int, int]
    arguments: Mapping[str, Any]


def launched_by(sample: Sample) -> list[SampleLaunch]:
    """Return the launches of a sample; nothing runs unless it has to."""
    launches: list[SampleLaunch] = []
    interpret = jit.interpret_kernel

    def take(
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
        stepwise: bool = False,
    ) -> None:
        launches.append(SampleLaunch(kernel, signature, grid, arguments))
        if sample.follows_values:
            interpret(kernel, signature, grid=grid, arguments=arguments, stepwise=stepwise)

    sample.run(take)
    return launches


def operand(shape: tuple[int, ...], dtype: DType, *, pad: int = 0, seed: int = 0) -> Array:
    """Return small numbers of a dtype, aligned to 64 bytes, rows `pad` elements apart.

    Floats are normal, those of 8 bits multiples of 1/4, of which sums are exact.
    """
    pitch = shape[-1] + pad
    random = np.random.default_rng(zlib.crc32(repr((shape, seed)).encode()))
    count = int(np.prod(shape[:-1])) * pitch
    array = aligned(count, dtype)
    if dtype.is_float and dtype.bits > 8:
        array[:] = random.standard_normal(count).astype(array.dtype)
    else:
        numbers = random.integers(0 if dtype.kind == "uint" else -4, 5, count)
        array[:] = numbers if dtype.is_integer else (numbers / 4).astype(array.dtype)
    return array.reshape(*shape[:-1], pitch)[..., : shape[-1]]


def aligned(count: int, dtype: DType) -> Array:
    """Return memory for so many elements that begins at a multiple of 64 bytes, zeroed."""
    type_ = to_numpy(dtype)
    memory = np.zeros(count * type_.itemsize + 64, to_numpy(uint8))
    start = -memory.ctypes.data % 64
    return memory[start : start + count * type_.itemsize].view(type_)


def always(value: object) -> Callable[..., object]:
    """Return a function that gives `value` whatever it is asked."""
    return lambda *_args, **_options: value


_EMPTY = np.empty


def _marked(*arguments: Any, **named: Any) -> Array:
    """Return a new array as np.empty does, of NaN where elements are floats and -1 elsewhere."""
    array: Array = _EMPTY(*arguments, **named)
    if not array.dtype.hasobject:
        array.reshape(-1).view(np.uint8)[:] = 0xFF
    return array


@contextmanager
def _launching(launch: RunLaunch, choices: Mapping[str, object]) -> Iterator[None]:
    with ExitStack() as stack:
        stack.callback(forget_plans)
        stack.enter_context(patch.object(jit, "interpret_kernel", launch))
        # Memory that is used again may hold the very result that a launch failed to write.
        stack.enter_context(patch.object(np, "empty", _marked))
        for name, choice in choices.items():
            stack.enter_context(patch(name, choice))
        forget_plans()  # what was planned before follows the library's own choices
        yield
