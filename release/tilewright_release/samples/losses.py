"""Samples of cross entropy: every width that has a configuration of its own, every option."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, int32, int64
from tilewright.reference import cross_entropy as definitions
from tilewright.tensor import configurations, cross_entropy
from tilewright_release.samples.sample import Array, Sample, aligned, operand

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_ROWS = 11
_WIDE = 80_000
_IGNORED = -100


def samples() -> Iterator[Sample]:
    """Yield a call for each bundled signature of this family."""
    held = (configurations.CROSS_ENTROPY, *configurations.CROSS_ENTROPY_LONG)
    widths = [*(tiles.block_n for tiles in held), 65_536, _WIDE]
    for dtype in (float32, float16, bfloat16):
        for width in widths:
            # The last begins at a place that is not aligned.
            for form, pad, start in (("fast", 16, 0), ("odd", 1, 0), ("general", 1, 1)):
                x = partial(_logits, dtype, width - 16, pad, start)
                for options in ({}, {"label_smoothing": 0.1, "z_loss": 1e-3}):
                    yield _sample(f"{dtype}-{width}-{form}-{len(options)}", x, options)
        x = partial(_logits, dtype, 3000, 16, 0)
        yield _sample(f"{dtype}-weights", x, {"label_smoothing": 0.1}, has_weight=True)
        for pad in (16, 1):
            x = partial(_logits, dtype, 3000, pad, 0)
            yield Sample(
                f"cross_entropy-{dtype}-{pad}",
                "cross_entropy",
                cross_entropy.cross_entropy,
                definitions.cross_entropy,
                partial(_arguments, x, {"reduction": "sum"}, int32, has_weight=True),
            )


def _sample(
    name: str, x: partial[Array], options: dict[str, float], *, has_weight: bool = False
) -> Sample:
    return Sample(
        f"cross_entropy_backward-{name}",
        "cross_entropy",
        cross_entropy.cross_entropy_backward,
        definitions.cross_entropy_backward,
        partial(_arguments, x, options, int64, has_weight=has_weight),
    )


def _logits(dtype: DType, width: int, pad: int, start: int) -> Array:
    return operand((_ROWS, width + start), dtype, pad=pad)[:, start:]


def _arguments(
    x: partial[Array], options: dict[str, Any], index: DType, *, has_weight: bool
) -> Arguments:
    array = x()
    start = array.strides[0] // array.itemsize % 2  # some targets begin at an odd place too
    target = aligned(_ROWS + start, index)[start:]
    target[:] = np.random.default_rng(_ROWS).integers(0, array.shape[-1], _ROWS)
    target[3] = _IGNORED
    given = dict(options)
    if has_weight:
        given["weight"] = np.abs(operand((array.shape[-1],), float32)) + np.float32(0.5)
    return (array, target), given
