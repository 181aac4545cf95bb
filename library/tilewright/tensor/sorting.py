"""Sorted arrays, and the first k of an order, along any axis of any length."""

from __future__ import annotations

from math import prod

from tilewright.abi.dtypes import DType, int32, int64
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.kernels import sort as kernels
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import (
    Array,
    as_array,
    as_flag,
    as_integer,
    check_has_arithmetic,
    dtype_of,
    is_fast,
    new_array,
    strides_of,
)
from tilewright.tensor.axes import at_least_one_axis, one_axis, transposed, viewed
from tilewright.tensor.configurations import MOVED_ELEMENTS, SORT_NARROW, SORT_WIDE
from tilewright.tensor.movement import copy
from tilewright.tensor.strides import collapsed

_LONGEST = 2**31 - 1


def sort(x: object, axis: int = -1, *, descending: bool = False) -> tuple[Array, Array]:
    """Return the elements in order along `axis`, and the i64 indices that they had.

    Floats are ordered totally: -inf, numbers, -0.0, 0.0, numbers, inf, NaN. Equal elements keep
    their order, in a falling order too.
    """
    return _first(x, axis, None, descending=as_flag(descending, name="descending"))


def argsort(x: object, axis: int = -1, *, descending: bool = False) -> Array:
    """Return the i64 indices that put `x` in order along `axis`, as `sort` gives them."""
    return sort(x, axis, descending=descending)[1]


def topk(x: object, k: int, *, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """Return the `k` largest elements along `axis`, largest first, and their i64 indices.

    Without `largest` the smallest, smallest first. The order is that of `sort`, so NaN is among the
    largest, and of equal elements those with lower indices come first. Raises ArgumentValueError
    unless `k` lies between 0 and the extent.
    """
    count = as_integer(k, name="k")
    return _first(x, axis, count, descending=as_flag(largest, name="largest"))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Keys and places of rows `[total, length]`."""

    keys: Array
    places: Array
    total: int
    length: int

    def empty_like(self, length: int) -> Pairs:
        """Return pairs of rows of another length, not yet written."""
        shape = (self.total * length,)
        keys = new_array(shape, dtype_of(self.keys), self.keys)
        return Pairs(keys, new_array(shape, int32, self.keys), self.total, length)


def _first(x: object, axis: int, count: int | None, *, descending: bool) -> tuple[Array, Array]:
    given = as_array(x, name="x")
    check_has_arithmetic(given)
    place = one_axis(axis, len(given.shape))
    array = at_least_one_axis(given)
    length = array.shape[place]
    if length > _LONGEST:
        msg = f"sorting takes axes of up to {_LONGEST} elements, got {length}"
        raise ArgumentError(msg)
    wanted = length if count is None else count
    if not 0 <= wanted <= length:
        msg = f"k is {wanted}, of an axis of {length} elements; it lies between 0 and {length}"
        raise ArgumentValueError(msg)
    kept = [axis for axis in range(len(array.shape)) if axis != place]
    source = transposed(array, [*kept, place])
    shape = (*source.shape[:-1], wanted)
    values, indices = (new_array(shape, dtype, array) for dtype in (dtype_of(array), int64))
    if prod(shape):
        pairs = prepared(source, descending=descending)
        pairs = _selected(pairs, wanted) if 2 * wanted <= SORT_WIDE.block_n else sorted_pairs(pairs)
        _finish(pairs, values, indices, wanted, descending=descending)
    if not given.shape:
        return viewed(values, (), ()), viewed(indices, (), ())
    if place == len(kept):
        return values, indices
    order = [*range(place), len(kept), *range(place, len(kept))]
    return copy(transposed(values, order)), copy(transposed(indices, order))


def prepared(source: Array, *, descending: bool) -> Pairs:
    """Make keys of the last axis."""
    length = source.shape[-1]
    space = collapsed(source.shape[:-1], (strides_of(source)[:-1],), rank=2, keep_last=False)
    if space is not None:
        walked = (*space.sizes, length, 0, *space.strides[0], strides_of(source)[-1])
        # Bundled for aligned arrays alone.
        if not is_fast(kernels.prepare, (source, source, source), walked):
            space = None
    if space is None:
        source = copy(source)
        space = collapsed(source.shape[:-1], (strides_of(source)[:-1],), rank=2, keep_last=False)
        assert space is not None
    rows = prod(space.sizes)
    pairs = new_pairs(source, rows, length, key_dtype(dtype_of(source)))
    kernels.prepare[(rows * -(-length // MOVED_ELEMENTS),)](
        source, pairs.keys, pairs.places, *space.sizes, length, int(descending),
        *space.strides[0], strides_of(source)[-1], BLOCK=MOVED_ELEMENTS, num_warps=4,
    )  # fmt: skip
    return pairs


def key_dtype(dtype: DType) -> DType:
    """Return the type of the keys of elements."""
    return int64 if dtype.bits == 64 else int32


def new_pairs(like: Array, total: int, length: int, dtype: DType) -> Pairs:
    """Return pairs on the side of `like`, not yet written."""
    keys = new_array((total * length,), dtype, like)
    return Pairs(keys, new_array((total * length,), int32, like), total, length)


def sorted_pairs(pairs: Pairs) -> Pairs:
    """Return every row in order."""
    result = _sorted_tiles(pairs, keep=None)
    run = SORT_WIDE.block_n
    spare = pairs  # what was read is written over
    while run < pairs.length:
        blocks = -(-pairs.length // SORT_WIDE.block_n)
        kernels.merge[(pairs.total * blocks,)](
            result.keys, result.places, spare.keys, spare.places,
            pairs.length, run, run.bit_length(), BLOCK=SORT_WIDE.block_n, num_warps=4,
        )  # fmt: skip
        result, spare = spare, result
        run *= 2
    return result


def _selected(pairs: Pairs, count: int) -> Pairs:
    """Return rows that begin with their first `count` in order."""
    keep = 1 << max(count - 1, 0).bit_length()
    while pairs.length > SORT_WIDE.block_n:
        pairs = _sorted_tiles(pairs, keep=keep)
    return _sorted_tiles(pairs, keep=None)


def _sorted_tiles(pairs: Pairs, *, keep: int | None) -> Pairs:
    """Sort each tile of the rows, and leave the first `keep` of each, by default all."""
    tile = SORT_NARROW if pairs.length <= SORT_NARROW.block_n else SORT_WIDE
    tiles = -(-pairs.length // tile.block_n)
    result = pairs.empty_like(pairs.length if keep is None else tiles * keep)
    kernels.sort_pairs[(-(-pairs.total // tile.block_m) * tiles,)](
        pairs.keys, pairs.places, result.keys, result.places,
        pairs.total, pairs.length, tiles, tile.block_n if keep is None else keep, result.length,
        BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, num_warps=tile.num_warps,
    )  # fmt: skip
    return result


def _finish(pairs: Pairs, values: Array, indices: Array, count: int, *, descending: bool) -> None:
    kernels.finish[(-(-pairs.total * count // MOVED_ELEMENTS),)](
        pairs.keys, pairs.places, values, indices, pairs.total, pairs.length, count,
        int(descending), BLOCK=MOVED_ELEMENTS, num_warps=4,
    )  # fmt: skip
