"""Programs of `programs/` in new processes: each prints one number after it checked its result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.rounds import Timing

TURNS = 5  # of each contender: processes take seconds
PROGRAMS = Path(__file__).resolve().parent / "programs"


def run_program(program: str, *arguments: str, from_start: bool) -> float:
    """Run a program in a new process and return its figure; raises RuntimeError if it fails.

    It runs in a folder of its own that is gone afterwards. What a program prints `from_start` is
    the wall clock when it is done, and the figure is what passed since the process was asked for.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(PROGRAMS / program), *arguments]
        environment = {**os.environ, "TILEWRIGHT_JIT": "off"}
        start = time.time()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env=environment
        )
    if done.returncode != 0:
        msg = f"{program} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}"
        raise RuntimeError(msg)
    figure = float(done.stdout.splitlines()[-1])
    return figure - start if from_start else figure


def time_programs(programs: Mapping[str, tuple[str, ...]], *, from_start: bool) -> Timing:
    """Let the programs of contenders, with their arguments, take turns.

    One turn that does not count comes first: it fills the system's file cache.
    """
    rounds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(TURNS + 1):
        for name, program in programs.items():
            figure = run_program(*program, from_start=from_start)
            if turn > 0:
                rounds[name].append(figure)
    return Timing(rounds)
