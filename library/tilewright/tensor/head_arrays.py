"""Arrays of heads as kernels by blocks of tensor descriptors take them, and copies of the others.

Rows are aligned, contiguous and have a multiple of 16 elements, and the leading axes are as one.
"""

from __future__ import annotations

from tilewright.abi.signature import DIVISOR, INT31_MAX
from tilewright.tensor.arrays import Array, dtype_of, new_array, strides_of
from tilewright.tensor.axes import viewed
from tilewright.tensor.geometry import Geometry, geometry_of
from tilewright.tensor.launches import planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.strides import Strides, broadcast_strides, collapsed


@planned
def fits(array: Geometry) -> bool:
    """Return whether the kernels take an array of heads as it lies."""
    if not array.is_aligned or array.shape[-1] % DIVISOR or array.strides[-1] != 1:
        return False
    outer = broadcast_strides(array.shape, array.strides, array.shape)[:-1]
    return _batch_stride(array) is not None and all(
        0 <= stride <= INT31_MAX and stride % DIVISOR == 0 for stride in outer
    )


def _batch_stride(array: Geometry) -> int | None:
    """Return the stride of the leading axes taken as one; None if they cannot be."""
    leading = array.shape[:-3]
    space = collapsed(leading, (array.strides[: len(leading)],), rank=1, keep_last=False)
    return None if space is None else space.strides[0][0]


def as_blocks(array: Array) -> Array:
    """Return the array, or a copy that the kernels take."""
    return array if fits(geometry_of(array)) else copied(array, padded(array))


def padded(array: Array) -> Array:
    """Return a new array like this one that the kernels take, with zeros where its rows end."""
    *outer, columns = array.shape
    wide = max(-(-columns // DIVISOR), 1) * DIVISOR
    return new_array((*outer, wide), dtype_of(array), array, zeroed=wide != columns)


def copied(source: Array, target: Array) -> Array:
    """Copy an array into one whose rows may be longer, and return that."""
    copy_elements(source, viewed(target, source.shape, strides_of(target)))
    return target


def walk_of(array: Geometry) -> Strides:
    """Return the strides along batch, heads and rows."""
    strides = broadcast_strides(array.shape, array.strides, array.shape)
    batch = _batch_stride(array) or 0
    return (batch, *strides[-3:-1]) if len(strides) > 2 else (0, 0, strides[0])
