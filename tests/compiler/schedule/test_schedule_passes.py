"""Each pass of the schedule alone, text to text.

`golden/.../test_schedule_passes/<pass>/<case>.{before,after}.tile`; loops get three stages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from helpers.golden import Golden, golden_directory
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.schedule.allocate_shared import allocate_shared
from tilewright_compiler.schedule.insert_barriers import insert_barriers
from tilewright_compiler.schedule.multistage import multistage
from tilewright_compiler.schedule.place_operands import place_operands

PASSES: dict[str, Callable[[Module], Module]] = {
    "multistage": partial(multistage, max_stages=3),
    "place_operands": place_operands,
    "allocate_shared": allocate_shared,
    "insert_barriers": insert_barriers,
}

_GOLDEN = golden_directory(Path(__file__).parents[2], Path(__file__))
_CASES = [
    path.relative_to(_GOLDEN).as_posix().removesuffix(".before.tile")
    for path in sorted(_GOLDEN.glob("*/*.before.tile"))
]


@pytest.mark.parametrize("case", _CASES)
def test_pass_gives_the_golden_text(case: str, golden: Golden) -> None:
    run = PASSES[case.split("/")[0]]
    module = parse_module((_GOLDEN / f"{case}.before.tile").read_text(encoding="utf-8"))
    verify(module)
    after = run(module)
    verify(after)
    golden(print_module(after), name=f"{case}.after.tile")


def test_every_pass_has_a_golden() -> None:
    assert {case.split("/")[0] for case in _CASES} == set(PASSES)
