"""The gradients of attention with a cap, a mask, dropout, a bias, or of sequences in a row.

They are also those of heads of more than 128 elements, for which there is no other form. What the
kernels do not take is copied first, and results that they do not write are copied back.
"""

from __future__ import annotations

from math import prod

from tilewright.abi.dtypes import float32, int1, int32
from tilewright.kernels.attention_features_backward import (
    bias_gradients,
    featured_key_gradients,
    featured_query_gradients,
)
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.geometry import row_major
from tilewright.tensor import reduction
from tilewright.tensor.arrays import Array, dtype_of, new_array, stand_in, strides_of
from tilewright.tensor.attention_features import (
    Lengths,
    featured_band,
    featured_launch,
    lengths_of,
    scores_shape,
    sizes_of,
)
from tilewright.tensor.attention_launches import head_tile_options
from tilewright.tensor.attention_options import NOTHING, Features, Sequences, over_scores
from tilewright.tensor.attention_rows import row_products_launch
from tilewright.tensor.attention_window import Window
from tilewright.tensor.axes import apart, viewed
from tilewright.tensor.configurations import featured_gradients_configurations
from tilewright.tensor.geometry import Arrays, Geometry, geometry_of
from tilewright.tensor.head_arrays import (
    as_blocks,
    as_whole,
    hand_over,
    head_count,
    is_whole,
    targets_of,
    walk_of,
)
from tilewright.tensor.launches import PlannedLaunch, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import copies_blocks
from tilewright.tensor.strides import Shape, Strides

# The operands by number.
_Q, _K, _V, _Y, _DY, _BIAS, _MASK, _LSE, _DELTAS, _DQ, _DK, _DV, _DBIAS = range(13)
_Q_STARTS, _K_STARTS = 13, 14

_Axes = tuple[bool, bool, bool, bool]


@dataclass(frozen=True, slots=True)
class Operands:
    """What the gradients of an attention are computed of, checked and with elements."""

    q: Array
    k: Array
    v: Array
    y: Array
    dy: Array
    lse: Array
    bias: Array | None
    mask: Array | None
    sequences: Sequences | None


@dataclass(frozen=True, slots=True)
class _Over:
    """How a bias, its gradient and a mask lie over the scores; None is absent.

    `lacks` says of which axes the bias has one element for all: of batch, heads, queries and keys.
    Along them its gradient is summed up.
    """

    bias: Strides | None
    mask: Strides | None
    dbias: Strides | None
    lacks: _Axes

    def walks(self) -> tuple[int, ...]:
        return (*(self.bias or NOTHING), *(self.mask or NOTHING))


def write_gradients(
    given: Operands,
    results: tuple[Array, Array, Array],
    dbias: Array | None,
    *,
    window: Window,
    features: Features,
    scale: float,
) -> None:
    """Write the gradients of `q`, `k` and `v`, and that of the bias to `dbias` if given."""
    q, k, v, y, dy = (as_blocks(x) for x in (given.q, given.k, given.v, given.y, given.dy))
    sums = as_whole(given.lse)
    scores = scores_shape(given.q, given.k)
    bias, mask, bias_walk, mask_walk = q, stand_in(q, int1), None, None
    if given.bias is not None:
        bias, bias_walk = over_scores(given.bias, scores)
    if given.mask is not None:
        mask, mask_walk = over_scores(given.mask, scores)
    read = [q, k, v, y, dy, bias, mask, sums]
    targets = targets_of(results, read, keeps=given.sequences is not None)
    of_bias, dbias_walk, lacks = None, None, (False,) * 4
    if dbias is not None:
        dbias_shape, lacks = _axes_of(dbias.shape, scores)
        dbias_walk = _dbias_walk(dbias_shape, lacks)
        is_fit = prod(dbias_shape) == prod(dbias.shape) and is_whole(dbias)
        of_bias = apart(dbias, *read) if is_fit else new_array(dbias_shape, dtype_of(q), q)
    starts = [stand_in(q, int32)] * 2
    if given.sequences is not None:
        starts = [given.sequences.q_starts, given.sequences.k_starts]
    deltas = new_array(sums.shape, float32, sums)
    arrays: Arrays = [*read, deltas, *targets, q if of_bias is None else of_bias, *starts]
    launches = _plan(
        tuple(map(geometry_of, (q, k, v, y, dy, *targets))),
        _Over(bias_walk, mask_walk, dbias_walk, lacks),
        lengths_of(given.q, given.k, given.sequences),
        window,
        has_dropout=bool(features.dropout),
    )
    for launch in launches:
        launch.run(arrays, features.scalars(scale))
    hand_over(targets, results)
    if dbias is not None and of_bias is not None and of_bias is not dbias:
        _sum_over_batches(of_bias, dbias, scores)


