"""Samples of attention with flags: all that may happen to scores, and sequences in a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tilewright.abi.dtypes import DType, bfloat16, float16, float32, int1
from tilewright.reference import attention as definition
from tilewright.tensor import configurations
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward
from tilewright_release.samples.sample import Array, Sample, aligned, always, operand

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_FORWARD = "tilewright.tensor.attention_features"
_BACKWARD = "tilewright.tensor.attention_features_backward"
_FLAGS = {"softcap": 3.0, "dropout": 0.25, "seed": 2**40 + 7, "offset": 3, "window": (50, 20)}
# The second has no queries, the third no keys.
_Q_STARTS, _K_STARTS = (0, 40, 40, 75, 80), (0, 30, 77, 77, 90)


def samples() -> Iterator[Sample]:
    """Yield a call for each bundled signature, with flags and with sequences in a row."""
    for dtype in (bfloat16, float16):
        for tiles in configurations.ATTENTION_FEATURED:
            for form, by_blocks in (("blocks", True), ("common", False)):
                yield from _forward(dtype, tiles.block_k, form, by_blocks=by_blocks)
                yield from _gradients(dtype, tiles.block_k, form, by_blocks=by_blocks)
    for tiles in configurations.ATTENTION_FEATURED_32:
        yield from _forward(float32, tiles.block_k, "common", by_blocks=False)


def _forward(dtype: DType, dim: int, form: str, *, by_blocks: bool) -> Iterator[Sample]:
    choices = {
        f"{_FORWARD}.copies_blocks": always(by_blocks),
        f"{_FORWARD}.processors": always(4),
    }
    for kind, reference in (("flags", _attended), ("packed", _attended_in_turn)):
        yield Sample(
            f"attention_features-{dtype}-{dim}-{form}-{kind}",
            "attention_features",
            attention,
            reference,
            partial(_operands, dtype, dim, kind),
            choices,
        )


def _gradients(dtype: DType, dim: int, form: str, *, by_blocks: bool) -> Iterator[Sample]:
    choices = {
        f"{_BACKWARD}.copies_blocks": always(by_blocks),
        f"{_FORWARD}.processors": always(4),
    }
    for kind, reference in (("flags", _added_up), ("packed", _added_up_in_turn)):
        yield Sample(
            f"attention_features_backward-{dtype}-{dim}-{form}-{kind}",
            "attention_features_backward",
            _all_gradients,
            reference,
            partial(_operands_of_gradients, dtype, dim, kind),
            choices,
        )


def _operands(dtype: DType, dim: int, kind: str) -> Arguments:
    """Return arguments of attention: two batches of four heads, or sequences in a row."""
    leading = () if kind == "packed" else (2,)
    rows = (80, 90) if kind == "packed" else (70, 90)
    q = operand((*leading, 4, rows[0], dim), dtype, seed=1)
    k, v = (operand((*leading, 2, rows[1], dim), dtype, seed=seed) for seed in (2, 3))
    if kind == "packed":
        starts = [np.array(starts, np.int32) for starts in (_Q_STARTS, _K_STARTS)]
        return (q, k, v), {"q_starts": starts[0], "k_starts": starts[1], "causal": True}
    mask = aligned(2 * 70 * 90, int1).reshape(2, 1, 70, 90)
    mask[...] = np.random.default_rng(4).random(mask.shape) < 0.8
    mask[1, 0, 5] = False
    return (q, k, v), {"bias": operand((4, 70, 90), dtype, seed=5), "mask": mask, **_FLAGS}


def _operands_of_gradients(dtype: DType, dim: int, kind: str) -> Arguments:
    (q, k, v), options = _operands(dtype, dim, kind)
    dy, y = operand(q.shape, dtype, seed=6), operand(q.shape, dtype)
    sums = operand(q.shape[:-1], float32)
    if kind == "flags":
        y[...], sums[...] = definition.attention(q, k, v, **options)
    else:
        for rows, keys in _in_turn():
            alone = (q[:, rows], k[:, keys], v[:, keys])
            y[:, rows], sums[:, rows] = definition.attention(*alone, causal=True)
    return (q, k, v, y, sums, dy), options


def _all_gradients(*arrays: Array, **options: Any) -> tuple[Any, ...]:
    """Return the gradients of `q`, `k` and `v`, and that of the bias if there is one."""
    if "bias" not in options:
        return attention_backward(*arrays, **options)
    dbias = np.empty_like(options["bias"])
    return (*attention_backward(*arrays, **options, dbias=dbias), dbias)


def _attended(*arrays: Array, **options: Any) -> Array:
    return definition.attention(*arrays, **options)[0]


def _attended_in_turn(q: Array, k: Array, v: Array, **_options: Any) -> Array:
    result = np.zeros_like(q)
    for rows, keys in _in_turn():
        alone = (q[:, rows], k[:, keys], v[:, keys])
        result[:, rows] = definition.attention(*alone, causal=True)[0]
    return result


def _added_up(
    q: Array, k: Array, v: Array, _y: Array, _lse: Array, dy: Array, **options: Any
) -> tuple[Array, ...]:
    gradients = definition.attention_backward(q, k, v, dy, **options)
    return (*gradients, definition.attention_bias_backward(q, k, v, dy, **options))


def _added_up_in_turn(
    q: Array, k: Array, v: Array, _y: Array, _lse: Array, dy: Array, **_options: Any
) -> tuple[Array, ...]:
    results = tuple(np.zeros_like(x) for x in (q, k, v))
    for rows, keys in _in_turn():
        alone = (q[:, rows], k[:, keys], v[:, keys], dy[:, rows])
        gradients = definition.attention_backward(*alone, causal=True)
        for result, part, gradient in zip(results, (rows, keys, keys), gradients, strict=True):
            result[:, part] = gradient
    return results


def _in_turn() -> Iterator[tuple[slice, slice]]:
    """Yield the rows of Q and those of K of each sequence."""
    for number in range(len(_Q_STARTS) - 1):
        rows, keys = (slice(*starts[number : number + 2]) for starts in (_Q_STARTS, _K_STARTS))
        yield rows, keys
