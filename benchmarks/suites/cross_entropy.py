"""Suite `cross-entropy`: the loss and the gradient of its logits, against torch.

Ours makes both in one pass. torch's are what a training step runs: logits to f32, the loss, and
what autograd makes of it, by inductor and eagerly.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional

import tilewright
from benchmarks.record import Row
from benchmarks.timing import device_ms, memory_taken

TARGETS = Path(__file__).resolve().parent.parent / "targets" / "cross-entropy.toml"
DTYPES = {"bf16": torch.bfloat16}
# Of the loss, relative; of gradients, relative to the largest: one rounding of the type.
LOSS_TOLERANCE = 2e-6
TOLERANCE = {"bf16": 4e-3}
# Rows of which gradients are compared with fp64; more would not fit the time.
SAMPLE = 256

Gradient = Callable[[], Any]


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    shapes: dict[str, list[list[int]]] = tomllib.loads(TARGETS.read_text())
    rows = [_case(dtype, *shape) for dtype, cases in shapes.items() for shape in cases]
    return rows, {"torch": torch.__version__, "tilewright": tilewright.__version__}


def _case(dtype: str, count: int, classes: int) -> Row:
    x = torch.randn((count, classes), device="cuda").to(DTYPES[dtype]).requires_grad_()
    target = torch.randint(classes, (count,), device="cuda")
    logits, targets = (tilewright.as_device_array(t) for t in (x.detach(), target))

    def ours() -> Any:
        return tilewright.cross_entropy_backward(logits, targets, check=False)

    def eager() -> tuple[torch.Tensor, torch.Tensor]:
        loss = functional.cross_entropy(x.float(), target)
        return torch.autograd.grad(loss, x)[0], loss.detach()

    compiled = torch.compile(eager, dynamic=False)
    errors, checked = _check(dtype, x.detach(), target, eager)
    contenders: dict[str, Gradient] = {
        "ours": ours, "torch.compile": compiled, "torch.eager": eager,
    }  # fmt: skip
    for call in contenders.values():
        call()
    tilewright.trim_memory()
    taken = {name: memory_taken(call) for name, call in contenders.items()}
    timing = device_ms(contenders)
    torch._dynamo.reset()
    case = f"cross_entropy/{dtype}/{count}x{classes}/fwdbwd/eager"
    return timing.row(case, unit="ms", checked=checked, err=errors, peak_bytes=taken)


def _check(
    dtype: str,
    x: torch.Tensor,
    target: torch.Tensor,
    eager: Callable[[], tuple[torch.Tensor, torch.Tensor]],
) -> tuple[dict[str, float], bool]:
    """Compare a sample of rows with fp64, and all of it with torch; the loss of all with fp64."""
    found = torch.full_like(x, torch.nan)
    arrays = (tilewright.as_device_array(t) for t in (x, target, found))
    logits, targets, out = arrays
    _, loss = tilewright.cross_entropy_backward(logits, targets, check=False, out=out)
    theirs, their_loss = eager()
    exact = _gradient(x[:SAMPLE], target[:SAMPLE]) / len(x)
    exact_loss = torch.stack([_losses(*part) for part in _parts(x, target)]).sum() / len(x)
    errors = {
        name: max(_apart(dx[:SAMPLE], exact), _apart(value, exact_loss))
        for name, dx, value in (
            ("ours", found, torch.from_dlpack(loss)),
            ("torch.eager", theirs, their_loss),
        )
    }
    # All of it against torch, which also catches an element that was never written.
    apart = max(
        _apart(a, b.double())
        for a, b in zip(found.split(SAMPLE), theirs.split(SAMPLE), strict=True)
    )
    is_right = errors["ours"] <= TOLERANCE[dtype] and apart <= 2 * TOLERANCE[dtype]
    loss_error = _apart(torch.from_dlpack(loss), exact_loss)
    return errors, is_right and loss_error <= LOSS_TOLERANCE


def _parts(x: torch.Tensor, target: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(x.split(SAMPLE), target.split(SAMPLE), strict=True))


def _losses(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the sum of the losses of some rows in fp64."""
    return functional.cross_entropy(x.double(), target, reduction="sum")


def _gradient(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the gradients of the sum of the losses of some rows in fp64."""
    wide = x.double().requires_grad_()
    gradient: torch.Tensor = torch.autograd.grad(_losses(wide, target), wide)[0]
    return gradient


def _apart(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest exact value."""
    return float(((found.double() - exact).abs().max() / exact.abs().max()).cpu())
