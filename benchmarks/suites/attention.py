"""Suite `attention`: attention of the installed wheel, and its gradients, against cuDNN and FA2.

Results are judged as `benchmarks.errors` says. What is timed backward is all that comes after the
way forward: ours in a fixed order of sums (`attention/bwd`) and in any (`attention.unordered/bwd`),
theirs as torch differentiates.
"""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilewright
from benchmarks.errors import judged_errors
from benchmarks.record import Row
from benchmarks.suites.mma import DTYPES, ROUNDING, Contender, attention, runs
from benchmarks.timing import device_ms, memory_taken

TARGETS = Path(__file__).resolve().parent.parent / "targets" / "attention.toml"

Gradients = tuple[torch.Tensor, ...]


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    shapes: dict[str, list[list[int]]] = tomllib.loads(TARGETS.read_text())
    rows = [
        measured(dtype, shape, causal=causal)
        for measured in (attention, _backward, _backward_unordered)
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


def _backward(dtype: str, shape: list[int], *, causal: bool) -> Row:
    return _gradients(dtype, shape, causal=causal, ordered=True)


def _backward_unordered(dtype: str, shape: list[int], *, causal: bool) -> Row:
    return _gradients(dtype, shape, causal=causal, ordered=False)


def _gradients(dtype: str, shape: list[int], *, causal: bool, ordered: bool) -> Row:
    """Check and time the gradients of `batch, heads, shared heads, length, dim`."""
    batch, heads, shared, length, dim = shape
    q, dy = (_random((batch, heads, length, dim), dtype) for _ in range(2))
    k, v = (_random((batch, shared, length, dim), dtype) for _ in range(2))
    results = tuple(torch.full_like(x, torch.nan) for x in (q, k, v))
    y = torch.empty_like(q)
    lse = torch.empty(q.shape[:-1], device="cuda")
    arrays = [tilewright.as_device_array(x) for x in (q, k, v, y, lse, dy)]
    dq, dk, dv = map(tilewright.as_device_array, results)
    tilewright.attention(*arrays[:3], causal=causal, out=arrays[3], lse=arrays[4])

    def ours() -> Any:
        return tilewright.attention_backward(
            *arrays, causal=causal, deterministic=ordered, dq=dq, dk=dk, dv=dv
        )

    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def gradients(backend: SDPBackend) -> Contender:
        with sdpa_kernel(backend):
            result = functional.scaled_dot_product_attention(
                *leaves, is_causal=causal, enable_gqa=shared != heads
            )
        return lambda: torch.autograd.grad(result, leaves, dy, retain_graph=True)

    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "torch.flash": SDPBackend.FLASH_ATTENTION}
    theirs = {
        name: gradients(backend)
        for name, backend in backends.items()
        if runs(partial(gradients, backend))
    }
    ours()
    found = {name: call() for name, call in theirs.items()} | {"ours": results}
    exact = _exact(q, k, v, dy, causal=causal)
    errors, is_right = judged_errors(
        found, exact, rounding=ROUNDING[dtype], sample=partial(_sample, shared=shared)
    )
    contenders = {"ours": ours, **theirs}
    taken = {name: memory_taken(contender) for name, contender in contenders.items()}
    name = "attention" + ".causal" * causal + ".unordered" * (not ordered)
    case = f"{name}/{dtype}/{batch}x{heads}x{shared}x{length}x{dim}/bwd/eager"
    timing = device_ms(contenders)
    return timing.row(case, unit="ms", checked=is_right, err=errors, peak_bytes=taken)


def _exact(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dy: torch.Tensor, *, causal: bool
) -> Gradients:
    """Return the gradients of what `_sample` takes, in fp64: all of them would not fit."""
    shared = k.shape[1]
    wide = [_sample(x, shared).double().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.MATH):
        result = functional.scaled_dot_product_attention(
            *wide, is_causal=causal, enable_gqa=q.shape[1] != shared
        )
    gradients: Gradients = torch.autograd.grad(result, wide, _sample(dy, shared).double())
    return gradients


def _sample(x: torch.Tensor, shared: int) -> torch.Tensor:
    """Return what belongs to the first and last of `shared` heads of K and V in the first image."""
    grouped = x[:1].unflatten(1, (shared, -1))
    return grouped[:, sorted({0, shared - 1})].flatten(1, 2)


def _random(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(DTYPES[dtype])
