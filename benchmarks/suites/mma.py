"""Suite `mma`: products, attention and convolution through mma.sync against cuBLAS and cuDNN.

The path of every GPU but Hopper, measured on the GPU that there is. A result is right if its error
against fp64 is at most 1.1 times that of the vendor's library, or of one rounding of the result
where that is more.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilewright
from benchmarks.errors import judged_errors
from benchmarks.record import Row
from benchmarks.timing import device_ms, memory_taken
from tilewright.tensor.launches import forget_plans

TARGETS = Path(__file__).resolve().parent.parent / "targets" / "mma.toml"
DTYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "tf32": torch.float32,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "f8e4m3": torch.float8_e4m3fn,
}
RESULTS = {"i8": torch.int32, "f8e4m3": torch.bfloat16}
# Half a unit in the last place of a result, relative to the largest.
ROUNDING = {"bf16": 2.0**-9, "f16": 2.0**-12, "tf32": 2.0**-11, "f32": 2.0**-25, "f64": 2.0**-54}
ROUNDING |= {"i8": 0.0, "f8e4m3": 2.0**-9}
ALLOWED = 1.1  # times the error of the vendor's library

Contender = Callable[[], Any]
Peer = Callable[[torch.Tensor, torch.Tensor, torch.dtype, str], Contender | None]
"""Makes a contender of both factors, the dtype of the result and the precision, or has none."""


def measure() -> tuple[list[Row], dict[str, str]]:
    """Check and time every case; return its rows and the versions of what was compared."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    shapes: dict[str, dict[str, list[list[Any]]]] = tomllib.loads(TARGETS.read_text())
    # What other GPUs run: on this one, products would choose the form that copies blocks.
    with (
        patch("tilewright.tensor.matmul_launches.copies_blocks", return_value=False),
        patch("tilewright.tensor.attention_launches.copies_blocks", return_value=False),
    ):
        forget_plans()
        rows = [
            product(dtype, (m, n, k), layout)
            for dtype, cases in shapes["matmul"].items()
            for m, n, k, layout in cases
        ]
        rows += [
            attention(dtype, shape, causal=causal)
            for dtype, cases in shapes["attention"].items()
            for shape in cases
            for causal in (False, True)
        ]
        rows += [
            _convolution(dtype, shape)
            for dtype, cases in shapes["convolution"].items()
            for shape in cases
        ]
    forget_plans()
    versions = {
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "tilewright": tilewright.__version__,
    }
    return rows, versions


def product(
    dtype: str, size: tuple[int, int, int], layout: str, peers: Mapping[str, Peer] | None = None
) -> Row:
    """Check and time one product; of the layout's two letters, t is an operand read transposed.

    It is held against the better of the library and the peers that have it, and timed beside both.
    """
    m, n, k = size
    kind, result = DTYPES[dtype], RESULTS.get(dtype, DTYPES[dtype])
    a = _random((m, k), kind) if layout[0] == "n" else _random((k, m), kind).T
    b = _random((k, n), kind) if layout[1] == "n" else _random((n, k), kind).T
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    out, theirs = torch.empty((m, n), device="cuda", dtype=result), _vendor(dtype, a, b)
    out.fill_(-1 if dtype == "i8" else torch.nan)
    arrays = [tilewright.as_device_array(x) for x in (a, b, out)]
    precision = "tf32" if dtype == "tf32" else "ieee"

    def ours() -> Any:
        return tilewright.matmul(*arrays[:2], input_precision=precision, out=arrays[2])

    baselines = {"torch.scaled_mm" if dtype == "f8e4m3" else "cublas": theirs}
    for name, peer in (peers or {}).items():
        contender = peer(a, b, result, precision)
        if contender is not None:
            baselines[name] = contender
    exact = a.double() @ b.double()
    suffix = "" if layout == "nn" else f".{layout}"
    return _row(
        f"matmul{suffix}/{dtype}/{m}x{n}x{k}/fwd/eager",
        dtype,
        (ours, out),
        baselines,
        exact,
    )


def _vendor(dtype: str, a: torch.Tensor, b: torch.Tensor) -> Contender:
    """Return the product by cuBLAS."""
    if dtype == "i8":
        return lambda: torch._int_mm(a, b)
    if dtype == "f8e4m3":
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    result = torch.empty((a.shape[0], b.shape[1]), device="cuda", dtype=a.dtype)
    return lambda: torch.matmul(a, b, out=result)


