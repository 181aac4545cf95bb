"""Random kernels, scheduled: equal bits with one stage and with many, and those of the interpreter.

The checker runs them, so whatever only the order of threads or copies would show is found as well.
What failed once is kept, as hypothesis shrank it, in `tests/golden/compiler/schedule/test_fuzz`.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.golden import Golden
from helpers.random_dots import DotProgram, dot_programs
from helpers.random_tiles import arrays
from helpers.random_tiles import programs as tile_programs
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=50, suppress_health_check=_SLOW)
@given(program=dot_programs(), order=st.integers(0, 9))
def test_dots_in_loops(program: DotProgram, order: int) -> None:
    check(program, order=order)


def test_programs_that_once_failed(golden: Golden) -> None:
    texts = [path.read_text(encoding="utf-8") for path in golden.directory.glob("*.tile")]
    assert texts
    for text in texts:
        depth = re.search(r"^// depth (\d+)$", text, re.MULTILINE)
        assert depth is not None, "a kept program says how far its loops run"
        for order in range(3):
            check(DotProgram(parse_module(text), int(depth[1])), order=order)


@settings(max_examples=60, suppress_health_check=_SLOW)
@given(module=tile_programs(), order=st.integers(0, 9), flag=st.integers(0, 1))
def test_tiles_without_dots(module: Module, order: int, flag: int) -> None:
    schedule = schedule_module(optimize(module))
    expected, got = arrays(), arrays()
    tile.run(module, grid=(1, 1, 1), arguments={**expected, "flag": flag})
    scheduled.run(schedule, grid=(1, 1, 1), arguments={**got, "flag": flag}, seed=order)
    np.testing.assert_allclose(
        got["out"], expected["out"], rtol=1e-5, atol=1e-5, err_msg=print_module(schedule)
    )


def check(program: DotProgram, *, order: int) -> None:
    """Demand equal bits of the interpreter, of the schedule, and of one without stages."""
    verify(program.module)
    optimized = optimize(program.module)
    launch = program.launch()
    expected = program.launch().arguments
    tile.run(program.module, grid=launch.grid, arguments=expected)
    for module in (optimized, _with_one_stage(optimized)):
        schedule = schedule_module(module)
        verify(schedule)
        got = program.launch().arguments
        scheduled.run(schedule, grid=launch.grid, arguments=got, seed=order)
        np.testing.assert_array_equal(got["out"], expected["out"], err_msg=print_module(schedule))


def _with_one_stage(module: Module) -> Module:
    copy = rewrite_module(module)
    for operation in copy.kernel.body.walk():
        operation.attributes.pop("num_stages", None)
    return Module(copy.functions, replace(module.signature, num_stages=1))
