"""Every interval holds on random programs; and the ones that masks need are tight."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.watched_run import watched_run
from strategies import INTEGERS, Program, programs
from tilewright.abi.signature import Pointer
from tilewright_compiler.analysis.ranges import Interval, analyze_ranges
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.parser import parse_module


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    program=programs(dtypes=INTEGERS, accesses=False, size=24),
    pid=st.sampled_from([0, 1, 5, 2**31 - 2]),
)
def test_every_claim_holds_on_random_programs(program: Program, pid: int) -> None:
    ranges = analyze_ranges(program.module)
    arguments = {"n": program.n, "m": program.m}
    for name, parameter in program.module.signature.runtime:
        if isinstance(parameter, Pointer):
            arguments[name] = 4096

    def check(value: Value, array: Array) -> None:
        interval = ranges.get(value)
        if interval is not None and array.size:
            assert interval.low <= int(array.min()) <= int(array.max()) <= interval.high

    with np.errstate(all="ignore"):
        watched_run(program.module, arguments, pid, check)


def test_offsets_of_a_grid_and_a_loop_are_bounded() -> None:
    module = parse_module(
        "signature (n:i64:s, m:i64) general num_warps=4 num_stages=3\n"
        "kernel @k(%n: i64, %m: i64) {\n"
        "%pid = program_id {axis = 0} : i64\n"
        "%block = constant {value = 1024} : i64\n"
        "%start = mul %pid, %block : i64\n"
        "%zero = constant {value = 0} : i64\n"
        "for %zero, %n, %block (%i: i64) {\n"
        "%next = add %i, %block : i64\n"
        "yield\n"
        "}\n"
        "%wraps = mul %m, %block : i64\n"
        "return\n}\n"
    )
    found = {value.name: interval for value, interval in analyze_ranges(module).items()}
    assert found["start"] == Interval(0, (2**31 - 2) * 1024)
    assert found["i"] == Interval(0, 2**31 - 2)
    assert found["next"] == Interval(1024, 2**31 - 2 + 1024)
    assert found["wraps"] == Interval(-(2**63), 2**63 - 1)
