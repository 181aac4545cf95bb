"""Every pass, and all of them in order, leaves the same bits in memory on random programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from helpers.run_program import run_program
from strategies import Program, programs
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import PASSES, Pass, optimize

_EACH = sorted({run.__name__: run for run in PASSES}.items())


@pytest.mark.parametrize("run", [run for _, run in _EACH], ids=[name for name, _ in _EACH])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs())
def test_pass_keeps_the_meaning(run: Pass, program: Program) -> None:
    _check(run, program)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs(size=20))
def test_optimize_keeps_the_meaning(program: Program) -> None:
    _check(optimize, program)


def _check(run: Pass, program: Program) -> None:
    before = print_module(program.module)
    verify(program.module)
    changed = run(program.module)
    verify(changed)
    assert print_module(program.module) == before, "the pass changed its input"
    expected, got = run_program(program, program.module), run_program(program, changed)
    for name, values in expected.items():
        # Any NaN for a NaN, but -0 is not 0.
        np.testing.assert_array_equal(got[name], values, err_msg=print_module(changed))
        is_number = ~np.isnan(values)
        np.testing.assert_array_equal(
            np.signbit(got[name])[is_number], np.signbit(values)[is_number]
        )
