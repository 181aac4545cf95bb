"""The gradients of attention with a cap, a mask, dropout, a bias, or of sequences in a row.

They are also those of heads of more than 128 elements, for which there is no other form. What the
kernels do not take is copied first, and results that they do not write are copied back.
"""

from __future__ import annotations

from math import prod

from tilewright.abi.dtypes import float32, int1, int32
from tilewright.kernels.attention_backward import row_products
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
from tilewright.tensor.attention_window import Window
from tilewright.tensor.axes import apart, viewed
from tilewright.tensor.configurations import (
    featured_gradients_configurations,
    row_products_configuration,
)
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
from tilewright.tensor.launches import PlannedLaunch, Pointer, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import copies_blocks
from tilewright.tensor.strides import Shape, Strides

# The operands by number.
_Q, _K, _V, _Y, _DY, _BIAS, _MASK, _LSE, _DELTAS, _DQ, _DK, _DV, _DBIAS = range(13)
_Q_STARTS, _K_STARTS = 13, 14


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
    """How a bias, its gradient and a mask lie over the scores; None is absent."""

    bias: Strides | None
    mask: Strides | None
    dbias: Strides | None
    own: tuple[bool, bool, bool, bool]

    def walks(self) -> tuple[int, ...]:
        return (*(self.bias or NOTHING), *(self.mask or NOTHING))


def add_up(
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
    own_shape, own_axes = _own_axes(given.bias, scores)
    of_bias = None
    if dbias is not None:
        is_fit = prod(own_shape) == prod(dbias.shape) and is_whole(dbias)
        of_bias = apart(dbias, *read) if is_fit else new_array(own_shape, dtype_of(q), q)
    starts = [stand_in(q, int32)] * 2
    if given.sequences is not None:
        starts = [given.sequences.q_starts, given.sequences.k_starts]
    deltas = new_array(sums.shape, float32, sums)
    arrays: Arrays = [*read, deltas, *targets, q if of_bias is None else of_bias, *starts]
    over = _Over(
        bias_walk,
        mask_walk,
        None if of_bias is None else _own_walk(own_shape, own_axes),
        own_axes,
    )
    launches = _plan(
        tuple(map(geometry_of, (q, k, v, y, dy, *targets))),
        over,
        lengths_of(given.q, given.k, given.sequences),
        window,
        has_dropout=bool(features.dropout),
    )
    for launch in launches:
        launch.run(arrays, features.scalars(scale))
    hand_over(targets, results)
    if dbias is not None and of_bias is not None and of_bias is not dbias:
        _hand_over(of_bias, dbias, scores)


def _own_axes(bias: Array | None, scores: Shape) -> tuple[Shape, tuple[bool, bool, bool, bool]]:
    """Return `[batches, H, Q, K]` of a bias's gradient, and which of these axes it lacks.

    Batches are all or one: the kernel knows one stride of them. Of a bias that has some of the
    batch axes the gradient is that of all batches, which `_hand_over` adds up.
    """
    if bias is None:
        return (1, 1, 1, 1), (True,) * 4
    shape = _of_all_axes(bias.shape, scores)
    is_one = prod(shape[:-3]) == 1
    lacks = (is_one, *(extent == 1 for extent in shape[-3:]))
    batches = 1 if is_one else prod(scores[:-3])
    return (batches, *shape[-3:]), (lacks[0], lacks[1], lacks[2], lacks[3])


def _hand_over(of_bias: Array, dbias: Array, scores: Shape) -> None:
    """Copy the gradient of a bias, added up along the batch axes that the bias lacks."""
    shape = _of_all_axes(dbias.shape, scores)
    axes = tuple(axis for axis, extent in enumerate(scores[:-3]) if shape[axis] != extent)
    if prod(of_bias.shape) == prod(shape):
        copy_elements(viewed(of_bias, dbias.shape, row_major(dbias.shape)), dbias)
        return
    every = (*scores[:-3], *shape[-3:])
    strides = (0,) * (len(shape) - len(dbias.shape)) + strides_of(dbias)
    target = viewed(dbias, shape, strides)
    reduction.sum(viewed(of_bias, every, row_major(every)), axes, keepdim=True, out=target)


def _of_all_axes(shape: Shape, scores: Shape) -> Shape:
    return (1,) * (len(scores) - len(shape)) + shape


def _own_walk(shape: Shape, lacks: tuple[bool, bool, bool, bool]) -> Strides:
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
    *_, rows, dim = q.shape
    heads = head_count(q)
    stored = 1 if lengths.is_packed else lengths.batches
    by_blocks = copies_blocks(q.device)
    of_keys, of_queries, of_bias = featured_gradients_configurations(dim, by_blocks=by_blocks)
    sizes = sizes_of(q, k, lengths)
    read = tuple(stride for array in (q, k, v, dy) for stride in walk_of(array))
    has = (over.bias is not None, over.mask is not None, has_dropout)
    flags = (*window.sides, *map(int, (lengths.is_packed, *has)))
    products = row_products_configuration(dim)
    result = [
        PlannedLaunch(
            row_products,
            (-(-rows // products.block_m) * heads * stored, 1, 1),
            tuple(Pointer(operand, 0, (), ()) for operand in (_Y, _DY, _DELTAS)),
            (rows, dim, heads, stored, *walk_of(y), *walk_of(dy)),
            {
                "BLOCK_M": products.block_m,
                "BLOCK_D": products.block_n,
                "num_warps": products.num_warps,
            },
        ),
        featured_launch(
            featured_key_gradients,
            (_Q, _K, _V, _DY, _BIAS, _MASK, _DK, _DV, _LSE, _DELTAS, _Q_STARTS, _K_STARTS),
            (*sizes, 1, *read, *walk_of(dk), *walk_of(dv), *over.walks()),
            -(-lengths.keys // of_keys.block_n) * sizes[-1] * lengths.batches,
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
        lacks = over.own
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
                *(lengths.queries, lengths.keys, dim, sizes[5], lengths.batches, heads, sizes[-1]),
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
