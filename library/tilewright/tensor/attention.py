"""Attention of arrays of any shape and strides: check, broadcast the bias, choose, launch."""

from __future__ import annotations

import math

from tilewright.abi.dtypes import bfloat16, float16, float32
from tilewright.errors import ArgumentError
from tilewright.kernels.attention import attention as kernel
from tilewright.tensor.arrays import (
    GRID_HEIGHT,
    Array,
    Operand,
    as_array,
    as_number,
    batched,
    check_same_dtype,
    dtype_of,
    is_fast,
    output,
    strides_of,
)
from tilewright.tensor.configurations import ATTENTION_16, ATTENTION_32, attention_configuration
from tilewright.tensor.products import check_choice, precision_of
from tilewright.tensor.strides import Shape, broadcast_shape, broadcast_strides

PRECISIONS = ("tf32x3", "tf32")


def attention(
    q: object,
    k: object,
    v: object,
    *,
    bias: object | None = None,
    causal: bool = False,
    scale: float | None = None,
    input_precision: str = "tf32x3",
    lse: object | None = None,
    out: object | None = None,
) -> Array:
    """Return `softmax(scale * q k^T + bias) v` for each head: `[..., H, Q, D]`.

    `q` is `[..., H, Q, D]`, `k` and `v` are `[..., G, K, D]` with H a multiple of G: consecutive
    H / G heads of `q` share one of `k` and `v` (grouped-query attention). Leading axes are equal.
    `bias` broadcasts to `[..., H, Q, K]`; all have one dtype, f32, f16 or bf16, and any strides. D
    is at most 256, or 128 in f32, and `scale` is 1 / sqrt(D) unless given. With `causal` query i
    sees key j if `j - i <= K - Q`: the last query sees the last key. A query that sees no key gives
    0.
    `lse`, f32 `[..., H, Q]` with a contiguous last axis, receives the natural logarithm of the sum
    of exponentials, -inf where no key is seen. `input_precision` is what becomes of f32 operands,
    "tf32x3" or "tf32", see `tl.dot`. See `reference.attention`.
    """
    query, key, value = as_array(q, name="q"), as_array(k, name="k"), as_array(v, name="v")
    arrays = {"q": query, "k": key, "v": value}
    if bias is not None:
        arrays["bias"] = as_array(bias, name="bias")
    check_same_dtype(arrays)
    if dtype_of(query) not in (float32, float16, bfloat16):
        msg = f"q has dtype {dtype_of(query)}; attention takes f32, f16 and bf16"
        raise ArgumentError(msg)
    check_choice("input_precision", input_precision, PRECISIONS)
    *batch, heads, queries, dim = _check_shapes(query.shape, key.shape, value.shape)
    keys = key.shape[-2]
    widest = max(ATTENTION_32 if dtype_of(query) == float32 else ATTENTION_16)
    if dim > widest:
        msg = f"heads have {dim} elements; attention of {dtype_of(query)} takes up to {widest}"
        raise ArgumentError(msg)
    if heads > GRID_HEIGHT:
        msg = f"q has {heads} heads; attention takes up to {GRID_HEIGHT}"
        raise ArgumentError(msg)
    result = output(out, query.shape, query)
    sums = None if lse is None else output(lse, query.shape[:-1], query, float32, name="lse")
    if sums is not None and strides_of(sums)[-1] != 1 and queries > 1:
        msg = f"the last axis of lse must be contiguous, got strides {strides_of(sums)}"
        raise ArgumentError(msg)
    walks = [_walk(array, 2) for array in (query, key, value)]
    walks.append(_walk_bias(arrays.get("bias"), query, (*query.shape[:-1], keys)))
    walks.append(_walk(result, 2))
    if sums is None:  # never written, but of the dtype that every launch has
        walks.append(Operand(output(None, (1,), query, float32), (0,) * (len(batch) + 2)))
    else:
        walks.append(_walk(sums, 1))
    numbers = (queries, keys, dim, heads // max(key.shape[-3], 1) if len(key.shape) > 2 else 1)
    options = (
        1 / math.sqrt(max(dim, 1)) if scale is None else as_number(scale, name="scale"),
        int(bool(causal)),
        int(bias is not None),
        int(sums is not None),
    )
    if not math.prod(query.shape[:-1] if sums is not None else query.shape):
        return result
    on_batch = tuple(Operand(walk.array, walk.strides[: len(batch)]) for walk in walks)
    for pointers, space in batched(tuple(batch), on_batch, rank=1):
        strides = [
            stride
            for walk, outer in zip(walks, space.strides, strict=True)
            for stride in (*outer, *walk.strides[len(batch) :])
        ]
        integers = (*numbers, *strides[:-1])  # rows of the sums lie next to each other
        configuration = attention_configuration(
            dim, dtype_of(query), fast=is_fast(kernel, pointers, integers)
        )
        kernel[(-(-queries // configuration.block_m), heads, space.sizes[0])](
            *pointers,
            *integers,
            *options,
            PRECISION=precision_of(dtype_of(query), input_precision),
            BLOCK_M=configuration.block_m,
            BLOCK_N=configuration.block_n,
            BLOCK_D=configuration.block_k,
            num_warps=configuration.num_warps,
            num_stages=configuration.num_stages,
        )
    return result


def _check_shapes(q: Shape, k: Shape, v: Shape) -> Shape:
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


def _walk(array: Array, inner: int) -> Operand:
    """Walk an array over its own shape: `inner` axes after the heads, which may be missing."""
    strides = broadcast_strides(array.shape, strides_of(array), array.shape)
    return Operand(array, strides if len(strides) > inner else (0, *strides))


def _walk_bias(bias: Array | None, query: Array, scores: Shape) -> Operand:
    if bias is None:
        return Operand(query, (0,) * (max(len(scores), 3) - 1) + (1,))
    if broadcast_shape(bias.shape, scores) != scores:
        msg = f"bias has shape {bias.shape}, which does not broadcast to {scores}"
        raise ArgumentError(msg)
    strides = broadcast_strides(bias.shape, strides_of(bias), scores)
    return Operand(bias, strides if len(strides) > 2 else (0, *strides))
