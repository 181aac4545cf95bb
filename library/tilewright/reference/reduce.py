"""Reductions over the last axis: `x` is `[..., C]`, the result `[...]` in the dtype of `x`."""

from __future__ import annotations

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.reference.precision import Array, working_dtype


@np.errstate(all="ignore")
def sum(x: Array) -> Array:
    """Return the sum of each row; narrow floats are added in f32, integers wrap. C = 0 gives 0."""
    working = working_dtype(x.dtype)
    return np.asarray(x.astype(working).sum(axis=-1, dtype=working)).astype(x.dtype)


def max(x: Array) -> Array:
    """Return the maximum of each row; NaN if any element is NaN.

    Raises ArgumentError for C = 0, which has no maximum.
    """
    if x.shape[-1] == 0:
        msg = f"maximum over an empty axis: x has shape {x.shape}"
        raise ArgumentError(msg)
    return np.asarray(x.astype(working_dtype(x.dtype)).max(axis=-1)).astype(x.dtype)
