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
from tilewright.kernels.attention_backward import key_gradients, query_gradients, row_products
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
from tilewright.tensor.attention_features_backward import Operands, add_up
from tilewright.tensor.attention_launches import head_tile_options
from tilewright.tensor.attention_options import (
    as_features,
    as_mask,
    as_sequences,
    check_not_over_sequences,
    check_over_scores,
)
from tilewright.tensor.attention_window import Window, as_window, check_lengths, window_of
from tilewright.tensor.configurations import (
    KEY_GRADIENTS,
    KEY_GRADIENTS_FEATURED,
    attention_backward_configurations,
    row_products_configuration,
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
from tilewright.tensor.launches import PlannedLaunch, Pointer, is_empty, planned
from tilewright.tensor.movement import copy_elements
from tilewright.tensor.products import copies_blocks, processors

_MOST_PROGRAMS = 2**31 - 1
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
    names = ("q", "k", "v", "y", "dy", "lse")
    given = [
        as_array(array, name=name) for array, name in zip((q, k, v, y, dy, lse), names, strict=True)
    ]
    sides, is_causal = as_window(window), as_flag(causal, name="causal")
    is_ordered = as_flag(deterministic, name="deterministic")
    factor = None if scale is None else as_number(scale, name="scale")
    _check(*map(geometry_of, given))
    query, key, value = given[:3]
    features = as_features(softcap, dropout, seed, offset)
    sequences = as_sequences(q_starts, k_starts, longest, query, key)
    added = None if bias is None else _checked_bias(bias, query, key)
    shown = as_mask(mask, scores_shape(query, key))
    check_not_over_sequences(sequences, added, shown)
    if dbias is not None and added is None:
        msg = "dbias is given without the bias whose gradient it takes"
        raise ArgumentError(msg)
    results = [
        # Of rows of no sequence, which no kernel writes, the gradient is 0.
        output(out, like.shape, like, name=name, zeroed=sequences is not None)
        for out, like, name in ((dq, query, "dq"), (dk, key, "dk"), (dv, value, "dv"))
    ]
    of_bias = (
        None if dbias is None or added is None else output(dbias, added.shape, added, name="dbias")
    )
    lengths = lengths_of(query, key, sequences)
    if is_empty(query.shape) or is_empty(key.shape) or not lengths.batches:
        for result in (*results, *([] if of_bias is None else [of_bias])):
            copy_elements(new_array(result.shape, dtype_of(result), result, zeroed=True), result)
        return results[0], results[1], results[2]
    number = 1 / math.sqrt(query.shape[-1]) if factor is None else factor
    seen = window_of(sides, causal=is_causal, queries=lengths.queries, keys=lengths.keys)
    is_plain = features.is_plain and added is None and shown is None and sequences is None
    if not is_plain or query.shape[-1] > _WIDEST:
        add_up(
            Operands(
                query, key, value, given[_Y], given[_DY], given[_LSE], added, shown, sequences
            ),
            (results[0], results[1], results[2]),
            of_bias,
            window=seen, features=features, scale=number,
        )  # fmt: skip
        return results[0], results[1], results[2]
    operands = [as_blocks(array) for array in given[:_LSE]]
    sums = as_whole(given[_LSE])
    targets = targets_of(results, (*operands, sums))
    _launch([*operands, sums, *targets], number, seen, adds=not is_ordered)
    hand_over(targets, results)
    return results[0], results[1], results[2]


def _checked_bias(bias: object, q: Array, k: Array) -> Array:
    array = as_array(bias, name="bias")
    check_one_dtype({"q": geometry_of(q), "bias": geometry_of(array)})
    check_over_scores(array, scores_shape(q, k), name="bias")
    return array


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
    queries, dim = q.shape[-2:]
    keys = k.shape[-2]
    batches = prod(q.shape[:-3])
    heads, shared_heads = head_count(q), head_count(k)
    group = heads // shared_heads

    def planned_launch(
        kernel: Kernel, operands: tuple[int, ...], sizes: tuple[int, ...], programs: int,
        options: dict[str, int], flags: tuple[int, ...] = (),
    ) -> PlannedLaunch:  # fmt: skip
        if programs > _MOST_PROGRAMS:
            msg = f"attention_backward needs {programs} programs; a grid has {_MOST_PROGRAMS}"
            raise ArgumentError(msg)
        pointers = tuple(Pointer(operand, 0, (), ()) for operand in operands)
        walked = (operand for operand in operands if operand not in (_LSE, _DELTAS))
        strides = (stride for operand in walked for stride in walk_of(arrays[operand]))
        integers = (*sizes, *strides)
        return PlannedLaunch(kernel, (programs, 1, 1), pointers, integers, options, flags=flags)

    has_keys = goes_by_key_blocks(q.device, window)
    if has_keys:
        walks = [() if operand == _LSE else walk_of(array) for operand, array in enumerate(arrays)]
        causal = window.is_right_limited
        yield from key_block_launches(q, k, walks, causal=causal, adds=adds)
        if adds:
            return
    else:
        rows = row_products_configuration(dim)
        yield planned_launch(
            row_products,
            (_Y, _DY, _DELTAS),
            (queries, dim, heads, batches),
            -(-queries // rows.block_m) * heads * batches,
            {"BLOCK_M": rows.block_m, "BLOCK_D": rows.block_n, "num_warps": rows.num_warps},
        )
    by_blocks = copies_blocks(q.device)
    of_keys, of_queries = attention_backward_configurations(dim, by_blocks=by_blocks)

    def band(lengths: tuple[int, int], count: int, head_bytes: int, tile: tuple[int, int]) -> int:
        """Return how many heads to compute side by side: programs are dealt out in turns."""
        if not by_blocks:
            return 1
        return band_of(
            lengths,
            heads=count * batches,
            head_bytes=head_bytes,
            tile=tile,
            processors=processors(q.device),
            causal=window.sees_ever_more,
        )

    row_bytes = 2 * dim * q.dtype.size_bytes
    sizes = (queries, keys, dim, group, batches, shared_heads)
    if not has_keys:
        # Seen from the keys, what the last query sees is what the first key is seen by.
        tile = (of_keys.block_n, of_keys.block_m)
        side = band((keys, queries), shared_heads, group * queries * row_bytes, tile)
        yield planned_launch(
            key_gradients,
            (_Q, _K, _V, _DY, _DK, _DV, _LSE, _DELTAS),
            (*sizes, side),
            -(-keys // of_keys.block_n) * shared_heads * batches,
            head_tile_options(of_keys),
            window.sides,
        )
    tile = (of_queries.block_m, of_queries.block_n)
    side = band((queries, keys), heads, keys * row_bytes, tile)
    yield planned_launch(
        query_gradients,
        (_Q, _K, _V, _DY, _DQ, _LSE, _DELTAS),
        (*sizes, side),
        -(-queries // of_queries.block_m) * heads * batches,
        head_tile_options(of_queries),
        window.sides,
    )
