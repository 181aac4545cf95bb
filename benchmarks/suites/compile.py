"""Suite `compile`: what a kernel that no wheel holds costs to compile, ours against Triton.

Both compile the same text with the same tiles and options for sm_90a, with nothing in a cache. Cold
is a new process, from its start until the cubin is there: so what a user waits for whose kernel is
new. Warm is one more compilation in a process that has compiled the kernel with other tiles. No GPU
takes part.
"""

from __future__ import annotations

import sys
from importlib import metadata

import tilewright
from benchmarks.processes import time_programs
from benchmarks.record import Row

CASES = {"vecadd": "vecadd/f32/1024", "matmul": "matmul/f16/128x128x64"}


def measure() -> tuple[list[Row], dict[str, str]]:
    """Time every compilation; return the rows and the versions of what was measured."""
    versions = {
        "tilewright": tilewright.__version__,
        "triton": metadata.version("triton"),
        "python": sys.version.split()[0],
    }
    return [_row(kernel, mode) for kernel in CASES for mode in ("cold", "warm")], versions


def programs(kernel: str, mode: str) -> dict[str, tuple[str, ...]]:
    """Return the program of each contender with its arguments."""
    return {
        "ours": ("compile_ours.py", kernel, mode),
        "triton": ("compile_triton.py", kernel, mode),
    }


def _row(kernel: str, mode: str) -> Row:
    is_cold = mode == "cold"
    timing = time_programs(programs(kernel, mode), from_start=is_cold)
    return timing.row(f"{CASES[kernel]}/-/{mode}", unit="s" if is_cold else "ms", checked=True)
