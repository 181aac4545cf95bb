"""What operations on arrays launch: the kernel, its signature, the grid and the arguments.

NumPy arrays go to the interpreter, and there a launch is taken instead of run, or before it is. So
a test gets the signatures that the library uses with the launches that it makes of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewright.abi.signature import KernelSignature
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit
from tilewright.tensor.launches import forget_plans
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret.proof import Launch, Store, prove
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One launch of a library kernel."""

    kernel: Kernel
    signature: KernelSignature
    launch: Launch

    def modules(self) -> tuple[Module, Module]:
        """Return the kernel's tile IR and its schedule."""
        module = optimize(lower_kernel(self.kernel, self.signature))
        return module, schedule_module(module)

    def prove(self, *, store: Store | None = None) -> Module:
        """Prove the schedule on this launch, unless the store says that it is; return it."""
        module, schedule = self.modules()
        prove(module, schedule, [self.launch], seeds=(0,), store=store)
        return schedule


def recorded(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], *, runs: bool = False
) -> list[RecordedLaunch]:
    """Return what a call launches on NumPy arrays; nothing runs.

    With `runs` launches run, and what is returned has their arguments as they were before: for
    operations whose later launches read what earlier ones wrote.
    """
    launches: list[RecordedLaunch] = []
    interpret = jit.interpret_kernel

    def take(
        kernel: Kernel,
        signature: KernelSignature,
        *,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
        stepwise: bool,
    ) -> None:
        kept = {name: _as_it_is(value) for name, value in arguments.items()} if runs else arguments
        launches.append(RecordedLaunch(kernel, signature, Launch(grid, kept)))
        if runs:
            interpret(kernel, signature, grid=grid, arguments=arguments, stepwise=stepwise)

    with monkeypatch.context() as patch:
        patch.setattr(jit, "interpret_kernel", take)
        forget_plans()  # a test may have replaced what chooses
        call()
        forget_plans()
    return launches


def _as_it_is(value: Any) -> Any:
    """Return a copy of an array, as far from a multiple of 64 bytes; or a number."""
    if not isinstance(value, np.ndarray) or not value.size:
        return value
    low, high = np.lib.array_utils.byte_bounds(value)
    memory = np.zeros(high - low + 128, np.uint8)
    skip = -memory.ctypes.data % 64 + low % 64
    ctypes.memmove(memory.ctypes.data + skip, low, high - low)
    start = skip + value.ctypes.data - low
    return np.ndarray(value.shape, value.dtype, memory, start, value.strides)
