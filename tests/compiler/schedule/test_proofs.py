"""The kernels of the library are proven to compute under their schedules what they say.

By default one signature of each kernel, dtype and form; `--prove-all` proves every configuration of
the bundle. A proof is kept in pytest's cache under the hash of the scheduled IR, so that only what
changed is proven again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.proven_cases import Case, not_bundled, prove
from tilewright.abi.dtypes import (
    DType,
    bfloat16,
    float8e5,
    float16,
    float32,
    float64,
    int8,
    uint8,
)
from tilewright.abi.numpy_types import to_numpy
from tilewright.tensor import configurations, elementwise, row_gradients, rows
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward
from tilewright.tensor.configurations import DotConfiguration
from tilewright.tensor.convolution import convolution
from tilewright.tensor.cross_entropy import cross_entropy_backward
from tilewright.tensor.matmul import matmul
from tilewright_release.stage_cache import StageCache

Array = NDArray[Any]


def operand(shape: tuple[int, ...], dtype: DType, *, pad: int = 0) -> Array:
    """Return small numbers of a dtype, aligned to 64 bytes, rows `pad` elements apart."""
    pitch = shape[-1] + pad
    random = np.random.default_rng(zlib.crc32(repr(shape).encode()))
    count = int(np.prod(shape[:-1])) * pitch
    type_ = to_numpy(dtype)
    memory = np.zeros(count * type_.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    flat = memory[start : start + count * type_.itemsize].view(type_)
    low, high = (0, 5) if dtype == uint8 else (-4, 5)
    flat[:] = (random.integers(low, high, count) / (1 if dtype.is_integer else 4)).astype(type_)
    return flat.reshape(*shape[:-1], pitch)[..., : shape[-1]]


# Sizes as the fast form wants them: what is contiguous is a multiple of 16.
M, N, K = 80, 48, 112


def _fast_product(dtype: DType, precision: str, a_unit: str, b_unit: str) -> object:
    a = operand((M, K), dtype) if a_unit == "k" else operand((K, M), dtype).T
    b = operand((K, N), dtype) if b_unit == "n" else operand((N, K), dtype).T
    return matmul(a, b, input_precision=precision)


def _general_product(dtype: DType, precision: str) -> object:
    a, b = operand((35, 37), dtype, pad=2), operand((37, 41), dtype, pad=1)
    return matmul(a, b, input_precision=precision)


def _epilogue(dtype: DType) -> object:
    a, b = operand((2, 33, 64), dtype), operand((64, 48), dtype)
    gate, residual = (operand((2, 33, 48), dtype) for _ in range(2))
    bias = operand((48,), dtype)
    return matmul(a, b, bias=bias, activation="gelu", alpha=0.5, gate=gate, residual=residual)


def _matmul_cases() -> list[Case]:
    cases = []
    for (dtype, precision), table in configurations.MATMUL_FAST.items():
        for index, tiles in enumerate(table):
            for a_unit, b_unit in (("k", "n"), ("m", "k"), ("k", "k"), ("m", "n")):
                cases.append(
                    Case(
                        f"matmul-{dtype}-{precision}-{index}-{a_unit}{b_unit}",
                        partial(_fast_product, dtype, precision, a_unit, b_unit),
                        tiles is table[-1] and (a_unit == "k" or dtype == bfloat16),
                        (("matmul_launches.matmul_configuration", _always(tiles)),),
                    )
                )
    for dtype, precision in configurations.MATMUL_GENERAL:
        cases.append(
            Case(
                f"matmul-{dtype}-{precision}-general",
                partial(_general_product, dtype, precision),
                dtype in (bfloat16, float32, int8, float8e5),
            )
        )
    cases.append(Case("matmul-epilogue", partial(_epilogue, bfloat16)))
    cases.append(Case("matmul-epilogue-f32", partial(_epilogue, float32), by_default=False))
    return cases


def _always(tiles: DotConfiguration) -> Callable[..., DotConfiguration]:
    return lambda *_args, **_options: tiles


def _attention(dtype: DType, dim: int, pad: int, *, plain: bool) -> object:
    q, k, v = (operand((2, rows, dim), dtype, pad=pad) for rows in (70, 90, 90))
    if plain:
        return attention(q, k, v)
    return attention(
        q,
        k,
        v,
        bias=operand((2, 70, 90), dtype, pad=6),
        causal=True,
        lse=np.zeros((2, 70), np.float32),
    )


def _attention_cases() -> list[Case]:
    cases = []
    tables = (
        (bfloat16, configurations.ATTENTION_16),
        (float16, configurations.ATTENTION_16),
        (float32, configurations.ATTENTION_32),
    )
    for dtype, table in tables:
        for dim in table:
            for form, pad, size in (("fast", 0, dim), ("general", 1, dim - 3)):
                cases.append(
                    Case(
                        f"attention-{dtype}-{dim}-{form}",
                        partial(_attention, dtype, size, pad, plain=form == "fast"),
                        (dim == 32 and dtype != float16) or (dim, form) == (64, "fast"),
                    )
                )
    return cases


def _attention_gradients(dtype: DType, dim: int) -> object:
    q, k = (operand((2, rows, dim), dtype) for rows in (70, 90))
    return attention_backward(q, k, k, q, np.zeros((2, 70), np.float32), q, causal=True)


def _attention_gradient_cases() -> list[Case]:
    return [
        Case(
            f"attention_backward-{dtype}-{tiles.block_k}",
            partial(_attention_gradients, dtype, tiles.block_k),
            (dtype, tiles.block_k) == (bfloat16, 64),
        )
        for dtype in (bfloat16, float16)
        for tiles in configurations.KEY_GRADIENTS
    ]


def _features(dtype: DType, dim: int, *, packed: bool) -> tuple[list[Array], dict[str, Any]]:
    """Return q, k and v, and options: all at once, or sequences in a row."""
    q, k, v = (operand((2, rows, dim), dtype) for rows in (70, 90, 90))
    if packed:
        starts = (np.array(numbers, np.int32) for numbers in ((0, 30, 30, 70), (0, 50, 90, 90)))
        return [q, k, v], dict(zip(("q_starts", "k_starts"), starts, strict=True))
    mask = np.random.default_rng(0).random((70, 90)) < 0.8
    options = {"softcap": 2.0, "dropout": 0.25, "seed": 3, "window": (40, 20)}
    return [q, k, v], {"bias": operand((2, 70, 90), dtype), "mask": mask, **options}


def _attention_with_features(dtype: DType, dim: int, *, packed: bool) -> object:
    arrays, options = _features(dtype, dim, packed=packed)
    return attention(*arrays, **options)


def _gradients_with_features(dtype: DType, dim: int, *, packed: bool) -> object:
    arrays, options = _features(dtype, dim, packed=packed)
    if not packed:
        options["dbias"] = np.empty_like(options["bias"])
    given: list[Any] = [*arrays, arrays[0], np.zeros((2, 70), np.float32), arrays[0]]
    return attention_backward(*given, **options)


def _feature_cases() -> list[Case]:
    tables = (
        (bfloat16, configurations.ATTENTION_FEATURED),
        (float16, configurations.ATTENTION_FEATURED),
        (float32, configurations.ATTENTION_FEATURED_32),
    )
    calls = {"attention": _attention_with_features, "attention_backward": _gradients_with_features}
    return [
        Case(
            f"{name}-features-{dtype}-{tiles.block_k}-{'packed' if packed else 'flags'}",
            partial(call, dtype, tiles.block_k, packed=packed),
            dtype == bfloat16 and tiles.block_k == 64 and not packed,
            # A bias is copied by a launch of its own.
            runs=True,
        )
        for dtype, table in tables
        for tiles in table
        for name, call in calls.items()
        if dtype != float32 or name == "attention"
        for packed in (False, True)
    ]


def _convolution(dtype: DType, *, last: bool) -> object:
    channels, filters = (32, 48) if last else (5, 7)
    x, w = operand((2, 9, 7, channels), dtype), operand((filters, 3, 3, channels), dtype)
    x, w = x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)
    if not last:
        x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    return convolution(x, w, bias=operand((filters,), dtype), stride=2, padding=1)


def _convolution_cases() -> list[Case]:
    return [
        Case(
            f"convolution-{dtype}-{'last' if last else 'first'}",
            partial(_convolution, dtype, last=last),
            dtype != float16,
        )
        for dtype in (bfloat16, float16, float32)
        for last in (True, False)
    ]


_FLOATS = (float16, bfloat16, float32, float64)

_ROW_OPERATIONS: dict[str, Callable[[Array], object]] = {
    "softmax": rows.softmax,
    "layer_norm": lambda x: rows.layer_norm(
        x, weight=operand(x.shape[-1:], _dtype(x)), bias=operand(x.shape[-1:], _dtype(x))
    ),
    "sum": rows.sum,
    "max": rows.max,
    "exp": elementwise.exp,
    "gelu": elementwise.gelu,
    "gelu_backward": lambda x: elementwise.gelu_backward(x, x),
    "add": lambda x: elementwise.add(x, x[:1]),
    "mul": lambda x: elementwise.mul(x, x[:, ::-1] if x.ndim > 1 else x),
}


# All norms take one kernel, in which this one has the most to do.
_ROW_GRADIENTS: dict[str, Callable[[Array], object]] = {
    "softmax_backward": lambda y: row_gradients.softmax_backward(y, y),
    "layer_norm_backward": lambda x: row_gradients.layer_norm_backward(
        x, x, weight=operand(x.shape[-1:], _dtype(x)), has_bias=True
    ),
}


def _on_rows(call: Callable[[Array], object], dtype: DType, width: int, pad: int) -> object:
    return call(operand((5, width), dtype, pad=pad))


def _dtype(x: Array) -> DType:
    return next(dtype for dtype in _FLOATS if to_numpy(dtype) == x.dtype)


def _row_cases() -> list[Case]:
    widths = [*(tiles.block_n for tiles in configurations.ROWS), 40_000]
    cases = []
    for name, call in _ROW_OPERATIONS.items():
        for dtype in (float32, float16, bfloat16):
            for width in widths:
                for form, pad, size in (("fast", 3, width - 3), ("general", 1, width - 6)):
                    by_default = dtype == bfloat16 and width in (512, 4096)
                    cases.append(
                        Case(
                            f"{name}-{dtype}-{width}-{form}",
                            partial(_on_rows, call, dtype, size, pad),
                            by_default and name not in ("max", "mul", "exp"),
                        )
                    )
    return cases


def _wide_row_cases() -> list[Case]:
    operations = {name: _ROW_OPERATIONS[name] for name in ("softmax", "layer_norm")}
    return [
        Case(f"{name}-f64-{form}", partial(_on_rows, call, float64, size, pad), form == "general")
        for name, call in (operations | _ROW_GRADIENTS).items()
        for form, pad, size in (("fast", 0, 64), ("general", 1, 1030))
    ]


def _gradient_cases() -> list[Case]:
    held = [tiles.block_n for tiles in configurations.NORM_BACKWARD]
    forms = [(f"{width}", 0, width) for width in held]
    forms += [("walked", 3, 1053), ("walked-general", 1, 1053)]
    return [
        Case(
            f"{name}-{dtype}-{form}",
            partial(_on_rows, call, dtype, size, pad),
            dtype == bfloat16 and form in ("512", "4096", "walked-general"),
        )
        for name, call in _ROW_GRADIENTS.items()
        for dtype in (float32, float16, bfloat16)
        for form, pad, size in forms
    ]


def _cross_entropy(dtype: DType, width: int, pad: int, start: int) -> object:
    x = operand((5, width + start), dtype, pad=pad)[:, start:]
    return cross_entropy_backward(x, np.arange(5), label_smoothing=0.1, z_loss=1e-2)


def _cross_entropy_cases() -> list[Case]:
    tables = (configurations.CROSS_ENTROPY, *configurations.CROSS_ENTROPY_LONG)
    forms = [(f"{tiles.block_n}", tiles.block_n - 3, 3, 0) for tiles in tables]
    forms += [("narrow", 48, 0, 0), ("narrow-general", 37, 1, 1)]
    forms += [("wide", 80_001, 3, 0), ("walked-general", 5000, 1, 1)]
    return [
        Case(
            f"cross_entropy_backward-{dtype}-{form}",
            partial(_cross_entropy, dtype, size, pad, start),
            dtype == bfloat16 and form in ("narrow", "2048", "32768", "walked-general"),
            runs=True,
        )
        for dtype in (float32, float16, bfloat16)
        for form, size, pad, start in forms
    ]


CASES = [
    *_matmul_cases(),
    *_attention_cases(),
    *_attention_gradient_cases(),
    *_feature_cases(),
    *_convolution_cases(),
    *_row_cases(),
    *_wide_row_cases(),
    *_gradient_cases(),
    *_cross_entropy_cases(),
]


def test_schedule_is_proven(case: Case, store: StageCache, monkeypatch: pytest.MonkeyPatch) -> None:
    prove(case.launches(monkeypatch), store)


def test_what_the_library_launches_is_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [*not_bundled(CASES, monkeypatch)]
