"""Arrays of heads as kernels by blocks of tensor descriptors take them, and copies of the others.

Rows are aligned, contiguous and have a multiple of 16 elements, and the leading axes are as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.abi.signature import DIVISOR, INT31_MAX
from tilewright.tensor.arrays import Array, dtype_of, new_array, strides_of
from tilewright.tensor.axes import overlaps, viewed
from tilewright.tensor.geometry import Geometry, geometry_of
from tilewright.tensor.launches import planned
from tilewright.tensor.movement import copy, copy_elements, is_row_major
from tilewright.tensor.strides import Strides, broadcast_strides, collapsed


def head_count(array: Array | Geometry) -> int:
    """Return how many heads an array has; one of no heads' axis is a head."""
    return array.shape[-3] if len(array.shape) > 2 else 1


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


def is_whole(array: Array) -> bool:
    """Return whether elements lie one behind the other, the first one aligned."""
    return is_row_major(array) and geometry_of(array).is_aligned


def as_whole(array: Array) -> Array:
    """Return the array, or a copy whose elements lie so."""
    return array if is_whole(array) else copy(array)


def targets_of(
    results: Iterable[Array], read: Sequence[Array], *, keeps: bool = False
) -> list[Array]:
    """Return what kernels write for each result: itself, or a new array to hand over.

    A result that lies where an operand does would be read after it is written. With `keeps` kernels
    leave some rows alone, which a new array then has from the result.
    """
    targets = []
    for result in results:
        target = result
        if not fits(geometry_of(result)) or any(overlaps(result, x) for x in read):
            target = padded(result)
            if keeps:
                copied(result, target)
        targets.append(target)
    return targets


def hand_over(targets: Iterable[Array], results: Iterable[Array]) -> None:
    """Copy what was not written in place."""
    for target, result in zip(targets, results, strict=True):
        if target is not result:
            copy_elements(viewed(target, result.shape, strides_of(target)), result)


def walk_of(array: Geometry) -> Strides:
    """Return the strides along batch, heads and rows."""
    strides = broadcast_strides(array.shape, array.strides, array.shape)
    batch = _batch_stride(array) or 0
    return (batch, *strides[-3:-1]) if len(strides) > 2 else (0, 0, strides[0])
