"""The processor time of this process and of what it started: what a budget of core-seconds counts.

The wall clock would make the budget a matter of what else the machine does.
"""

from __future__ import annotations

import os
from pathlib import Path

from tilewright_compiler.backend.worker import POOL

# Of the fields behind the command's name in /proc/PID/stat (proc(5)).
_USER, _SYSTEM = 11, 12


def processor_seconds() -> float:
    """Return seconds on processors so far: own, of ended children, and of the waiting LLVM workers.

    A worker that died or is busy is not counted, so ask while none is busy.
    """
    times = os.times()
    running = sum(_seconds_of(worker.pid) for worker in POOL.idle)
    return times.user + times.system + times.children_user + times.children_system + running


def _seconds_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK")
