"""Suite `coldstart`: what a fresh process waits for, ours against torch and Triton.

Each figure is of a new process that runs a file of `programs/`; contenders take turns. A program
prints one number after it checked its result, and fails otherwise. The just-in-time path is off, so
what is measured is the installed wheel. One turn that does not count comes first: it fills the
system's file cache, and Triton's cache of compiled kernels.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import tilewright
from benchmarks.processes import time_programs
from benchmarks.record import Row


@dataclass(frozen=True, slots=True)
class Case:
    """The programs of a case by contender.

    A program of a case `from_start` prints the wall clock when it is done, else it prints what it
    measured in `unit`.
    """

    name: str
    unit: str
    programs: dict[str, str]
    from_start: bool = False


CASES = (
    Case(
        "first_result/vecadd/4096/-/-",
        "s",
        {"ours": "first_result.py", "triton": "first_result_triton.py"},
        from_start=True,
    ),
    Case("import/-/-/-/-", "s", {"ours": "import_time.py", "torch.eager": "import_time_torch.py"}),
    Case("first_load/softmax/64x1000/-/-", "ms", {"ours": "first_load.py"}),
)


def measure() -> tuple[list[Row], dict[str, str]]:
    """Time every program; return the rows and the versions of what was measured."""
    versions = {"tilewright": tilewright.__version__, "python": sys.version.split()[0]}
    return [_row(case) for case in CASES], versions


def _row(case: Case) -> Row:
    programs = {name: (program,) for name, program in case.programs.items()}
    timing = time_programs(programs, from_start=case.from_start)
    return timing.row(case.name, unit=case.unit, checked=True)
