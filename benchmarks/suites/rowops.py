"""Suite `rowops`: memory-bound kernels and their gradients, against the device's copy and torch.

A backward pass is timed alone, from what the forward pass saves, on both sides: torch's is the
function that autograd would call, compiled by inductor. Its gradients of weight and bias count too.
"""

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
from tilewright.tensor import elementwise, movement, row_gradients, rows

TARGETS = Path(__file__).resolve().parent.parent / "targets" / "rowops.toml"
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
# Relative to the largest element of the fp64 result: half a unit in the last place and a rounding
# of inputs; sums over all rows lose a little more.
TOLERANCE = {"bf16": 8e-3, "f32": 4e-6}
EPS = 1e-5
# Rows of which results are compared with fp64; more would not fit the time.
SAMPLE = 512

Arrays = dict[str, Any]
Results = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on `x`, `y` and `dy` `[rows, columns]`, `weight` and `bias` `[columns]`.

    `ours` writes its first result to `out` and returns the others; `theirs` returns all. `matrices`
    counts those that are read or written. `kind` names the shapes; `direction` the pass.
    """

    name: str
    direction: str
    kind: str
    ours: Callable[[Arrays], Any]
    theirs: Callable[[Arrays], Any]
    matrices: int


def _width(a: Arrays) -> tuple[int, ...]:
    return (a["x"].shape[-1],)


def _layer_norm_backward(a: Arrays) -> Results:
    saved = (a["mean"], a["factor"], a["weight"], a["bias"])
    results: Results = torch.ops.aten.native_layer_norm_backward(
        a["dy"], a["x"], _width(a), *saved, [True, True, True]
    )
    return results


def _rms_norm_backward(a: Arrays) -> Results:
    """Return the gradients as torch's own decomposition has them, in f32 or wider."""
    wide = torch.promote_types(a["x"].dtype, torch.float32)
    normalised = a["x"].to(wide) * a["rms_factor"]
    gradient = a["dy"].to(wide)
    weighted = gradient * a["weight"].to(wide)
    along = (weighted * normalised).mean(-1, keepdim=True)
    dx = (weighted - normalised * along) * a["rms_factor"]
    return dx.to(a["x"].dtype), (gradient * normalised).sum(0).to(a["x"].dtype)


OPERATIONS = (
    Operation(
        "copy",
        "fwd",
        "elementwise",
        lambda a: movement.copy(a["x"], out=a["out"]),
        lambda a: a["x"].clone(),
        matrices=2,
    ),
    Operation(
        "add",
        "fwd",
        "elementwise",
        lambda a: elementwise.add(a["x"], a["y"], out=a["out"]),
        lambda a: a["x"] + a["y"],
        matrices=3,
    ),
    Operation(
        "gelu",
        "fwd",
        "elementwise",
        lambda a: elementwise.gelu(a["x"], out=a["out"]),
        lambda a: functional.gelu(a["x"]),
        matrices=2,
    ),
    Operation(
        "gelu",
        "bwd",
        "elementwise",
        lambda a: elementwise.gelu_backward(a["x"], a["dy"], out=a["out"]),
        lambda a: torch.ops.aten.gelu_backward(a["dy"], a["x"]),
        matrices=3,
    ),
    Operation(
        "softmax",
        "fwd",
        "forward",
        lambda a: rows.softmax(a["x"], out=a["out"]),
        lambda a: torch.softmax(a["x"], -1),
        matrices=2,
    ),
    Operation(
        "softmax",
        "bwd",
        "backward",
        lambda a: row_gradients.softmax_backward(a["probability"], a["dy"], out=a["out"]),
        lambda a: torch.ops.aten._softmax_backward_data(
            a["dy"], a["probability"], -1, a["x"].dtype
        ),
        matrices=3,
    ),
    Operation(
        "layer_norm",
        "fwd",
        "forward",
        lambda a: rows.layer_norm(a["x"], a["weight"], a["bias"], eps=EPS, out=a["out"]),
        lambda a: functional.layer_norm(a["x"], _width(a), a["weight"], a["bias"], EPS),
        matrices=2,
    ),
    Operation(
        "layer_norm",
        "bwd",
        "backward",
        lambda a: row_gradients.layer_norm_backward(
            a["x"], a["dy"], weight=a["weight"], has_bias=True, eps=EPS, out=a["out"]
        ),
        _layer_norm_backward,
        matrices=3,
    ),
    Operation(
        "rms_norm",
        "fwd",
        "forward",
        lambda a: rows.rms_norm(a["x"], a["weight"], eps=EPS, out=a["out"]),
        lambda a: functional.rms_norm(a["x"], _width(a), a["weight"], EPS),
        matrices=2,
    ),
    Operation(
        "rms_norm",
        "bwd",
        "backward",
        lambda a: row_gradients.rms_norm_backward(
            a["x"], a["dy"], weight=a["weight"], eps=EPS, out=a["out"]
        ),
        _rms_norm_backward,
        matrices=3,
    ),
)


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    shapes: dict[str, dict[str, list[list[int]]]] = tomllib.loads(TARGETS.read_text())
    results = []
    for dtype in DTYPES:
        every = [tuple(shape) for kind in shapes.values() for shape in kind[dtype]]
        for shape in dict.fromkeys(every):
            tensors = _tensors((shape[0], shape[1]), DTYPES[dtype])
            results += [
                _case(operation, dtype, tensors)
                for operation in OPERATIONS
                if list(shape) in shapes[operation.kind][dtype]
            ]
    versions = {"torch": torch.__version__, "tilewright": tilewright.__version__}
    return results, versions


