"""Run a kernel of Hopper's schedule as its PTX on the CPU, with tensor maps as a launch makes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from helpers.ptx_hopper import TensorMap
from helpers.ptx_interpreter import Argument, Arrival, Order, Run, launch
from tilewright.abi.arguments import AbiParameter
from tilewright_compiler.analysis.tensor_maps import added_parameters
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.capabilities import HOPPER
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.ir.core import Module

Array = np.ndarray[Any, np.dtype[Any]]


def run_on_hopper(
    module: Module,
    arguments: Mapping[str, Array | int | float],
    *,
    grid: tuple[int, int, int],
    ctas: int,
    order: Order = "lockstep",
    arrival: Arrival = "late",
) -> Run:
    """Emit a scheduled module and run `ctas` of it, writing its array arguments in place."""
    text, shared_bytes = _ptx(module)
    memory = {name: _memory(value) for name, value in arguments.items()}
    values: list[Argument] = [memory[name] for name, _ in module.signature.runtime]
    values += [_value(parameter, memory, grid) for parameter in added_parameters(module)]
    return launch(
        text,
        grid=(ctas, 1, 1),
        arguments=values,
        shared_bytes=shared_bytes,
        order=order,
        arrival=arrival,
    )


@lru_cache(maxsize=64)
def _ptx(module: Module) -> tuple[str, int]:
    """Return a module's text and its bytes of shared memory, made once for all launches of it.

    A module that has been launched is not changed any more.
    """
    mlir = emit_module(module)
    return lower_to_ptx(mlir, flavor=HOPPER).text, mlir.shared_bytes


def _value(
    parameter: AbiParameter, memory: Mapping[str, Argument], grid: tuple[int, int, int]
) -> Argument:
    if parameter.kind == "grid":
        return grid[parameter.axis]
    spec = parameter.tensor_map
    assert spec is not None, f"{parameter} is a tensor map"
    base = memory[spec.pointer]
    assert isinstance(base, np.ndarray), f"{spec.pointer} is a pointer"

    known = {name: value for name, value in memory.items() if not isinstance(value, np.ndarray)}
    known |= {f"grid{axis}": extent for axis, extent in enumerate(grid)}

    def number(text: str) -> int:
        value = eval(text, {"__builtins__": {}}, known)
        assert isinstance(value, int), f"{text} is an integer"
        return value

    def numbers(texts: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(map(number, texts))

    return TensorMap(
        base,
        numbers(spec.sizes),
        numbers(spec.strides),
        spec.box,
        spec.swizzle_bytes,
        spec.rounding,
    )


def _memory(value: Array | float) -> Array | float:
    """Return an argument; of an array, the memory from its first element to the end of its base."""
    if not isinstance(value, np.ndarray):
        return value
    whole = value
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    first = value.ctypes.data - whole.ctypes.data
    rest = whole.ravel(order="K").view(np.uint8)[first:]
    return rest[: len(rest) // value.itemsize * value.itemsize].view(value.dtype)
