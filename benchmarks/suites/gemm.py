"""Suite `gemm`: products of the installed wheel against cuBLAS and Triton, in whatever form the
library picks.

A case is checked as in suite `mma`, which measures the form of the other GPUs.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import torch

import tilewright
from benchmarks.baselines import triton_matmul
from benchmarks.record import Row
from benchmarks.suites.mma import product

TARGETS = Path(__file__).resolve().parent.parent / "targets" / "gemm.toml"


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    shapes: dict[str, list[list[Any]]] = tomllib.loads(TARGETS.read_text())
    rows = [
        product(dtype, (m, n, k), layout, {"triton": triton_matmul.launcher})
        for dtype, cases in shapes.items()
        for m, n, k, layout in cases
    ]
    versions = {
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton_matmul.VERSION,
        "tilewright": tilewright.__version__,
    }
    return rows, versions
