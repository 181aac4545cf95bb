"""Samples of operations on rows and elements: every width that has a configuration of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, float64
from tilewright.reference import elementwise as element_definitions
from tilewright.reference import norm as norm_definitions
from tilewright.reference import reduce as reduce_definitions
from tilewright.reference import softmax as softmax_definitions
from tilewright.tensor import configurations, elementwise, rows
from tilewright_release.samples.sample import Array, Sample, operand

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Operation = Callable[..., Any]

_FLOATS = (float32, float16, bfloat16)
_ROWS = 5


def samples() -> Iterator[Sample]:
    """Yield a call for each bundled signature of row and elementwise kernels."""
    tables = configurations.ROWS, configurations.TILES, configurations.LONG_ROWS
    widths = (*sorted({tiles.block_n for table in tables for tiles in table}), 40_000)
    for dtype in _FLOATS:
        for width in widths:
            for form in ("fast", "general", "strided"):
                array = partial(_rows, dtype, width, form)
                name = f"{dtype}-{width}-{form}"
                yield from _row_operations(name, array)
    # Rows of a wide type are walked whatever their width.
    for form in ("fast", "general"):
        array = partial(_rows, float64, 512, form)
        yield _softmax(f"f64-512-{form}", array)
        yield from _norms(f"f64-512-{form}", array)
    for dtype in _FLOATS:
        for width in (64, 1024):
            for form in ("fast", "general", "strided"):
                array = partial(_rows, dtype, width, form)
                yield from _element_operations(f"{dtype}-{width}-{form}", array)


def _row_operations(name: str, array: Callable[[], Array]) -> Iterator[Sample]:
    yield _softmax(name, array)
    yield from _norms(name, array)
    for operation, definition in (
        (rows.sum, reduce_definitions.sum),
        (rows.max, reduce_definitions.max),
    ):
        yield Sample(f"{operation.__name__}-{name}", "reduce", operation, definition, _one(array))


def _softmax(name: str, array: Callable[[], Array]) -> Sample:
    return Sample(
        f"softmax-{name}", "softmax", rows.softmax, softmax_definitions.softmax, _one(array)
    )


def _norms(name: str, array: Callable[[], Array]) -> Iterator[Sample]:
    norms: tuple[tuple[Operation, Operation, Callable[[], Arguments]], ...] = (
        (rows.layer_norm, norm_definitions.layer_norm, _with_parameters(array)),
        (rows.rms_norm, norm_definitions.rms_norm, _one(array)),
        (rows.l2_norm, norm_definitions.l2_norm, _one(array)),
    )
    for operation, definition, inputs in norms:
        yield Sample(f"{operation.__name__}-{name}", "norm", operation, definition, inputs)


def _element_operations(name: str, array: Callable[[], Array]) -> Iterator[Sample]:
    for operation, definition, inputs in (
        (elementwise.exp, element_definitions.exp, _one(array)),
        (elementwise.gelu, element_definitions.gelu, _one(array)),
        (elementwise.add, element_definitions.add, _two(array)),
        (elementwise.mul, element_definitions.mul, _two(array)),
    ):
        yield Sample(f"{operation.__name__}-{name}", "elementwise", operation, definition, inputs)


def _rows(dtype: DType, width: int, form: str) -> Array:
    """Return rows that end a little before `width`, laid out so that a launch has that form."""
    match form:
        case "fast":
            return operand((_ROWS, width - 16), dtype, pad=16)
        case "general":
            return operand((_ROWS, width - 6), dtype, pad=1)
        case _:
            return operand((_ROWS, 2 * width - 12), dtype, pad=1)[:, ::2]


def _one(array: Callable[[], Array]) -> Callable[[], Arguments]:
    return lambda: ((array(),), {})


def _two(array: Callable[[], Array]) -> Callable[[], Arguments]:
    return lambda: ((array(), array()[:1]), {})


def _with_parameters(array: Callable[[], Array]) -> Callable[[], Arguments]:
    def arguments() -> Arguments:
        x = array()
        weight, bias = (np.array(x[row]) for row in (0, 1))
        return (x, weight, bias), {}

    return arguments
