"""Samples of operations by index: look-ups, additions, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, int32, int64
from tilewright.reference import index as definitions
from tilewright.tensor import addition, counting, indexing
from tilewright_release.samples.sample import Array, Sample, aligned, operand

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_FLOATS = (float32, float16, bfloat16)
_INDICES = (int32, int64)


def samples() -> Iterator[Sample]:
    """Yield a call for each bundled signature of this family."""
    for form, columns, pad in (("fast", 304, 16), ("general", 301, 1)):
        for dtype in (float32, bfloat16):
            for index in _INDICES:
                name = f"{dtype}-{index}-{form}"
                x = partial(operand, (37, columns), dtype, pad=pad)
                yield _sample(
                    "gather",
                    name,
                    indexing.gather,
                    definitions.gather,
                    partial(_gathered, x, index),
                )
                yield _sample(
                    "take", name, indexing.take, definitions.take, partial(_taken, x, index)
                )
    for dtype in _FLOATS:
        for is_ordered in (True, False):
            order = "ordered" if is_ordered else "unordered"
            for kind, operation, definition, columns in (
                ("scatter_add", addition.scatter_add, definitions.scatter_add, 48),
                ("index_add", addition.index_add, definitions.index_add, 304),
            ):
                for index in _INDICES:
                    yield _sample(
                        kind,
                        f"{dtype}-{index}-{order}",
                        partial(operation, deterministic=is_ordered),
                        definition,
                        partial(_added, kind, dtype, index, columns),
                    )
    for dtype in _FLOATS:
        for bins in (50, 3000):
            yield _sample(
                "histogram",
                f"{dtype}-{bins}",
                counting.histogram,
                definitions.histogram,
                partial(_counted, dtype, bins),
            )
    for index in _INDICES:
        for bins in (50, 3000):
            yield _sample(
                "bincount",
                f"{index}-{bins}",
                counting.bincount,
                definitions.bincount,
                partial(_numbers, index, bins),
                follows_values=True,
            )


def _sample(
    kind: str,
    name: str,
    operation: Callable[..., Any],
    definition: Callable[..., Any],
    arguments: Callable[[], Arguments],
    *,
    follows_values: bool = False,
) -> Sample:
    return Sample(
        f"{kind}-{name}", "index", operation, definition, arguments, follows_values=follows_values
    )


def _indices(shape: tuple[int, ...], dtype: DType, extent: int) -> Array:
    count = int(np.prod(shape))
    found = aligned(count, dtype)
    found[:] = np.random.default_rng(count).integers(0, extent, count)
    return found.reshape(shape)


def _gathered(x: Callable[[], Array], index: DType) -> Arguments:
    array = x()
    return (array, _indices((array.shape[0], array.shape[1]), index, array.shape[1])), {}


def _taken(x: Callable[[], Array], index: DType) -> Arguments:
    array = x()
    return (array, _indices((21,), index, array.shape[0])), {}


def _added(kind: str, dtype: DType, index: DType, columns: int) -> Arguments:
    x, source = (operand((37, columns), dtype, seed=seed) for seed in (0, 1))
    if kind == "index_add":
        return (x, _indices((37,), index, 37), source), {}
    return (x, _indices((37, columns), index, columns), source), {}


def _counted(dtype: DType, bins: int) -> Arguments:
    return (operand((5, 2000), dtype), bins), {"range": (-2.0, 2.0)}


def _numbers(dtype: DType, bins: int) -> Arguments:
    return (_indices((5, 2000), dtype, bins),), {}
