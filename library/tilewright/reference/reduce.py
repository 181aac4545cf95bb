"""Reductions over the last axis: `x` is `[..., C]`, the result `[...]`; see `reduction`."""

from __future__ import annotations

from tilewright.reference import reduction
from tilewright.reference.precision import Array


def sum(x: Array) -> Array:
    """Return the sum of each row."""
    return reduction.sum(x, -1)


def max(x: Array) -> Array:
    """Return the maximum of each row."""
    return reduction.max(x, -1)
