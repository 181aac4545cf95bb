"""Samples of gradients of operations on rows and elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64
from tilewright.reference import elementwise as element_definitions
from tilewright.reference import norm as norm_definitions
from tilewright.reference import softmax as softmax_definitions
from tilewright.tensor import configurations, elementwise, row_gradients
from tilewright_release.samples.sample import Array, Sample, operand

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

# As many as make several programs of each configuration.
_ROWS = 37


def samples() -> Iterator[Sample]:
    """Yield a call for each bundled signature of a gradient."""
    widths = sorted(
        {tiles.block_n for tiles in configurations.NORM_BACKWARD}
        | {tiles.block_n for tiles in configurations.SOFTMAX_BACKWARD}
        | {20_000}
    )
    for dtype in (float32, float16, bfloat16, float64):
        for width in widths:
            for form, size, pad in (("fast", width - 16, 16), ("general", width - 6, 1)):
                name = f"{dtype}-{width}-{form}"
                x, dy = (partial(_rows, dtype, size, pad, seed) for seed in (0, 1))
                yield _softmax(name, x, dy)
                yield _layer_norm(name, x, dy)
                if width == widths[0]:
                    yield from _others(name, x, dy)
        yield _bias_alone(dtype)
    for dtype in (float32, float16, bfloat16):
        for width in (64, 1024):
            for form, size, pad in (("fast", width, 16), ("general", width - 3, 1)):
                x, dy = (partial(_rows, dtype, size, pad, seed) for seed in (0, 1))
                yield Sample(
                    f"gelu_backward-{dtype}-{width}-{form}",
                    "elementwise_backward",
                    elementwise.gelu_backward,
                    element_definitions.gelu_backward,
                    _both(x, dy),
                )


def _softmax(name: str, x: Callable[[], Array], dy: Callable[[], Array]) -> Sample:
    def arguments() -> Arguments:
        y = x()
        y[...] = softmax_definitions.softmax(y)
        return (y, dy()), {}

    return Sample(
        f"softmax_backward-{name}",
        "softmax_backward",
        row_gradients.softmax_backward,
        softmax_definitions.softmax_backward,
        arguments,
    )


def _layer_norm(name: str, x: Callable[[], Array], dy: Callable[[], Array]) -> Sample:
    def arguments() -> Arguments:
        array = x()
        return (array, dy()), {"weight": np.array(array[0]), "has_bias": True}

    return Sample(
        f"layer_norm_backward-{name}",
        "norm_backward",
        row_gradients.layer_norm_backward,
        _layer_norm_gradients,
        arguments,
    )


def _bias_alone(dtype: DType) -> Sample:
    """Return a call in which the sums of the gradient of a bias begin at an odd place."""

    def arguments() -> Arguments:
        x, dy = (_rows(dtype, 125, 1, seed) for seed in (0, 1))
        return (x, dy), {"has_bias": True}

    return Sample(
        f"layer_norm_backward-{dtype}-bias",
        "norm_backward",
        row_gradients.layer_norm_backward,
        _layer_norm_gradients,
        arguments,
    )


def _layer_norm_gradients(
    x: Array, dy: Array, *, weight: Array | None = None, has_bias: bool
) -> tuple[Array | None, ...]:
    """Return the gradients that are asked for."""
    dx, dweight, dbias = norm_definitions.layer_norm_backward(x, dy, weight)
    return dx, None if weight is None else dweight, dbias if has_bias else None


def _rms_norm_gradients(x: Array, dy: Array) -> tuple[Array | None, ...]:
    return norm_definitions.rms_norm_backward(x, dy)[0], None


def _others(name: str, x: Callable[[], Array], dy: Callable[[], Array]) -> Iterator[Sample]:
    for operation, definition in (
        (row_gradients.rms_norm_backward, _rms_norm_gradients),
        (row_gradients.l2_norm_backward, norm_definitions.l2_norm_backward),
    ):
        yield Sample(
            f"{operation.__name__}-{name}", "norm_backward", operation, definition, _both(x, dy)
        )


def _rows(dtype: DType, width: int, pad: int, seed: int) -> Array:
    return operand((_ROWS, width), dtype, pad=pad, seed=seed)


def _both(x: Callable[[], Array], dy: Callable[[], Array]) -> Callable[[], Arguments]:
    return lambda: ((x(), dy()), {})
