"""Suite `rowops`: memory-bound kernels, forward, against the device's own copy and torch."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
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
# Relative to the largest element of the fp64 result: half a unit in the last place and a rounding
# of inputs.
TOLERANCE = {"bf16": 8e-3, "f32": 2e-6}

Arrays = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on `x` and `y` `[rows, columns]`, `weight` and `bias` `[columns]`.

    `ours` writes `out`; `matrices` counts those that are read or written.
    """

    ours: Callable[[Arrays], object]
    theirs: Callable[[Arrays], torch.Tensor]
    matrices: int


OPERATIONS = {
    "add": Operation(
        lambda a: elementwise.add(a["x"], a["y"], out=a["out"]),
        lambda a: a["x"] + a["y"],
        matrices=3,
    ),
    "gelu": Operation(
        lambda a: elementwise.gelu(a["x"], out=a["out"]),
        lambda a: functional.gelu(a["x"]),
        matrices=2,
    ),
    "softmax": Operation(
        lambda a: rows.softmax(a["x"], out=a["out"]),
        lambda a: torch.softmax(a["x"], -1),
        matrices=2,
    ),
    "layer_norm": Operation(
        lambda a: rows.layer_norm(a["x"], a["weight"], a["bias"], out=a["out"]),
        lambda a: functional.layer_norm(a["x"], (a["x"].shape[-1],), a["weight"], a["bias"]),
        matrices=2,
    ),
    "sum": Operation(
        lambda a: rows.sum(a["x"], out=a["out"]),
        lambda a: a["x"].sum(-1),
        matrices=1,
    ),
    "max": Operation(
        lambda a: rows.max(a["x"], out=a["out"]),
        lambda a: a["x"].amax(-1),
        matrices=1,
    ),
}


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    shapes: dict[str, list[list[int]]] = tomllib.loads(TARGETS.read_text())["shapes"]
    results = [
        _case(name, dtype, (shape[0], shape[1]))
        for dtype in DTYPES
        for shape in shapes[dtype]
        for name in OPERATIONS
    ]
    versions = {"torch": torch.__version__, "tilewright": tilewright.__version__}
    return results, versions


def _case(name: str, dtype: str, shape: tuple[int, int]) -> Row:
    operation, kind = OPERATIONS[name], DTYPES[dtype]
    tensors = {key: torch.randn(shape, device="cuda", dtype=kind) for key in ("x", "y")}
    for key in ("weight", "bias"):
        tensors[key] = torch.randn(shape[1], device="cuda", dtype=kind)
    result = shape[:1] if operation.matrices == 1 else shape
    out = torch.full(result, torch.nan, device="cuda", dtype=kind)
    arrays = {key: tilewright.as_device_array(t) for key, t in {**tensors, "out": out}.items()}

    operation.ours(arrays)
    sample = {k: (t[:512] if t.ndim == 2 else t).double() for k, t in tensors.items()}
    expected = operation.theirs(sample)  # whole arrays in fp64 would not fit the time
    theirs = operation.theirs(tensors)
    scale = expected.abs().max()
    error = float(((out[:512].double() - expected).abs().max() / scale).cpu())
    baseline_error = float(((theirs[:512].double() - expected).abs().max() / scale).cpu())
    # All of it against torch, which also catches an element that was never written.
    apart = float(((out.float() - theirs.float()).abs().max() / scale).cpu())
    checked = error <= TOLERANCE[dtype] and apart <= 2 * TOLERANCE[dtype]

    compiled = torch.compile(operation.theirs, dynamic=False)
    # A copy of as many bytes: half of them read, half written.
    copied_bytes = tensors["x"].nbytes * operation.matrices // 2
    source = torch.randint(0, 255, (copied_bytes,), device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    timing = device_ms(
        {
            "ours": lambda: operation.ours(arrays),
            "copy": lambda: target.copy_(source),
            "torch.eager": lambda: operation.theirs(tensors),
            "torch.compile": lambda: compiled(tensors),
        }
    )
    torch._dynamo.reset()
    return timing.row(
        f"{name}/{dtype}/{shape[0]}x{shape[1]}/fwd/eager",
        unit="ms",
        checked=checked,
        err={"ours": error, "torch.eager": baseline_error},
    )
