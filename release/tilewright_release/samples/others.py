"""Samples of attention, convolution and the kernels of examples/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32
from tilewright.reference.attention import attention as attention_definition
from tilewright.reference.attention import attention_backward as attention_backward_definition
from tilewright.reference.convolution import convolution as convolution_definition
from tilewright.reference.matmul import matmul as matmul_definition
from tilewright.reference.softmax import softmax as softmax_definition
from tilewright.tensor import configurations
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward
from tilewright.tensor.convolution import convolution
from tilewright_release.samples.sample import Array, Sample, aligned, always, operand
from tilewright_release.signatures import load_kernel
from tilewright_release.tolerances import TF32

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def samples(root: Path) -> Iterator[Sample]:
    """Yield a call for each bundled signature of these families."""
    yield from _attention_samples()
    yield from _attention_by_blocks()
    yield from _attention_gradients()
    yield from _unordered_gradients()
    yield from _convolution_samples()
    yield from _example_samples(root)


def _attention_samples() -> Iterator[Sample]:
    tables = (
        (bfloat16, configurations.ATTENTION_16, ("tf32x3",)),
        (float16, configurations.ATTENTION_16, ("tf32x3",)),
        (float32, configurations.ATTENTION_32, ("tf32x3", "tf32")),
    )
    for dtype, table, precisions in tables:
        for dim in table:
            for form, pad, size in (("fast", 0, dim), ("general", 1, dim - 3)):
                for precision in precisions:
                    arguments = partial(_attention, dtype, size, pad, precision, form)
                    yield Sample(
                        f"attention-{dtype}-{dim}-{precision}-{form}",
                        "attention",
                        attention,
                        _attention_result,
                        arguments,
                        precision=precision if precision == TF32 else "",
                    )


def _attention_by_blocks() -> Iterator[Sample]:
    """Yield the form whose blocks Hopper copies by itself: plain, causal, and with a bias."""
    launches = "tilewright.tensor.attention_launches"
    for dtype in (bfloat16, float16):
        for dim in configurations.ATTENTION_BLOCKS:
            for form in ("plain", "causal", "bias"):
                yield Sample(
                    f"attention-{dtype}-{dim}-blocks-{form}",
                    "attention",
                    attention,
                    _attention_result,
                    partial(_by_blocks, dtype, dim, form),
                    {
                        f"{launches}.copies_blocks": always(True),
                        f"{launches}.processors": always(4),
                    },
                )


def _attention_gradients() -> Iterator[Sample]:
    """Yield gradients of heads of each width, in the tiles of Hopper and in those of the others."""
    operation = "tilewright.tensor.attention_backward"
    for dtype in (bfloat16, float16):
        for tiles in configurations.KEY_GRADIENTS:
            for form, by_blocks in (("blocks", True), ("common", False)):
                yield Sample(
                    f"attention_backward-{dtype}-{tiles.block_k}-{form}",
                    "attention_backward",
                    attention_backward,
                    _gradients_of_definition,
                    partial(_gradients, dtype, tiles.block_k),
                    {
                        f"{operation}.copies_blocks": always(by_blocks),
                        f"{operation}.processors": always(4),
                    },
                )


def _unordered_gradients() -> Iterator[Sample]:
    """Yield gradients by blocks of keys, with sums in any order and in a fixed one."""
    operation = "tilewright.tensor.attention_backward"
    for dtype in (bfloat16, float16):
        for tiles in configurations.ALL_GRADIENTS:
            for form in ("unordered", "ordered"):
                yield Sample(
                    f"attention_backward_unordered-{dtype}-{tiles.block_k}-{form}",
                    "attention_backward_unordered",
                    partial(attention_backward, deterministic=form == "ordered"),
                    _gradients_of_definition,
                    partial(_gradients, dtype, tiles.block_k),
                    {
                        f"{operation}.copies_blocks": always(True),
                        f"{operation}.processors": always(4),
                        f"{operation}_unordered.copies_blocks": always(True),
                        f"{operation}_unordered.processors": always(4),
                    },
                )


def _gradients(dtype: DType, dim: int) -> Arguments:
    q, dy = (operand((4, 70, dim), dtype, seed=seed) for seed in (0, 1))
    k, v = (operand((2, 90, dim), dtype, seed=seed) for seed in (2, 3))
    y, sums = operand((4, 70, dim), dtype), operand((4, 70), float32)
    y[...], sums[...] = attention_definition(q, k, v, causal=True)
    return (q, k, v, y, sums, dy), {"causal": True}


def _gradients_of_definition(
    q: Array, k: Array, v: Array, _y: Array, _lse: Array, dy: Array, *, causal: bool
) -> tuple[Array, ...]:
    return attention_backward_definition(q, k, v, dy, causal=causal)


def _by_blocks(dtype: DType, dim: int, form: str) -> Arguments:
    (q, k, v), options = _attention(dtype, dim, 0, "tf32x3", "fast")
    options["causal"] = form == "causal"
    if form == "bias":
        options["bias"] = operand((2, 70, 90), dtype, pad=6)
    return (q, k, v), options


def _attention(dtype: DType, dim: int, pad: int, precision: str, form: str) -> Arguments:
    q, k, v = (
        operand((2, rows, dim), dtype, pad=pad, seed=seed) for seed, rows in enumerate((70, 90, 90))
    )
    options: dict[str, Any] = {"input_precision": precision}
    if form == "general":
        options |= {"bias": operand((2, 70, 90), dtype, pad=6), "causal": True}
    return (q, k, v), options


def _attention_result(*arrays: Array, **options: Any) -> Array:
    return attention_definition(*arrays, **options)[0]


def _convolution_samples() -> Iterator[Sample]:
    chooser = "tilewright.tensor.convolution.convolution_configuration"
    for dtype, table, precisions in (
        (bfloat16, configurations.CONVOLUTION_16, ("ieee",)),
        (float16, configurations.CONVOLUTION_16, ("ieee",)),
        (float32, configurations.CONVOLUTION_32, ("ieee", "tf32")),
    ):
        for precision in precisions:
            for index, tiles in enumerate(table):
                yield _convolution_sample(
                    f"{dtype}-{precision}-{index}",
                    partial(_convolution, dtype, precision, last=True, channels=32),
                    {chooser: always(tiles)},
                )
            for name, last in (("last", True), ("first", False)):
                yield _convolution_sample(
                    f"{dtype}-{precision}-general-{name}",
                    partial(_convolution, dtype, precision, last=last, channels=5),
                    {},
                )


def _convolution_sample(name: str, arguments: Any, choices: Mapping[str, object]) -> Sample:
    return Sample(
        f"convolution-{name}",
        "convolution",
        convolution,
        convolution_definition,
        arguments,
        choices,
    )


def _example_samples(root: Path) -> Iterator[Sample]:
    """Yield launches of the kernels of examples/, which are no operations of the library."""
    for form, n in (("fast", 1008), ("general", 1003)):
        for name, run, definition, arguments in (
            ("vecadd", _vecadd, np.add, partial(_two_rows, n)),
            ("softmax", _softmax, softmax_definition, partial(_one_matrix, n)),
            ("matmul", _product, matmul_definition, partial(_two_matrices, n // 8)),
        ):
            kernel = f"examples/{name}.py:{name}"
            yield Sample(
                f"example-{name}-{form}",
                "examples",
                partial(run, root, kernel),
                definition,
                arguments,
            )


def _vecadd(root: Path, kernel: str, x: Array, y: Array) -> Array:
    out = aligned(x.size, float32)
    load_kernel(kernel, root=root)[(-(-x.size // 1024),)](x, y, out, x.size, BLOCK=1024)
    return out


def _softmax(root: Path, kernel: str, x: Array) -> Array:
    rows, columns = x.shape
    out = aligned(x.size, float32).reshape(x.shape)
    load_kernel(kernel, root=root)[(rows,)](x, out, columns, columns, columns, BLOCK=1024)
    return out


def _product(root: Path, kernel: str, a: Array, b: Array) -> Array:
    (m, k), n = a.shape, b.shape[1]
    out = aligned(m * n, float16).reshape(m, n)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    load_kernel(kernel, root=root)[(-(-m // 64) * -(-n // 64),)](a, b, out, m, n, k, **blocks)
    return out


def _two_rows(n: int) -> Arguments:
    # From an odd place on for an odd extent, so that no vector fits.
    start = n % 2
    x, y = (operand((n + start,), float32, seed=seed)[start:] for seed in (0, 1))
    return (x, y), {}


def _one_matrix(n: int) -> Arguments:
    start = n % 2
    return (operand((3 * n + start,), float32)[start:].reshape(3, n),), {}


def _two_matrices(n: int) -> Arguments:
    k, columns = (n // 16 * 16, 48) if n % 2 == 0 else (n, 41)
    return (operand((35, k), float16), operand((k, columns), float16)), {}


def _convolution(dtype: DType, precision: str, *, last: bool, channels: int) -> Arguments:
    filters = 48 if channels == 32 else 7
    x, w = operand((2, 9, 7, channels), dtype), operand((filters, 3, 3, channels), dtype)
    x, w = x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)
    if not last:
        x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    bias = operand((filters,), dtype)
    return (x, w), {"bias": bias, "stride": (2, 2), "padding": (1, 1), "input_precision": precision}
