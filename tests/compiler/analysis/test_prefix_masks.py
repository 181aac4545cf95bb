"""Masks said to be prefixes are prefixes, on random programs; and the common masks are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.watched_run import watched_run
from strategies import INTEGERS, Program, programs
from tilewright.abi.dtypes import int1
from tilewright.abi.signature import Pointer
from tilewright_compiler.analysis.axis_info import analyze
from tilewright_compiler.analysis.prefix_masks import PrefixMasks
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.types import TileType, element_dtype


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    program=programs(dtypes=INTEGERS, accesses=False, size=24),
    pid=st.sampled_from([0, 1, 5, 2**31 - 2]),
)
def test_every_claim_holds_on_random_programs(program: Program, pid: int) -> None:
    prefixes = PrefixMasks(program.module, analyze(program.module))
    arguments = {"n": program.n, "m": program.m}
    for name, parameter in program.module.signature.runtime:
        if isinstance(parameter, Pointer):
            arguments[name] = 4096

    def check(value: Value, array: Array) -> None:
        if not isinstance(value.type, TileType) or element_dtype(value.type) != int1:
            return
        for axis, extent in enumerate(value.type.shape):
            run = prefixes.run(value, axis)
            runs = np.moveaxis(array, axis, -1).reshape(-1, extent // run, run)
            assert (runs[..., 1:] <= runs[..., :-1]).all(), (run, axis, array)

    with np.errstate(all="ignore"):
        watched_run(program.module, arguments, pid, check)


_INDICES = """
  %pid = program_id {axis = 0} : i64
  %block = constant {value = 128} : i64
  %start = mul %pid, %block : i64
  %narrow = arange {start = 0, end = 128} : tile<128xi32>
  %lane = cast %narrow : tile<128xi64>
  %starts = splat %start : tile<128xi64>
  %offsets = add %starts, %lane : tile<128xi64>
  %ns = splat %n : tile<128xi64>
  %ms = splat %m : tile<128xi64>
"""


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ('%mask = cmp %offsets, %ns {predicate = "lt"} : tile<128xi1>', [128]),
        ('%mask = cmp %ns, %offsets {predicate = "ge"} : tile<128xi1>', [128]),
        ('%mask = cmp %ns, %offsets {predicate = "lt"} : tile<128xi1>', [1]),
        ('%mask = cmp %offsets, %ns {predicate = "ne"} : tile<128xi1>', [1]),
        (
            '%a = cmp %offsets, %ns {predicate = "lt"} : tile<128xi1>\n'
            '%b = cmp %offsets, %ms {predicate = "le"} : tile<128xi1>\n'
            "%mask = and %a, %b : tile<128xi1>",
            [128],
        ),
        (
            '%a = cmp %offsets, %ns {predicate = "lt"} : tile<128xi1>\n'
            '%b = cmp %offsets, %ms {predicate = "gt"} : tile<128xi1>\n'
            "%mask = and %a, %b : tile<128xi1>",
            [1],
        ),
        (
            '%a = cmp %offsets, %ns {predicate = "lt"} : tile<128xi1>\n'
            "%b = expand_dims %a {axis = 0} : tile<1x128xi1>\n"
            "%mask = broadcast %b : tile<4x128xi1>",
            [4, 128],
        ),
    ],
    ids=["lt", "ge", "suffix", "hole", "both prefixes", "band", "rows"],
)
def test_which_masks_are_prefixes(body: str, runs: list[int]) -> None:
    module = parse_module(
        "signature (n:i64, m:i64) general num_warps=4 num_stages=3\n"
        f"kernel @k(%n: i64, %m: i64) {{\n{_INDICES}\n{body}\nreturn\n}}\n"
    )
    facts = analyze(module)
    prefixes = PrefixMasks(module, facts)
    (mask,) = (value for value in facts if value.name == "mask")
    assert [prefixes.run(mask, axis) for axis in range(len(runs))] == runs