def _tensors(shape: tuple[int, int], kind: torch.dtype) -> dict[str, torch.Tensor]:
    """Return random operands, and what a forward pass saves of them."""
    tensors = {key: torch.randn(shape, device="cuda", dtype=kind) for key in ("x", "y", "dy")}
    for key in ("weight", "bias"):
        tensors[key] = torch.randn(shape[1], device="cuda", dtype=kind)
    tensors["probability"] = torch.softmax(tensors["x"], -1)
    _, tensors["mean"], tensors["factor"] = torch.native_layer_norm(
        tensors["x"], shape[1:], None, None, EPS
    )
    squares = tensors["x"].float().square().mean(-1, keepdim=True)
    tensors["rms_factor"] = torch.rsqrt(squares + EPS)
    return tensors


def _case(operation: Operation, dtype: str, tensors: dict[str, torch.Tensor]) -> Row:
    x = tensors["x"]
    out = torch.full_like(x, torch.nan)
    arrays = {key: tilewright.as_device_array(t) for key, t in {**tensors, "out": out}.items()}
    err, checked = _check(operation, dtype, tensors, arrays, out)
    compiled = torch.compile(operation.theirs, dynamic=False)
    # A copy of as many bytes: half of them read, half written.
    source = torch.empty(x.nbytes * operation.matrices // 2, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    timing = device_ms(
        {
            "ours": lambda: operation.ours(arrays),
            "copy": lambda: target.copy_(source),
            "torch.eager": lambda: operation.theirs(tensors),
            "torch.compile": lambda: compiled(tensors),
        },
        target_ms=5.0,
    )
    torch._dynamo.reset()
    return timing.row(
        f"{operation.name}/{dtype}/{x.shape[0]}x{x.shape[1]}/{operation.direction}/eager",
        unit="ms",
        checked=checked,
        err=err,
    )


def _check(
    operation: Operation,
    dtype: str,
    tensors: dict[str, torch.Tensor],
    arrays: Arrays,
    out: torch.Tensor,
) -> tuple[dict[str, float], bool]:
    """Compare a sample of rows with fp64, and all of it with torch, sums over all rows included."""
    returned = operation.ours(arrays)
    others = returned[1:] if isinstance(returned, tuple) else ()
    ours = (out, *(torch.from_dlpack(array) for array in others if array is not None))
    sample = {
        key: (t[:SAMPLE] if t.shape[:1] == out.shape[:1] and t.ndim == 2 else t).double()
        for key, t in tensors.items()
    }
    expected = _first(operation.theirs(sample))
    theirs = operation.theirs(tensors)
    scale = expected.abs().max()
    error, baseline_error = (
        float(((result[:SAMPLE].double() - expected).abs().max() / scale).cpu())
        for result in (out, _first(theirs))
    )
    # All of it against torch, which also catches an element that was never written.
    every = theirs if isinstance(theirs, tuple) else (theirs,)
    apart = max(
        float(((a.float() - b.float()).abs().max() / b.float().abs().max()).cpu())
        for a, b in zip(ours, every, strict=True)
    )
    # Sums of many rows differ by their order too, on both sides.
    allowed = 2 * TOLERANCE[dtype] + (5e-5 if len(every) > 1 else 0)
    checked = error <= TOLERANCE[dtype] and apart <= allowed
    return {"ours": error, "torch.eager": baseline_error}, checked


def _first(results: Any) -> torch.Tensor:
    first: torch.Tensor = results[0] if isinstance(results, tuple) else results
    return first
