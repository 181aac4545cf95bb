"""Suite `rowops`: memory-bound kernels against the device's own copy and torch, forward, large shapes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional

import tilewright
from benchmarks.record import Row
from benchmarks.timing import device_ms
from tilewright.tensor import elementwise, rows

TARGETS = Path(__file__).resolve().parent.parent / "targets" / "rowops.toml"
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
# Relative to the largest element of the fp64 result: half a unit in the last place and a rounding of inputs.
TOLERANCE = {"bf16": 8e-3, "f32": 2e-6}

Operation = Callable[..., Any]


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    shapes: dict[str, list[list[int]]] = tomllib.loads(TARGETS.read_text())["shapes"]
    results = [
        _case(name, dtype, (shape[0], shape[1]))
        for dtype in DTYPES
        for shape in shapes[dtype]
        for name in _operations()
    ]
    versions = {"torch": torch.__version__, "tilewright": tilewright.__version__}
    return results, versions


def _operations() -> dict[str, tuple[Operation, Operation, int]]:
    """Name -> ours(x, y, w, b, out), torch's(x, y, w, b), matrices read and written."""
    return {
        "add": (
            lambda x, y, w, b, out: elementwise.add(x, y, out=out),
            lambda x, y, w, b: x + y,
            3,
        ),
        "gelu": (
            lambda x, y, w, b, out: elementwise.gelu(x, out=out),
            lambda x, y, w, b: functional.gelu(x),
            2,
        ),
        "softmax": (
            lambda x, y, w, b, out: rows.softmax(x, out=out),
            lambda x, y, w, b: torch.softmax(x, -1),
            2,
        ),
        "layer_norm": (
            lambda x, y, w, b, out: rows.layer_norm(x, w, b, out=out),
            lambda x, y, w, b: functional.layer_norm(x, (x.shape[-1],), w, b),
            2,
        ),
        "sum": (
            lambda x, y, w, b, out: rows.sum(x, out=out[:, 0]),
            lambda x, y, w, b: x.sum(-1),
            1,
        ),
        "max": (
            lambda x, y, w, b, out: rows.max(x, out=out[:, 0]),
            lambda x, y, w, b: x.amax(-1),
            1,
        ),
    }


def _case(name: str, dtype: str, shape: tuple[int, int]) -> Row:
    ours, theirs, matrices = _operations()[name]
    kind = DTYPES[dtype]
    x, y = (torch.randn(shape, device="cuda", dtype=kind) for _ in range(2))
    w, b = (torch.randn(shape[1], device="cuda", dtype=kind) for _ in range(2))
    reduces = matrices == 1
    out = torch.full((shape[0], 1) if reduces else shape, torch.nan, device="cuda", dtype=kind)

    ours(x, y, w, b, out)
    result = out[:, 0] if reduces else out
    sample = slice(0, 512)  # fp64 references of whole arrays would not fit the time
    expected = theirs(*(t.double() for t in (x[sample], y[sample], w, b)))
    baseline = theirs(x, y, w, b)
    scale = expected.abs().max()
    error = float(((result[sample].double() - expected).abs().max() / scale).cpu())
    baseline_error = float(((baseline[sample].double() - expected).abs().max() / scale).cpu())
    # All of it against torch, which also catches an element that was never written.
    apart = float(((result.float() - baseline.float()).abs().max() / scale).cpu())
    checked = error <= TOLERANCE[dtype] and apart <= 2 * TOLERANCE[dtype]

    compiled = torch.compile(theirs, dynamic=False)
    # A copy of as many bytes: half of them read, half written.
    source = torch.empty(
        x.numel() * x.element_size() * matrices // 2, device="cuda", dtype=torch.uint8
    )
    target = torch.empty_like(source)
    timing = device_ms(
        {
            "ours": lambda: ours(x, y, w, b, out),
            "copy": lambda: target.copy_(source),
            "torch.eager": lambda: theirs(x, y, w, b),
            "torch.compile": lambda: compiled(x, y, w, b),
        }
    )
    torch._dynamo.reset()
    baselines = ("copy", "torch.eager", "torch.compile")
    return Row(
        case=f"{name}/{dtype}/{shape[0]}x{shape[1]}/fwd/eager",
        unit="ms",
        better="lower",
        ours=timing.median("ours"),
        spread=timing.spread("ours"),
        checked=checked,
        baselines={key: timing.median(key) for key in baselines},
        ratios={key: timing.ratio(key) for key in baselines},
        err={"ours": error, "torch.eager": baseline_error},
    )
