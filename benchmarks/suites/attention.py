"""Suite `attention`: scaled dot-product attention of the installed wheel against cuDNN and FA2.

A case is checked as in suite `mma`, which measures the form of the other GPUs.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import torch

import tilewright
from benchmarks.record import Row
from benchmarks.suites.mma import attention

TARGETS = Path(__file__).resolve().parent.parent / "targets" / "attention.toml"


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    shapes: dict[str, list[list[int]]] = tomllib.loads(TARGETS.read_text())
    rows = [
        attention(dtype, shape, causal=causal)
        for dtype, cases in shapes.items()
        for shape in cases
        for causal in (False, True)
    ]
    versions = {
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "tilewright": tilewright.__version__,
    }
    return rows, versions