def attention(dtype: str, shape: list[int], *, causal: bool) -> Row:
    """Check and time one attention of `batch, heads, shared heads, length, dim`."""
    batch, heads, shared, length, dim = shape
    kind = DTYPES[dtype]
    q = _random((batch, heads, length, dim), kind)
    k, v = (_random((batch, shared, length, dim), kind) for _ in range(2))
    out = torch.full_like(q, torch.nan)
    arrays = [tilewright.as_device_array(x) for x in (q, k, v, out)]

    def ours() -> Any:
        return tilewright.attention(*arrays[:3], causal=causal, out=arrays[3])

    def sdpa(backend: SDPBackend) -> Contender:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=shared != heads
                )

        return call

    backends = {
        "torch.flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }
    theirs = {name: sdpa(backend) for name, backend in backends.items() if runs(sdpa(backend))}
    # Whole arrays in fp64 would not fit: the first and last head of the first image.
    picked = [0, heads - 1]
    wide = [x[:1, [h * x.shape[1] // heads for h in picked]].double() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.MATH):
        exact = functional.scaled_dot_product_attention(*wide, is_causal=causal)
    name = "attention.causal" if causal else "attention"
    return _row(
        f"{name}/{dtype}/{batch}x{heads}x{shared}x{length}x{dim}/fwd/eager",
        dtype,
        (ours, out),
        theirs,
        exact,
        sample=lambda x: x[:1, picked],
        by_norm=True,
    )


def runs(call: Contender) -> bool:
    """Return whether torch has a kernel for a call: one that is missing is no baseline."""
    try:
        call()
    except RuntimeError as error:
        if "No available kernel" in str(error):
            return False
        raise
    return True


def _convolution(dtype: str, shape: list[int]) -> Row:
    images, channels, size, filters, taps, stride = shape
    kind, padding = DTYPES[dtype], taps // 2
    x = _random((images, channels, size, size), kind).to(memory_format=torch.channels_last)
    w = _random((filters, channels, taps, taps), kind).to(memory_format=torch.channels_last)

    def theirs() -> torch.Tensor:
        return functional.conv2d(x, w, stride=stride, padding=padding)

    out = torch.full_like(theirs(), torch.nan)
    arrays = [tilewright.as_device_array(tensor) for tensor in (x, w, out)]

    def ours() -> Any:
        return tilewright.convolution(*arrays[:2], stride=stride, padding=padding, out=arrays[2])

    exact = functional.conv2d(x[:2].double(), w.double(), stride=stride, padding=padding)
    return _row(
        f"convolution/{dtype}/{images}x{channels}x{size}x{size}-{filters}x{taps}x{taps}"
        f"-{stride}/fwd/eager",
        dtype,
        (ours, out),
        {"cudnn": theirs},
        exact,
        sample=lambda x: x[:2],
    )


def _row(
    case: str,
    dtype: str,
    ours: tuple[Contender, torch.Tensor],
    theirs: dict[str, Contender],
    exact: torch.Tensor,
    *,
    sample: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    by_norm: bool = False,
) -> Row:
    """Check and time a case; `sample` takes from a result what `exact` holds.

    Judged by the largest error, or `by_norm` as `benchmarks.errors` does.
    """
    call, out = ours
    call()
    baseline_results = {name: contender() for name, contender in theirs.items()}
    if by_norm:
        found = {"ours": (out,)} | {name: (x,) for name, x in baseline_results.items()}
        errors, is_right = judged_errors(found, (exact,), rounding=ROUNDING[dtype], sample=sample)
    else:
        errors, is_right = _largest_errors(dtype, out, baseline_results, exact, sample)
    contenders = {"ours": call, **theirs}
    taken = {name: memory_taken(contender) for name, contender in contenders.items()}
    timing = device_ms(contenders)
    return timing.row(case, unit="ms", checked=is_right, err=errors, peak_bytes=taken)


def _largest_errors(
    dtype: str,
    out: torch.Tensor,
    baseline_results: dict[str, Any],
    exact: torch.Tensor,
    sample: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[dict[str, float], bool]:
    """Return each contender's largest error, and whether ours will do."""
    scale = exact.abs().max()

    def error(result: torch.Tensor) -> float:
        return float(((sample(result).double() - exact).abs().max() / scale).cpu())

    errors = {"ours": error(out)}
    errors |= {name: error(result) for name, result in baseline_results.items()}
    best = min(value for name, value in errors.items() if name != "ours")
    # All of it against the first baseline, which also catches an element that was never written.
    first = next(iter(baseline_results.values()))
    apart = float(((out.double() - first.double()).abs().max() / scale).cpu())
    limit = max(ALLOWED * best, ROUNDING[dtype])
    return errors, errors["ours"] <= limit and apart <= 4 * max(limit, ROUNDING[dtype])


def _random(shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
    if kind == torch.int8:
        return torch.randint(-128, 128, shape, device="cuda", dtype=kind)
    return torch.randn(shape, device="cuda").to(kind)
