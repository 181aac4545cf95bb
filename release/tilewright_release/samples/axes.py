"""Samples of operations over any axes: reductions, and copies with axes in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64, int8
from tilewright.reference import reduce as definitions
from tilewright.tensor import movement, reduction
from tilewright_release.samples.sample import Array, Sample, operand

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_FLOATS = (float32, float16, bfloat16)


def samples() -> Iterator[Sample]:
    """Yield a call for each bundled signature of reductions and copies."""
    for dtype in _FLOATS:
        for shape, axis in (((5, 480), 1), ((3, 4080), 1), ((2, 40_000), 1), ((80, 640), 0)):
            for pad in (16, 1):
                yield from _reductions(dtype, shape, axis, pad)
    for dtype in (int8, float16, float32, float64):
        for pad in (16, 1):
            for width in (64, 1024):
                yield _copy(f"{dtype}-{width}-{pad}", partial(_rows, dtype, width, pad))
            yield _copy(f"{dtype}-crossed-{pad}", partial(_columns, dtype, pad))


def _reductions(dtype: DType, shape: tuple[int, int], axis: int, pad: int) -> Iterator[Sample]:
    # A row that is not padded to a multiple of 16 elements makes the general form.
    x = partial(operand, shape if pad == 16 else (shape[0], shape[1] - 3), dtype, pad=pad)
    place = "x".join(map(str, shape)) + f"-{axis}-{'fast' if pad == 16 else 'general'}"
    for name in ("sum", "mean", "max", "min", "argmax", "argmin", "var", "std"):
        operation: Callable[..., Array] = getattr(reduction, name)
        definition: Callable[..., Array] = getattr(definitions, name)
        arguments = partial(_over_axis, x, axis)
        yield Sample(f"{name}-{dtype}-{place}", "reduction", operation, definition, arguments)


def _over_axis(x: Callable[[], Array], axis: int) -> Arguments:
    return (x(), axis), {}


def _copy(name: str, array: Callable[[], Array]) -> Sample:
    return Sample(f"copy-{name}", "movement", movement.copy, np.array, lambda: ((array(),), {}))


def _rows(dtype: DType, width: int, pad: int) -> Array:
    return operand((5, width if pad == 16 else width - 3), dtype, pad=pad)


def _columns(dtype: DType, pad: int) -> Array:
    shape = (80, 48) if pad == 16 else (35, 37)
    return operand(shape, dtype, pad=pad).T
