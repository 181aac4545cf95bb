"""Suite `factory`: what a wheel weighs, and what it takes to make one.

Needs no GPU but a checkout and `make`. Warm is `make wheel` when nothing has changed since the last
one, as a round of a developer; cold is the sum over all entries of what each takes from its source
to its last cubin with empty caches, which a bundle records when it builds them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import tilewright
from benchmarks.record import ROOT, Row
from tilewright_release.bundle import bundle_kernels
from tilewright_release.checkout import Checkout
from tilewright_release.stage_cache import default_cache

_ROUNDS = 3


def measure() -> tuple[list[Row], dict[str, str]]:
    """Make the wheel until nothing is left to do, then time and weigh; return rows and versions."""
    _make_wheel()
    seconds = [_make_wheel() for _ in range(_ROUNDS)]
    summary = bundle_kernels(
        Checkout(ROOT),
        output=Checkout(ROOT).bundle,
        cache=default_cache(),
        jobs=1,
        stream=sys.stderr,
    )
    is_warm = summary.built == 0
    rows = [
        _row("wheel/-/-/-/-", "MB", [_wheel().stat().st_size / 1e6], checked=True),
        _row("bundle/-/-/-/cold", "s", [summary.core_seconds], checked=is_warm),
        _row("make_wheel/-/-/-/warm", "s", seconds, checked=is_warm),
    ]
    return rows, {"tilewright": tilewright.__version__, "python": sys.version.split()[0]}


def _make_wheel() -> float:
    """Run `make wheel`, which also checks the wheel and runs the examples; return the seconds."""
    start = time.perf_counter()
    subprocess.run(["make", "wheel"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _wheel() -> Path:
    """Return the newest wheel for this machine."""
    return max((ROOT / "dist").glob("tilewright-*.whl"), key=lambda path: path.stat().st_mtime)


def _row(case: str, unit: str, values: list[float], *, checked: bool) -> Row:
    return Row(
        case=case,
        unit=unit,
        better="lower",
        ours=statistics.median(values),
        spread=(min(values), max(values)),
        checked=checked,
    )
