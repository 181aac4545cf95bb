"""Attention of arrays of any shape and strides: check, broadcast the bias, choose, launch.

All of this depends on geometries alone and is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tilewright.abi.dtypes import bfloat16, float16, float32
from tilewright.errors import ArgumentError
from tilewright.lazy_dataclass import dataclass
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    as_flag,
    as_number,
    new_array,
    stand_in,
)
from tilewright.tensor.attention_features import attend, scores_shape
from tilewright.tensor.attention_launches import BIAS, LSE, OUT, Attention, Heads, K, Q, V, launches
from tilewright.tensor.attention_options import (
    as_features,
    as_mask,
    as_sequences,
    check_not_over_sequences,
    check_over_scores,
)
from tilewright.tensor.attention_window import as_window, check_lengths, window_of
from tilewright.tensor.axes import must_be_apart
from tilewright.tensor.configurations import ATTENTION_16, ATTENTION_32
from tilewright.tensor.geometry import (
    Geometry,
    check_given,
    check_one_dtype,
    operands,
    result_geometry,
    result_of,
)
from tilewright.tensor.head_arrays import head_count
from tilewright.tensor.launches import PlannedLaunch, is_empty, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import check_choice, precision_of
from tilewright.tensor.strides import Shape, broadcast_strides

PRECISIONS = ("tf32x3", "tf32")
_NONE = 0.0
_FIRST = 0
# Of the form by blocks: what is hidden there is -inf times the scale, which is NaN of 0.
_LEAST_SCALE = 1e-30


def attention(
    q: object,
    k: object,
    v: object,
    *,
    bias: object | None = None,
    mask: object | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = _NONE,
    scale: float | None = None,
    dropout: float = _NONE,
    seed: int = _FIRST,
    offset: int = _FIRST,
    q_starts: object | None = None,
    k_starts: object | None = None,
    longest: tuple[int, int] | None = None,
    input_precision: str = "tf32x3",
    lse: object | None = None,
    out: object | None = None,
) -> Array:
    """Return `softmax(scale * q k^T + bias) v` for each head: `[..., H, Q, D]`.

    `q` is `[..., H, Q, D]`, `k` and `v` are `[..., G, K, D]` with H a multiple of G: consecutive
    H / G heads of `q` share one of `k` and `v` (grouped-query attention). Leading axes are equal.
    `bias` broadcasts to `[..., H, Q, K]`; all have one dtype, f32, f16 or bf16, and any strides. D
    is at most 256, or 128 in f32, and `scale` is 1 / sqrt(D) unless given.

    Query i sees all keys unless told otherwise: with `causal` key j if `j - i <= K - Q`, so that
    the last query sees the last key, whatever the lengths; with `window=(left, right)` those of
    `-left <= j - i - (K - Q) <= right`, where None is no limit; with `mask`, bools that broadcast
    to `[..., H, Q, K]`, those where it is true. A query that sees no key gives 0.

    With `softcap` scores become `softcap * tanh(score / softcap)` before the bias is added, to
    within some `softcap * 2**-23`: caps are for tens, not for millions. With `dropout` each weight
    is dropped with that probability, the others grow by `1 / (1 - dropout)`; which ones is a
    function of `seed`, `offset` and a weight's place alone, see
    `reference.attention_features.kept`, and nothing needs to be saved for the gradients.

    With `q_starts` and `k_starts`, i32 `[N + 1]`, N sequences of any lengths lie in a row, `[H,
    rows, D]`: query rows `q_starts[n]` to `q_starts[n + 1]` see the key rows of the same n, and
    `causal` and `window` count from the end of each. Starts must ascend and end within the rows,
    which nothing checks on a GPU, where only kernels see them. `longest`, of queries and of keys,
    saves looking for more than there are; rows of a sequence beyond it are not computed. They, and
    rows of no sequence, are left alone in `out` and `lse`. Rows of other sequences are read, with
    weight 0: they must be finite. Bias and mask do not go with it.

    `lse`, f32 `[..., H, Q]` with a contiguous last axis, receives the natural logarithm of the sum
    of exponentials, -inf where no key is seen. `input_precision` is what becomes of f32 operands,
    "tf32x3" or "tf32", see `tl.dot`; with a mask, a cap, dropout or starts it is always the first.
    See `reference.attention`.
    """
    if type(input_precision) is not str or input_precision != "tf32x3":
        check_choice("input_precision", input_precision, PRECISIONS)
    factor = None if scale is None else as_number(scale, name="scale")
    arrays, geometries = operands(q=q, k=k, v=v, bias=bias, out=out, lse=lse)
    fits_blocks = factor is None or factor >= _LEAST_SCALE
    sides, is_causal = as_window(window), as_flag(causal, name="causal")
    plan = _plan(geometries, sides, is_causal, fits_blocks, input_precision)
    result = result_of(arrays, OUT, plan.result)
    # Constants of the signature, as in most calls; whatever else is looked at more closely.
    is_plain = softcap is dropout is _NONE and seed is offset is _FIRST
    if not is_plain or not (mask is q_starts is k_starts is longest is None):
        features = as_features(softcap, dropout, seed, offset)
        query, key, value, added, _, logarithms = arrays
        assert query is not None and key is not None and value is not None  # noqa: PT018
        sequences = as_sequences(q_starts, k_starts, longest, query, key)
        shown = as_mask(mask, scores_shape(query, key))
        check_not_over_sequences(sequences, added, shown)
        if not features.is_plain or shown is not None or sequences is not None:
            if not plan.is_empty:
                attend(
                    query, key, value, result,
                    lse=logarithms, bias=added, mask=shown, sequences=sequences, sides=sides,
                    causal=is_causal, features=features,
                    scale=plan.scale if factor is None else factor,
                )  # fmt: skip
            return result
    if out is not None and must_be_apart(arrays, OUT, 0):
        apart = attention(
            q, k, v,
            bias=bias, causal=causal, window=window, scale=scale,
            input_precision=input_precision, lse=lse,
        )  # fmt: skip
        copy_elements(apart, result)
        return result
    logarithms = arrays[LSE]
    if logarithms is not None and must_be_apart(arrays, LSE, 0):
        apart = new_array(logarithms.shape, float32, logarithms)
        attention(
            q, k, v,
            bias=bias, causal=causal, window=window, scale=scale,
            input_precision=input_precision, lse=apart, out=result,
        )  # fmt: skip
        copy_elements(apart, logarithms)
        return result
    if lse is None and plan.launches:  # never written, but of the dtype that every launch has
        arrays[LSE] = stand_in(result, float32)
    for launch in plan.launches:
        launch.run(arrays, (plan.scale if factor is None else factor,))
    return result


@dataclass(frozen=True, slots=True)
class _Plan:
    """The launches of an attention, the geometry of its result, and the scale unless given."""

    launches: tuple[PlannedLaunch, ...]
    result: Geometry
    scale: float
    is_empty: bool


@planned
def _plan(
    geometries: tuple[Any, ...],
    sides: tuple[int | None, int | None],
    causal: bool,
    fits_blocks: bool,
    input_precision: str,
) -> _Plan:
    """Check an attention and plan its launches."""
    q: Geometry
    k: Geometry
    v: Geometry
    bias: Geometry | None
    out: Geometry | None
    lse: Geometry | None
    q, k, v, bias, out, lse = geometries
    check_given(q=q, k=k, v=v)
    arrays = {"q": q, "k": k, "v": v} | ({} if bias is None else {"bias": bias})
    check_one_dtype(arrays)
    if q.dtype not in (float32, float16, bfloat16):
        msg = f"q has dtype {q.dtype}; attention takes f32, f16 and bf16"
        raise ArgumentError(msg)
    *batch, heads, queries, dim = check_heads(q.shape, k.shape, v.shape)
    keys = k.shape[-2]
    check_lengths(queries, keys)
    widest = max(ATTENTION_32 if q.dtype == float32 else ATTENTION_16)
    if dim > widest:
        msg = f"heads have {dim} elements; attention of {q.dtype} takes up to {widest}"
        raise ArgumentError(msg)
    if heads > GRID_HEIGHT:
        msg = f"q has {heads} heads; attention takes up to {GRID_HEIGHT}"
        raise ArgumentError(msg)
    result = result_geometry(out, q.shape, q.dtype, q)
    if lse is not None:
        result_geometry(lse, q.shape[:-1], float32, q, name="lse")
        if lse.strides[-1] != 1 and queries > 1 and not is_empty(lse.shape):
            msg = f"the last axis of lse must be contiguous, got strides {lse.strides}"
            raise ArgumentError(msg)
    problem = Attention(
        batch=tuple(batch),
        sizes=(queries, keys, dim),
        heads=heads,
        shared_heads=head_count(k),
        q=_walk(Q, q, 2),
        k=_walk(K, k, 2),
        v=_walk(V, v, 2),
        bias=None if bias is None else _walk_bias(bias, (*batch, heads, queries, keys)),
        out=_walk(OUT, result, 2),
        lse=None if lse is None else _walk(LSE, lse, 1),
        window=window_of(sides, causal=causal, queries=queries, keys=keys),
        fits_blocks=fits_blocks,
        precision=precision_of(q.dtype, input_precision),
    )
    nothing = is_empty(q.shape[:-1] if lse is not None else q.shape)
    todo: Iterator[PlannedLaunch] = iter(()) if nothing else launches(problem)
    scale = 1 / math.sqrt(max(dim, 1))
    return _Plan(tuple(todo), result, scale, nothing)


def check_heads(q: Shape, k: Shape, v: Shape) -> Shape:
    """Return `[..., H, Q, D]`, with an axis of one head if `q` has none."""
    fits = len(q) == len(k) > 1 and k == v and (q[:-3], q[-1]) == (k[:-3], k[-1])
    if fits and len(q) > 2:
        fits = q[-3] % k[-3] == 0 if k[-3] else q[-3] == 0
    if not fits:
        msg = (
            f"q has shape {q}, k {k} and v {v}; wanted are [..., H, Q, D] and twice [..., G, K, D] "
            "with H a multiple of G"
        )
        raise ArgumentError(msg)
    return q if len(q) > 2 else (1, *q)


def _walk(number: int, array: Geometry, inner: int) -> Heads:
    """Walk an array over its own shape: `inner` axes after the heads, which may be missing."""
    strides = broadcast_strides(array.shape, array.strides, array.shape)
    return Heads(number, array, strides if len(strides) > inner else (0, *strides))


def _walk_bias(bias: Geometry, scores: Shape) -> Heads:
    check_over_scores(bias, scores, name="bias")
    return Heads(BIAS, bias, broadcast_strides(bias.shape, bias.strides, scores))
