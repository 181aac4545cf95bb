"""The gradients of attention: check, copy what the kernels do not take, choose, launch.

The kernels have one form, by blocks of tensor descriptors: rows are aligned and have a multiple of
16 elements, and the leading axes are as one. Operands that lie otherwise, and heads of other
extents, are copied to such arrays first, padded with zeros, and results are copied back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import prod

from tilewright.abi.dtypes import bfloat16, float16, float32
from tilewright.errors import ArgumentError
from tilewright.kernels.attention_backward import key_gradients, query_gradients
from tilewright.language.kernel import Kernel
from tilewright.tensor.arrays import (
    Array,
    as_array,
    as_flag,
    as_number,
    dtype_of,
    new_array,
    output,
)
from tilewright.tensor.attention import check_heads
from tilewright.tensor.attention_backward_unordered import (
    Sizes,
    goes_by_key_blocks,
    key_block_launches,
    new_rows,
    new_sums,
)
from tilewright.tensor.attention_features import lengths_of, scores_shape
from tilewright.tensor.attention_features_backward import Operands, write_gradients
from tilewright.tensor.attention_launches import head_tile_options
from tilewright.tensor.attention_options import (
    as_features,
    as_mask,
    as_sequences,
    check_not_over_sequences,
    check_over_scores,
)
from tilewright.tensor.attention_rows import row_products_launch
from tilewright.tensor.attention_window import Window, as_window, check_lengths, window_of
from tilewright.tensor.configurations import (
    KEY_GRADIENTS,
    KEY_GRADIENTS_FEATURED,
    DotConfiguration,
    attention_backward_configurations,
)
from tilewright.tensor.geometry import (
    Arrays,
    Geometry,
    check_one_dtype,
    check_one_side,
    geometry_of,
)
from tilewright.tensor.head_arrays import (
    as_blocks,
    as_whole,
    hand_over,
    head_count,
    targets_of,
    walk_of,
)
from tilewright.tensor.head_order import band_of
from tilewright.tensor.launches import PlannedLaunch, Pointer, check_programs, is_empty, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import copies_blocks, processors

# Wider heads have the form with features alone.
_WIDEST, _MOST = KEY_GRADIENTS[-1].block_k, KEY_GRADIENTS_FEATURED[-1].block_k

# The operands by number.
_Q, _K, _V, _Y, _DY, _LSE, _DQ, _DK, _DV, _DELTAS = range(10)


def attention_backward(
    q: object,
    k: object,
    v: object,
    y: object,
    lse: object,
    dy: object,
    *,
    bias: object | None = None,
    mask: object | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softcap: float = 0.0,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    q_starts: object | None = None,
    k_starts: object | None = None,
    longest: tuple[int, int] | None = None,
    deterministic: bool = True,
    dq: object | None = None,
    dk: object | None = None,
    dv: object | None = None,
    dbias: object | None = None,
) -> tuple[Array, Array, Array]:
    """Return the gradients `dq`, `dk` and `dv` of `y = attention(q, k, v)`.

    `dy` is the gradient of `y`, and `lse` what attention wrote there; all options are what it was
    given. `lse` is f32, all others have one dtype, f16 or bf16; heads have up to 256 elements, and
    strides are any. `dbias`, like `bias`, receives the gradient of the bias, summed along the axes
    that it lacks. A query that sees no key has gradient 0 and adds nothing. The order of all sums
    is fixed: equal inputs give equal bits. With `deterministic=False` that of `dq` need not be,
    which is faster on Hopper for heads of up to 128 elements without features or a window. `dq`,
    `dk` and `dv` take the results if given; rows of no sequence are left alone there, and 0 in new
    arrays. See `reference.attention.attention_backward`.
    """
    sides, is_causal = as_window(window), as_flag(causal, name="causal")
    is_ordered = as_flag(deterministic, name="deterministic")
    factor = None if scale is None else as_number(scale, name="scale")
    given = _checked(q=q, k=k, v=v, y=y, dy=dy, lse=lse)
    query, key, value = given[:3]
    features = as_features(softcap, dropout, seed, offset)
    sequences = as_sequences(q_starts, k_starts, longest, query, key)
    added = None if bias is None else _checked_bias(bias, query, key)
    shown = as_mask(mask, scores_shape(query, key))
    check_not_over_sequences(sequences, added, shown)
    # Of rows of no sequence, which no kernel writes, the gradient is 0.
    zeroed = sequences is not None
    results = (
        output(dq, query.shape, query, name="dq", zeroed=zeroed),
        output(dk, key.shape, key, name="dk", zeroed=zeroed),
        output(dv, value.shape, value, name="dv", zeroed=zeroed),
    )
    of_bias = _bias_result(dbias, added)
    lengths = lengths_of(query, key, sequences)
    if is_empty(query.shape) or is_empty(key.shape) or not lengths.batches:
        for result in results if of_bias is None else (*results, of_bias):
            copy_elements(new_array(result.shape, dtype_of(result), result, zeroed=True), result)
        return results
    number = 1 / math.sqrt(query.shape[-1]) if factor is None else factor
    seen = window_of(sides, causal=is_causal, queries=lengths.queries, keys=lengths.keys)
    is_plain = features.is_plain and added is None and shown is None and sequences is None
    if is_plain and query.shape[-1] <= _WIDEST:
        operands = [*map(as_blocks, given[:_LSE]), as_whole(given[_LSE])]
        targets = targets_of(results, operands)
        _launch([*operands, *targets], number, seen, adds=not is_ordered)
        hand_over(targets, results)
    else:
        all_given = Operands(
            query, key, value, given[_Y], given[_DY], given[_LSE], added, shown, sequences
        )
        write_gradients(all_given, results, of_bias, window=seen, features=features, scale=number)
    return results


def _checked(**arrays: object) -> list[Array]:
    """Return the operands as arrays; raises ArgumentError where they do not fit each other."""
    given = [as_array(array, name=name) for name, array in arrays.items()]
    _check(*map(geometry_of, given))
    return given


def _checked_bias(bias: object, q: Array, k: Array) -> Array:
    array = as_array(bias, name="bias")
    check_one_dtype({"q": geometry_of(q), "bias": geometry_of(array)})
    check_over_scores(array, scores_shape(q, k), name="bias")
    return array


def _bias_result(dbias: object | None, bias: Array | None) -> Array | None:
    """Return what takes the gradient of the bias; raises ArgumentError if there is none."""
    if dbias is None:
        return None
    if bias is None:
        msg = "dbias is given without the bias whose gradient it takes"
        raise ArgumentError(msg)
    return output(dbias, bias.shape, bias, name="dbias")


@planned
def _check(q: Geometry, k: Geometry, v: Geometry, y: Geometry, dy: Geometry, lse: Geometry) -> None:
    check_one_dtype({"q": q, "k": k, "v": v, "y": y, "dy": dy})
    check_one_side({"q": q, "lse": lse})
    if q.dtype not in (float16, bfloat16):
        msg = f"q has dtype {q.dtype}; attention_backward takes f16 and bf16"
        raise ArgumentError(msg)
    if lse.dtype != float32:
        msg = f"lse has dtype {lse.dtype}; attention writes it as f32"
        raise ArgumentError(msg)
    check_heads(q.shape, k.shape, v.shape)
    for name, array, shape in (
        ("y", y, q.shape), ("dy", dy, q.shape), ("lse", lse, q.shape[:-1])
    ):  # fmt: skip
        if array.shape != shape:
            msg = f"{name} has shape {array.shape}; of q of shape {q.shape} it has {shape}"
            raise ArgumentError(msg)
    check_lengths(q.shape[-2], k.shape[-2])
    if q.shape[-1] > _MOST:
        msg = f"heads have {q.shape[-1]} elements; attention_backward takes up to {_MOST}"
        raise ArgumentError(msg)


def _launch(arrays: list[Array], scale: float, window: Window, *, adds: bool) -> None:
    geometries = tuple(map(geometry_of, arrays))
    q = arrays[_Q]
    walked: Arrays = [*arrays]
    if goes_by_key_blocks(geometries[_Q].device, window):
        sizes = Sizes.of(geometries[_Q], geometries[_K])
        walked += [new_rows(q, sizes), *([new_sums(q, sizes)] if adds else [])]
    else:
        walked.append(new_array(q.shape[:-1], float32, q))
    for launch in _plan(geometries, window, adds=adds):
        launch.run(walked, (scale,))


@planned
def _plan(arrays: tuple[Geometry, ...], window: Window, *, adds: bool) -> tuple[PlannedLaunch, ...]:
    """Plan the launches over arrays that the kernels take: products, then keys, then queries."""
    return tuple(_launches(arrays, window, adds=adds))


def _launches(
    arrays: tuple[Geometry, ...], window: Window, *, adds: bool
) -> Iterator[PlannedLaunch]:
    q, k = arrays[_Q], arrays[_K]
    if goes_by_key_blocks(q.device, window):
        walks = [() if operand == _LSE else walk_of(array) for operand, array in enumerate(arrays)]
        causal = window.is_right_limited
        yield from key_block_launches(q, k, walks, causal=causal, adds=adds)
        if adds:
            return
    else:
        yield row_products_launch(arrays[_Y], arrays[_DY], operands=(_Y, _DY, _DELTAS))
        yield _of_keys(arrays, window)
    yield _of_queries(arrays, window)


def _of_keys(arrays: tuple[Geometry, ...], window: Window) -> PlannedLaunch:
    """Plan the gradients of K and V."""
    q, k = arrays[_Q], arrays[_K]
    queries, keys, dim, group, batches, shared_heads = sizes = _sizes_of(q, k)
    by_blocks = copies_blocks(q.device)
    tiles, _ = attention_backward_configurations(dim, by_blocks=by_blocks)
    band = 1
    if by_blocks:  # else programs are not dealt out in turns
        # Seen from the keys, what the last query sees is what the first key is seen by.
        band = band_of(
            (keys, queries),
            heads=shared_heads * batches,
            head_bytes=group * queries * 2 * dim * q.dtype.size_bytes,
            tile=(tiles.block_n, tiles.block_m),
            processors=processors(q.device),
            causal=window.sees_ever_more,
        )
    programs = -(-keys // tiles.block_n) * shared_heads * batches
    operands = (_Q, _K, _V, _DY, _DK, _DV, _LSE, _DELTAS)
    return _planned(
        key_gradients, operands,
        arrays=arrays, sizes=(*sizes, band), programs=programs, tiles=tiles, window=window,
    )  # fmt: skip


def _of_queries(arrays: tuple[Geometry, ...], window: Window) -> PlannedLaunch:
    """Plan the gradient of Q."""
    q, k = arrays[_Q], arrays[_K]
    queries, keys, dim, group, batches, shared_heads = sizes = _sizes_of(q, k)
    heads = group * shared_heads
    by_blocks = copies_blocks(q.device)
    _, tiles = attention_backward_configurations(dim, by_blocks=by_blocks)
    band = 1
    if by_blocks:
        band = band_of(
            (queries, keys),
            heads=heads * batches,
            head_bytes=keys * 2 * dim * q.dtype.size_bytes,
            tile=(tiles.block_m, tiles.block_n),
            processors=processors(q.device),
            causal=window.sees_ever_more,
        )
    programs = -(-queries // tiles.block_m) * heads * batches
    operands = (_Q, _K, _V, _DY, _DQ, _LSE, _DELTAS)
    return _planned(
        query_gradients, operands,
        arrays=arrays, sizes=(*sizes, band), programs=programs, tiles=tiles, window=window,
    )  # fmt: skip


def _sizes_of(q: Geometry, k: Geometry) -> tuple[int, int, int, int, int, int]:
    """Return the sizes that both kernels begin with."""
    (queries, dim), keys, shared_heads = q.shape[-2:], k.shape[-2], head_count(k)
    return queries, keys, dim, head_count(q) // shared_heads, prod(q.shape[:-3]), shared_heads


def _planned(
    kernel: Kernel,
    operands: tuple[int, ...],
    *,
    arrays: tuple[Geometry, ...],
    sizes: tuple[int, ...],
    programs: int,
    tiles: DotConfiguration,
    window: Window,
) -> PlannedLaunch:
    check_programs(kernel, programs)
    pointers = tuple(Pointer(operand, 0, (), ()) for operand in operands)
    walked = (operand for operand in operands if operand not in (_LSE, _DELTAS))
    strides = (stride for operand in walked for stride in walk_of(arrays[operand]))
    options = head_tile_options(tiles)
    return PlannedLaunch(
        kernel, (programs, 1, 1), pointers, (*sizes, *strides), options, flags=window.sides
    )
