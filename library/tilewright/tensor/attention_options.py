"""What else may happen to the scores and weights of an attention, as callers say it."""

from __future__ import annotations

from tilewright.abi.dtypes import int1, int32
from tilewright.abi.signature import DIVISOR
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.geometry import row_major
from tilewright.tensor.arrays import (
    Array,
    as_array,
    as_integer,
    as_number,
    dtype_of,
    new_array,
    strides_of,
)
from tilewright.tensor.axes import viewed
from tilewright.tensor.geometry import Geometry, check_one_side, geometry_of
from tilewright.tensor.head_arrays import as_whole
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.random import as_offset, as_seed, number_parts
from tilewright.tensor.strides import (
    Shape,
    Strides,
    broadcast_strides,
    collapsed,
)

_HALF_WORD = 2**31
# As u32 it is above every half of a word.
_ALL = -1
# Along batch, heads and rows, the strides over the scores of what is absent.
NOTHING: Strides = (0, 0, 0)
# Kernels take the cap as f32.
_LEAST_CAP, _MOST_CAP = 2.0**-126, 2.0**127


@dataclass(frozen=True, slots=True)
class Features:
    """A cap of scores, none if 0, and dropout of weights with a probability, from a counter on."""

    softcap: float
    dropout: float
    seed: int
    offset: int

    @property
    def is_plain(self) -> bool:
        """Return whether nothing happens."""
        return not self.softcap and not self.dropout

    def scalars(self, scale: float) -> tuple[float | int, ...]:
        """Return what kernels take: of integers of 64 bits the parts."""
        p = self.dropout
        threshold = _ALL if p == 1 else min(round(p * _HALF_WORD), _HALF_WORD - 1)
        kept_scale = 0.0 if p == 1 else 1 / (1 - p)
        seed, offset = number_parts(self.seed), number_parts(self.offset)
        return (scale, self.softcap, *seed, *offset, threshold, kept_scale)


