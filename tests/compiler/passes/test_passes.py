"""Each pass alone, text to text: `golden/.../test_passes/<pass>/<case>.{before,after}.tile`."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.golden import Golden, golden_directory
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import PASSES, optimize
from tilewright_compiler.passes.lower_descriptors import lower_descriptors

# The last is a schedule's, which runs it where it copies no blocks.
_ALL = (*PASSES, lower_descriptors)
_GOLDEN = golden_directory(Path(__file__).parents[2], Path(__file__))
_CASES = [
    path.relative_to(_GOLDEN).as_posix().removesuffix(".before.tile")
    for path in sorted(_GOLDEN.glob("*/*.before.tile"))
]


@pytest.mark.parametrize("case", _CASES)
def test_pass_gives_the_golden_text(case: str, golden: Golden) -> None:
    (run,) = {run for run in _ALL if run.__name__ == case.split("/")[0]}
    module = parse_module((_GOLDEN / f"{case}.before.tile").read_text(encoding="utf-8"))
    verify(module)
    after = run(module)
    verify(after)
    golden(print_module(after), name=f"{case}.after.tile")


def test_every_pass_has_a_golden() -> None:
    assert {case.split("/")[0] for case in _CASES} == {run.__name__ for run in _ALL}


@pytest.mark.parametrize("case", _CASES)
def test_optimize_reaches_a_fixed_point(case: str) -> None:
    text = (_GOLDEN / f"{case}.before.tile").read_text(encoding="utf-8")
    once = optimize(parse_module(text), verify_each=True)
    assert print_module(optimize(once, verify_each=True)) == print_module(once)
