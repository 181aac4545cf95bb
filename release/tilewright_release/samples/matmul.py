"""Samples of products: every configuration with every way in which operands are contiguous."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float8e4nv, float8e5, float16, float32
from tilewright.reference.matmul import matmul as reference
from tilewright.reference.scaled_matmul import scaled_matmul as scaled_reference
from tilewright.tensor import configurations
from tilewright.tensor.block_configurations import BLOCK_FORMS, BlockChoice
from tilewright.tensor.matmul import RESULTS, matmul
from tilewright.tensor.scaled_matmul import scaled_matmul
from tilewright_release.samples.sample import Array, Sample, always, operand

# Sizes as the fast form wants them: what is contiguous is a multiple of 16.
M, N, K = 80, 48, 112

_LAUNCHES = "tilewright.tensor.matmul_launches"
_BLOCKS = "tilewright.tensor.block_launches"
_UNITS = (("k", "n"), ("m", "k"), ("k", "k"), ("m", "n"))

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def samples() -> Iterator[Sample]:
    """Yield a product for each bundled signature."""
    for (dtype, precision), table in configurations.MATMUL_FAST.items():
        for index, tiles in enumerate(table):
            choice = {f"{_LAUNCHES}.matmul_configuration": always(tiles)}
            for result in RESULTS[dtype]:
                for units in _UNITS:
                    yield _sample(
                        f"{dtype}-{precision}-{result}-{index}-{''.join(units)}",
                        partial(_fast, dtype, precision, result, units),
                        choice,
                    )
    for dtype, precision in configurations.MATMUL_GENERAL:
        for result in RESULTS[dtype]:
            for units in _UNITS:
                yield _sample(
                    f"{dtype}-{precision}-{result}-general-{''.join(units)}",
                    partial(_general, dtype, precision, result, units),
                )
            yield _sample(
                f"{dtype}-{precision}-{result}-any", partial(_any, dtype, precision, result)
            )
    for (dtype, precision), forms in BLOCK_FORMS.items():
        for index, form in enumerate(forms):
            parts = 2 if form.kernel == "parts" else 1
            choice = {
                f"{_LAUNCHES}.copies_blocks": always(True),
                f"{_BLOCKS}.block_choice": always(BlockChoice(form, parts, 0.0)),
            }
            for result in form.results:
                for units in form.units:
                    yield _sample(
                        f"{dtype}-{precision}-{result}-{form.kernel}-{index}-{''.join(units)}",
                        partial(_fast, dtype, precision, result, units),
                        choice,
                    )
    for dtype in (bfloat16, float16, float32, float8e4nv, float8e5):
        yield _sample(f"{dtype}-epilogue", partial(_epilogue, dtype))
    for tiles in configurations.SCALED_BLOCKS:
        for kind in ("whole", "rows", "blocks"):
            yield Sample(
                f"scaled-{kind}-{tiles.block_m}x{tiles.block_n}",
                "scaled_matmul",
                scaled_matmul,
                scaled_reference,
                partial(_scaled, kind),
                {"tilewright.tensor.scaled_matmul.scaled_configuration": always(tiles)},
            )


def _sample(name: str, arguments: Any, choices: Mapping[str, object] | None = None) -> Sample:
    return Sample(f"matmul-{name}", "matmul", matmul, reference, arguments, choices or {})


def _fast(dtype: DType, precision: str, result: DType, units: tuple[str, str]) -> Arguments:
    a = operand((M, K), dtype) if units[0] == "k" else operand((K, M), dtype).T
    b = operand((K, N), dtype) if units[1] == "n" else operand((N, K), dtype).T
    if precision == "tf32":
        _break_ties(a)
        _break_ties(b)
    return (a, b), {"input_precision": precision, "out_dtype": result}


def _break_ties(array: Array) -> None:
    """Move f32 elements that lie halfway between two of tf32 by one unit in the last place.

    The definition rounds ties away and a tensor map to even, which `docs/language.md` leaves open;
    one tie in these samples is an error of 2e-4, twenty times what is allowed of a product.
    """
    bits = array.view(np.uint32)
    bits |= (bits & 0x1FFF == 0x1000).astype(np.uint32)


def _general(dtype: DType, precision: str, result: DType, units: tuple[str, str]) -> Arguments:
    a = operand((35, 37), dtype, pad=2) if units[0] == "k" else operand((37, 35), dtype, pad=2).T
    b = operand((37, 41), dtype, pad=1) if units[1] == "n" else operand((41, 37), dtype, pad=1).T
    return (a, b), {"input_precision": precision, "out_dtype": result}


def _any(dtype: DType, precision: str, result: DType) -> Arguments:
    a, b = operand((35, 74), dtype)[:, ::2], operand((37, 82), dtype)[:, ::2]
    return (a, b), {"input_precision": precision, "out_dtype": result}


def _scaled(kind: str) -> Arguments:
    a, b = operand((80, 272), float8e4nv), operand((144, 272), float8e4nv).T
    shapes = {"whole": ((1,), (1,)), "rows": ((80, 1), (1, 144)), "blocks": ((80, 3), (3, 2))}
    scales = (operand(shape, float32, seed=seed) for seed, shape in enumerate(shapes[kind]))
    return (a, b, *scales), {"bias": operand((144,), bfloat16)}


def _epilogue(dtype: DType) -> Arguments:
    result = RESULTS[dtype][0]
    gate, residual = (operand((2, 33, 48), result, seed=seed) for seed in (1, 2))
    return (operand((2, 33, 64), dtype), operand((64, 48), dtype)), {
        "bias": operand((48,), result),
        "activation": "gelu",
        "alpha": 0.5,
        "gate": gate,
        "residual": residual,
    }