def as_features(softcap: object, dropout: object, seed: object, offset: object) -> Features:
    """Return the features asked for; raises ArgumentValueError for what is out of range."""
    cap, p = as_number(softcap, name="softcap"), as_number(dropout, name="dropout")
    if not (cap == 0 or _LEAST_CAP <= cap <= _MOST_CAP):
        msg = f"softcap is {cap}; a positive number of f32 is needed, or 0 for no cap"
        raise ArgumentValueError(msg)
    if not 0 <= p <= 1:
        msg = f"dropout is {p}; a probability lies in [0, 1]"
        raise ArgumentValueError(msg)
    return Features(cap, p, as_seed(seed), as_offset(offset))


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences that lie in a row: where each begins, and the last ends, in i32; the longest."""

    q_starts: Array
    k_starts: Array
    longest_q: int
    longest_k: int

    @property
    def count(self) -> int:
        """How many sequences there are."""
        return self.q_starts.shape[0] - 1


def as_sequences(
    q_starts: object, k_starts: object, longest: object, q: Array, k: Array
) -> Sequences | None:
    """Return the sequences of `q` and `k`; None if no starts are given.

    Raises ArgumentError where only one of the starts is given, or they are not as many, not i32,
    not where `q` is, or `q` has axes before its heads, ArgumentValueError for a negative `longest`.
    """
    if q_starts is None and k_starts is None:
        if longest is not None:
            msg = f"longest is {longest!r} without q_starts and k_starts, which say what it is of"
            raise ArgumentError(msg)
        return None
    if q_starts is None or k_starts is None:
        msg = "q_starts and k_starts belong together: give both, or neither"
        raise ArgumentError(msg)
    starts = as_array(q_starts, name="q_starts"), as_array(k_starts, name="k_starts")
    for name, array in zip(("q_starts", "k_starts"), starts, strict=True):
        if len(array.shape) != 1 or not array.shape[0] or dtype_of(array) != int32:
            msg = (
                f"{name} has shape {array.shape} and dtype {dtype_of(array)}; wanted is i32 [N + 1]"
            )
            raise ArgumentError(msg)
    if starts[0].shape != starts[1].shape:
        msg = (
            f"q_starts has shape {starts[0].shape}, k_starts {starts[1].shape}; both need one "
            "start a sequence, and the end"
        )
        raise ArgumentError(msg)
    given = {"q": q, "q_starts": starts[0], "k_starts": starts[1]}
    check_one_side({name: geometry_of(array) for name, array in given.items()})
    if len(q.shape) > 3:
        msg = f"q has shape {q.shape}; sequences in a row are [H, rows, D], without other axes"
        raise ArgumentError(msg)
    bounds = (q.shape[-2], k.shape[-2])
    if longest is not None:
        if not isinstance(longest, tuple | list) or len(longest) != 2:
            msg = f"longest is {longest!r}; a pair is needed, the most queries and the most keys"
            raise ArgumentError(msg)
        most = [as_integer(each, name="longest") for each in longest]
        if min(most) < 0:
            msg = f"longest is {tuple(most)}; lengths are wanted, of the longest sequences"
            raise ArgumentValueError(msg)
        bounds = (min(most[0], bounds[0]), min(most[1], bounds[1]))
    return Sequences(as_whole(starts[0]), as_whole(starts[1]), *bounds)


def as_mask(mask: object | None, scores: Shape) -> Array | None:
    """Return what is true where a key is seen.

    Raises ArgumentError unless it is of bools and broadcasts to the scores.
    """
    if mask is None:
        return None
    array = as_array(mask, name="mask")
    if dtype_of(array) != int1:
        msg = f"mask has dtype {dtype_of(array)}; bools are needed, true where a key is seen"
        raise ArgumentError(msg)
    check_over_scores(array, scores, name="mask")
    return array


def check_not_over_sequences(
    sequences: Sequences | None, bias: Array | None, mask: Array | None
) -> None:
    """Raise ArgumentError for a bias or a mask over sequences in a row."""
    if sequences is not None and (bias is not None or mask is not None):
        name = "mask" if bias is None else "bias"
        msg = (
            f"{name} is given with q_starts and k_starts: sequences in a row take neither bias nor "
            "mask; window and causal count from the end of each"
        )
        raise ArgumentError(msg)


def check_over_scores(array: Array | Geometry, scores: Shape, *, name: str) -> None:
    """Raise ArgumentError for what does not broadcast to the scores `[..., H, Q, K]`."""
    pairs = zip(reversed(array.shape), reversed(scores), strict=False)
    if len(array.shape) > len(scores) or any(extent not in (1, wide) for extent, wide in pairs):
        msg = (
            f"{name} has shape {array.shape}; it must broadcast to the scores [..., H, Q, K], "
            f"{scores}"
        )
        raise ArgumentError(msg)


def over_scores(array: Array, scores: Shape) -> tuple[Array, Strides]:
    """Return an array that broadcasts to the scores, and its strides along batch, heads and rows.

    Scores are `[..., H, Q, K]`. Kernels take keys one behind the other, up to a multiple of 16 of
    them, rows and heads that are multiples of 16 elements apart, and leading axes that are as one:
    what lies otherwise is copied.
    """
    geometry = geometry_of(array)
    # Rows are read on to a multiple of 16, which only those of a copy have for certain.
    if geometry.is_aligned and scores[-1] % DIVISOR == 0:
        strides = _walk(geometry.shape, geometry.strides, scores)
        if strides is not None:
            return array, strides
    # Most are copied as they are broadcast; where leading axes are not as one, all of them.
    for shape in ((*array.shape[:-1], scores[-1]), scores):
        pitch = max(-(-shape[-1] // DIVISOR), 1) * DIVISOR
        strides = _walk(shape, row_major((*shape[:-1], pitch)), scores)
        if strides is not None:
            break
    assert strides is not None  # that of all scores fits
    whole = new_array((*shape[:-1], pitch), dtype_of(array), array)
    source = viewed(array, shape, broadcast_strides(geometry.shape, geometry.strides, shape))
    copy_elements(source, viewed(whole, shape, strides_of(whole)))
    return whole, strides


def _walk(shape: Shape, strides: Strides, scores: Shape) -> Strides | None:
    walk = broadcast_strides(shape, strides, scores)
    if (walk[-1] != 1 and scores[-1] > 1) or any(stride % DIVISOR for stride in walk[:-1]):
        return None
    space = collapsed(scores[:-3], (walk[:-3],), rank=1, keep_last=False)
    return None if space is None else (space.strides[0][0], *walk[-3:-1])