def _axes_of(bias: Shape, scores: Shape) -> tuple[Shape, _Axes]:
    """Return `[batches, H, Q, K]` of a bias's gradient, and which of these axes the bias lacks.

    Batches are all or one: the kernel knows one stride of them. Of a bias that has some of the
    batch axes the gradient is that of all batches, which `_sum_over_batches` adds up.
    """
    shape = _of_all_axes(bias, scores)
    is_one = prod(shape[:-3]) == 1
    lacks = (is_one, *(extent == 1 for extent in shape[-3:]))
    batches = 1 if is_one else prod(scores[:-3])
    return (batches, *shape[-3:]), (lacks[0], lacks[1], lacks[2], lacks[3])


def _sum_over_batches(of_bias: Array, dbias: Array, scores: Shape) -> None:
    """Copy the gradient of a bias, added up along the batch axes that the bias lacks."""
    shape = _of_all_axes(dbias.shape, scores)
    if prod(of_bias.shape) == prod(shape):
        copy_elements(viewed(of_bias, dbias.shape, row_major(dbias.shape)), dbias)
        return
    axes = tuple(axis for axis, extent in enumerate(scores[:-3]) if shape[axis] != extent)
    every = (*scores[:-3], *shape[-3:])
    strides = (0,) * (len(shape) - len(dbias.shape)) + strides_of(dbias)
    target = viewed(dbias, shape, strides)
    reduction.sum(viewed(of_bias, every, row_major(every)), axes, keepdim=True, out=target)


def _of_all_axes(shape: Shape, scores: Shape) -> Shape:
    return (1,) * (len(scores) - len(shape)) + shape


def _dbias_walk(shape: Shape, lacks: _Axes) -> Strides:
    _, heads, rows, columns = shape
    walk = (heads * rows * columns, rows * columns, columns)
    return tuple(0 if lack else stride for stride, lack in zip(walk, lacks, strict=False))


@planned
def _plan(
    arrays: tuple[Geometry, ...],
    over: _Over,
    lengths: Lengths,
    window: Window,
    *,
    has_dropout: bool,
) -> tuple[PlannedLaunch, ...]:
    """Plan the launches: products of rows, gradients of keys, of queries, and of the bias."""
    q, k, v, y, dy, dq, dk, dv = arrays
    dim, heads, shared = q.shape[-1], head_count(q), head_count(k)
    by_blocks = copies_blocks(q.device)
    of_keys, of_queries, of_bias = featured_gradients_configurations(dim, by_blocks=by_blocks)
    sizes = sizes_of(q, k, lengths)
    read = tuple(stride for array in (q, k, v, dy) for stride in walk_of(array))
    has = (over.bias is not None, over.mask is not None, has_dropout)
    flags = (*window.sides, *map(int, (lengths.is_packed, *has)))
    result = [
        row_products_launch(y, dy, operands=(_Y, _DY, _DELTAS)),
        featured_launch(
            featured_key_gradients,
            (_Q, _K, _V, _DY, _BIAS, _MASK, _DK, _DV, _LSE, _DELTAS, _Q_STARTS, _K_STARTS),
            (*sizes, 1, *read, *walk_of(dk), *walk_of(dv), *over.walks()),
            -(-lengths.keys // of_keys.block_n) * shared * lengths.batches,
            head_tile_options(of_keys),
            flags,
        ),
        featured_launch(
            featured_query_gradients,
            (_Q, _K, _V, _DY, _BIAS, _MASK, _DQ, _LSE, _DELTAS, _Q_STARTS, _K_STARTS),
            (
                *sizes,
                featured_band(q, lengths, window, of_queries, by_blocks=by_blocks),
                *read,
                *walk_of(dq),
                *over.walks(),
            ),
            -(-lengths.queries // of_queries.block_m) * heads * lengths.batches,
            head_tile_options(of_queries),
            flags,
        ),
    ]
    if over.dbias is not None:
        lacks = over.lacks
        blocks = (
            1 if lacks[0] else lengths.batches,
            1 if lacks[1] else heads,
            1 if lacks[2] else -(-lengths.queries // of_bias.block_m),
            1 if lacks[3] else -(-lengths.keys // of_bias.block_n),
        )
        launch = featured_launch(
            bias_gradients,
            (_Q, _K, _V, _DY, _BIAS, _MASK, _DBIAS, _LSE, _DELTAS),
            (
                lengths.queries,
                lengths.keys,
                dim,
                heads // shared,
                lengths.batches,
                heads,
                shared,
                *read,
                *over.dbias,
                *over.walks(),
                *map(int, lacks),
            ),
            prod(blocks),
            head_tile_options(of_bias),
            (*window.sides, *map(int, has)),
        )
        result.append(launch)
    return tuple(result)
