"""How the memory of an array is laid out: all of it that the plan of an operation depends on.

A geometry is a tuple, because every launch of an operation looks a plan up by those of its arrays.
The extension makes them and keeps each with its array, so its items stand in the order that it
knows.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.abi.dtypes import DType
from tilewright.runtime.launcher import DTYPES, native

__all__ = ["Geometry", "row_major"]


class Geometry(NamedTuple):
    """Shape, strides in elements, dtype (by its code), alignment and device of an array.

    `is_aligned` says whether the first element lies where the fast form of kernels needs it;
    `device` is None on the host.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    code: int
    is_aligned: bool
    device: int | None

    @property
    def dtype(self) -> DType:
        """The element type."""
        return DTYPES[self.code]


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major array."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


native.set_geometry_type(Geometry)
