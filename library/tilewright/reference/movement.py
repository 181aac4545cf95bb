"""Copies, row-major, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.reference.precision import Array


def copy(x: Array) -> Array:
    """Return a row-major copy of `x`."""
    return np.array(x, order="C")


def permute(x: Array, axes: Sequence[int]) -> Array:
    """Return a row-major copy whose axis i is axis `axes[i]` of `x`."""
    return copy(x.transpose(axes))


def transpose(x: Array, axes: Sequence[int] | None = None) -> Array:
    """Return a row-major copy with the axes in the order `axes`, by default reversed."""
    return copy(x.transpose(axes))
