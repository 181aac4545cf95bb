"""Attention with a cap, a mask, dropout, or of sequences in a row: copy, choose, launch.

The kernel has one form, by blocks of tensor descriptors; what it does not take is copied first, and
a result that it does not write is copied back.
"""

from __future__ import annotations

from math import prod

from tilewright.abi.dtypes import float32, int1, int32
from tilewright.abi.signature import INT31_MAX
from tilewright.errors import ArgumentError
from tilewright.kernels.attention_features import featured_attention
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import Array, fits_fast, new_array, stand_in
from tilewright.tensor.attention_launches import head_tile_options
from tilewright.tensor.attention_options import NOTHING, Features, Sequences, over_scores
from tilewright.tensor.attention_window import Window, window_of
from tilewright.tensor.axes import apart
from tilewright.tensor.configurations import DotConfiguration, featured_attention_configuration
from tilewright.tensor.geometry import Arrays, Geometry, geometry_of
from tilewright.tensor.head_arrays import (
    as_blocks,
    hand_over,
    head_count,
    is_whole,
    targets_of,
    walk_of,
)
from tilewright.tensor.head_order import band_of
from tilewright.tensor.launches import PlannedLaunch, Pointer, check_programs, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import copies_blocks, precision_of, processors
from tilewright.tensor.strides import Shape, Strides

_Q, _K, _V, _BIAS, _MASK, _OUT, _LSE, _Q_STARTS, _K_STARTS = range(9)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many queries and keys a sequence has at most, and how many sequences there are.

    With `is_packed` they lie in a row, as one batch of arrays.
    """

    queries: int
    keys: int
    batches: int
    is_packed: bool


def lengths_of(q: Array, k: Array, sequences: Sequences | None) -> Lengths:
    """Return the lengths of a batch, or of sequences in a row."""
    if sequences is not None:
        return Lengths(sequences.longest_q, sequences.longest_k, sequences.count, is_packed=True)
    return Lengths(q.shape[-2], k.shape[-2], prod(q.shape[:-3]), is_packed=False)


def scores_shape(q: Array, k: Array) -> Shape:
    """Return `[..., H, Q, K]`, with an axis of one head if there is none."""
    return (*q.shape[:-3], head_count(q), q.shape[-2], k.shape[-2])


def attend(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    *,
    lse: Array | None,
    bias: Array | None,
    mask: Array | None,
    sequences: Sequences | None,
    sides: tuple[int | None, int | None],
    causal: bool,
    features: Features,
    scale: float,
) -> None:
    """Write checked attention to `out`, which has elements, and its sums to `lse` if given.

    Products of f32 keep all of it, whatever its precision may be.
    """
    blocks = [as_blocks(array) for array in (q, k, v)]
    scores = scores_shape(q, k)
    added, added_walk = blocks[0], NOTHING
    if bias is not None:
        added, added_walk = over_scores(bias, scores)
    shown, shown_walk = stand_in(blocks[0], int1), NOTHING
    if mask is not None:
        shown, shown_walk = over_scores(mask, scores)
    read = [*blocks, added, shown]
    keeps = sequences is not None  # what lies in rows of none of them
    (target,) = targets_of((out,), read, keeps=keeps)
    sums = stand_in(target, float32)
    if lse is not None:
        is_fit = is_whole(lse)
        sums = apart(lse, *read, target) if is_fit else new_array(lse.shape, float32, lse)
        if keeps:
            copy_elements(lse, sums)
    starts = [stand_in(target, int32)] * 2
    if sequences is not None:
        starts = [sequences.q_starts, sequences.k_starts]
    lengths = lengths_of(q, k, sequences)
    launch = _plan(
        tuple(map(geometry_of, (*blocks, target))),
        (added_walk, shown_walk),
        lengths,
        window_of(sides, causal=causal, queries=lengths.queries, keys=lengths.keys),
        (bias is not None, mask is not None, bool(features.dropout), lse is not None),
    )
    arrays: Arrays = [*read, target, sums, *starts]
    launch.run(arrays, features.scalars(scale))
    hand_over((target,), (out,))
    if lse is not None:
        copy_elements(sums, lse)


@planned
def _plan(
    arrays: tuple[Geometry, ...],
    over: tuple[Strides, Strides],
    lengths: Lengths,
    window: Window,
    has: tuple[bool, bool, bool, bool],
) -> PlannedLaunch:
    """Plan the launch over `q`, `k`, `v` and the result, as the kernel takes them."""
    q, k, _, _ = arrays
    has_bias, has_mask, has_dropout, has_lse = has
    by_blocks = copies_blocks(q.device)
    tiles = featured_attention_configuration(q.shape[-1], q.dtype, by_blocks=by_blocks)
    heads = head_count(q)
    band = featured_band(q, lengths, window, tiles, by_blocks=by_blocks)
    rows = q.shape[-2]
    strides = (*(stride for array in arrays for stride in walk_of(array)), heads * rows, rows)
    return featured_launch(
        featured_attention,
        tuple(range(9)),
        (*sizes_of(q, k, lengths), band, *strides, *over[0], *over[1]),
        -(-lengths.queries // tiles.block_m) * heads * lengths.batches,
        {"PRECISION": precision_of(q.dtype, "tf32x3"), **head_tile_options(tiles)},
        (*window.sides, *map(int, (lengths.is_packed, has_bias, has_mask, has_dropout, has_lse))),
    )


def sizes_of(q: Geometry, k: Geometry, lengths: Lengths) -> tuple[int, ...]:
    """Return the sizes that all kernels with features begin with."""
    heads, shared = head_count(q), head_count(k)
    stored = 1 if lengths.is_packed else lengths.batches
    rows = (q.shape[-2], k.shape[-2], lengths.queries, lengths.keys)
    return (*rows, q.shape[-1], heads // shared, stored, lengths.batches, heads, shared)


def featured_band(
    q: Geometry, lengths: Lengths, window: Window, tiles: DotConfiguration, *, by_blocks: bool
) -> int:
    """Return how many heads to compute side by side, where programs are dealt out in turns."""
    if not by_blocks:
        return 1
    return band_of(
        (lengths.queries, lengths.keys),
        heads=head_count(q) * lengths.batches,
        head_bytes=2 * lengths.keys * q.shape[-1] * q.dtype.size_bytes,
        tile=(tiles.block_m, tiles.block_n),
        processors=processors(q.device),
        causal=window.sees_ever_more,
    )


def featured_launch(
    kernel: Kernel,
    operands: tuple[int, ...],
    integers: tuple[int, ...],
    programs: int,
    options: dict[str, int | str],
    flags: tuple[int, ...],
) -> PlannedLaunch:
    """Plan a launch of the fast form, which kernels with features have alone.

    Raises ArgumentError where sizes or strides need more than 31 bits, or programs do.
    """
    check_programs(kernel, programs)
    if not fits_fast(kernel, len(operands), integers):
        msg = (
            f"{kernel.name} takes sizes and strides of up to {INT31_MAX}, got {max(integers)}; "
            "split the heads or the batch"
        )
        raise ArgumentError(msg)
    pointers = tuple(Pointer(operand, 0, (), ()) for operand in operands)
    return PlannedLaunch(kernel, (programs, 1, 1), pointers, integers, options, flags=flags)
