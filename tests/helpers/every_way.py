"""A kernel run in every way there is without a GPU, which must all leave the same bits.

Interpreted as lowered and as optimised, as its schedule under the checker, and as its PTX with the
warps of a program in several orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from helpers.emitted import ORDERS, run_scheduled
from helpers.kernel_source import signature_of
from helpers.written_kernel import written_kernel
from tilewright.abi.numpy_types import from_numpy
from tilewright.abi.signature import ConstexprValue, Specialization
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.interpret.plan import may_wait
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]
PRELUDE = "import tilewright.language as tl\n"


def lower_text(
    text: str,
    arrays: Mapping[str, Array],
    *,
    num_warps: int = 4,
    specialization: Specialization = "general",
    **constexprs: ConstexprValue,
) -> Module:
    """Lower the last kernel of a text, whose run-time parameters are the arrays."""
    kernel = written_kernel(PRELUDE + text)
    types: dict[str, ConstexprValue] = {
        name: f"*{from_numpy(array.dtype)}" for name, array in arrays.items()
    }
    signature = signature_of(
        kernel, {**types, **constexprs}, num_warps=num_warps, specialization=specialization
    )
    module = lower_kernel(kernel, signature)
    verify(module)
    return module


def run_every_way(
    text: str,
    arrays: Mapping[str, Array],
    *,
    num_warps: int = 4,
    programs: int = 1,
    specialization: Specialization = "general",
    **constexprs: ConstexprValue,
) -> dict[str, Array]:
    """Return what the kernel leaves in its arrays; asserts that all ways leave the same bits.

    Programs that wait for each other are not run under the checker, which runs them in turn.
    """
    grid = (programs, 1, 1)
    module = lower_text(
        text, arrays, num_warps=num_warps, specialization=specialization, **constexprs
    )
    first = _interpreted(module, arrays, grid)
    _assert_equal(_interpreted(optimize(module), arrays, grid), first, "optimised")
    schedule = schedule_module(optimize(module))
    verify(schedule)
    if not may_wait(module, tile.prepare(module, grid=grid, arguments=arrays)[0]):
        checked = {name: array.copy() for name, array in arrays.items()}
        scheduled.run(schedule, grid=grid, arguments=checked)
        _assert_equal(checked, first, "scheduled")
    for order in ORDERS:
        copies = {name: array.copy() for name, array in arrays.items()}
        run_scheduled(schedule, list(copies.values()), order=order, grid=grid)
        _assert_equal(copies, first, f"PTX, {order}")
    return first


def _interpreted(
    module: Module, arrays: Mapping[str, Array], grid: tuple[int, int, int]
) -> dict[str, Array]:
    copies = {name: array.copy() for name, array in arrays.items()}
    tile.run(module, grid=grid, arguments=copies)
    return copies


def _assert_equal(found: Mapping[str, Array], expected: Mapping[str, Array], way: str) -> None:
    for name, array in expected.items():
        bits = f"u{array.dtype.itemsize}"
        np.testing.assert_array_equal(
            found[name].view(bits), array.view(bits), err_msg=f"{way}: {name}"
        )
