"""Run a module as its PTX on the CPU: schedule, emit, translate, and execute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from helpers.ptx_interpreter import Arrival, Order, Run, launch
from helpers.tile_operation import Array, operation_module
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.stages import MlirText
from tilewright_compiler.schedule.plan import schedule_module

ORDERS: tuple[Order, ...] = ("lockstep", "ascending", "descending")


def run_scheduled(
    module: Module,
    arguments: Sequence[Array | int | float | bool],
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    order: Order = "lockstep",
    arrival: Arrival = "late",
    offsets: Mapping[int, int] | None = None,
) -> Run:
    """Emit a scheduled module and run it, writing its array arguments in place."""
    mlir = emit_module(module)
    return launch(
        _ptx(mlir),
        grid=grid,
        arguments=arguments,
        shared_bytes=mlir.shared_bytes,
        order=order,
        arrival=arrival,
        offsets=offsets,
    )


@lru_cache(maxsize=64)
def _ptx(mlir: MlirText) -> str:
    """Return the PTX of a module, which most tests run in several orders of warps."""
    return lower_to_ptx(mlir).text


def apply_emitted(
    name: str, inputs: Sequence[Array], *, order: Order = "lockstep", **options: Any
) -> Array:
    """Return what the emitted operation gives on tiles, as `tile_operation.apply` does."""
    module, arrays = operation_module(name, inputs, **options)
    run_scheduled(schedule_module(module), list(arrays.values()), order=order)
    return np.asarray(arrays["out"])
