"""Attention with features on either side, and what it must give: the definition in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.sides import DTYPES, ROUNDOFF, HostArray, poisoned, random, to_device
from tilewright.reference import attention as definition
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward

_ARRAYS = ("bias", "mask", "q_starts", "k_starts")


def operands(shape: tuple[int, ...], dtype: str) -> list[HostArray]:
    """Return q, k, v and dy for batch, heads, heads of K and V, queries, keys, elements."""
    batch, heads, shared, queries, keys, dim = shape
    extents = ((heads, queries), (shared, keys), (shared, keys), (heads, queries))
    return [
        random((batch, *extent, dim), DTYPES[dtype], seed=seed)
        for seed, extent in enumerate(extents)
    ]


def attended(
    side: str, q: HostArray, k: HostArray, v: HostArray, **options: Any
) -> tuple[HostArray, HostArray]:
    """Return attention and the logarithms of its sums, each written over poison."""
    results = [poisoned(q.shape, q.dtype), poisoned(q.shape[:-1], DTYPES["f32"])]
    if side == "host":
        attention(q, k, v, out=results[0], lse=results[1], **options)
        return results[0], results[1]
    out, lse = map(to_device, results)
    attention(*map(to_device, (q, k, v)), out=out, lse=lse, **_on_device(options))
    return np.asarray(out.numpy()), np.asarray(lse.numpy())


def exact_of(q: HostArray, k: HostArray, v: HostArray, **options: Any) -> tuple[Any, Any]:
    """Return attention and the logarithms of its sums in f64."""
    return definition.attention(*map(_wide, (q, k, v)), **_exact_options(options))


def gradients_of(
    side: str,
    q: HostArray,
    k: HostArray,
    v: HostArray,
    dy: HostArray,
    *,
    exact: bool = True,
    **options: Any,
) -> tuple[list[HostArray], list[Any]]:
    """Return the gradients, that of a bias last, as written over poison, and those in f64.

    What attention gives is that of f64, rounded; without `exact`, zeros of no meaning.
    """
    y, sums = np.zeros_like(q), np.zeros(q.shape[:-1], np.float32)
    expected: list[Any] = []
    if exact:
        wide, named = [*map(_wide, (q, k, v, dy))], _exact_options(options)
        result, logarithms = definition.attention(*wide[:3], **named)
        y, sums = result.astype(q.dtype), logarithms.astype(np.float32)
        expected = [*definition.attention_backward(*wide, **named)]
        if "bias" in options:
            expected.append(definition.attention_bias_backward(*wide, **named))
    elif q.size and k.size:
        y, sums = attended("host", q, k, v, **options)
    return gradients(side, [q, k, v, y, sums, dy], **options), expected


def gradients(side: str, arrays: list[HostArray], **options: Any) -> list[HostArray]:
    """Return the gradients of q, k, v, and of a bias, from q, k, v, y, lse and dy."""
    names = ["dq", "dk", "dv"]
    results = [poisoned(x.shape, x.dtype) for x in arrays[:3]]
    if "bias" in options:
        names.append("dbias")
        results.append(poisoned(options["bias"].shape, options["bias"].dtype))
    given: list[Any] = [*arrays]
    outs: list[Any] = [*results]
    if side == "gpu":
        given, outs = ([to_device(x) for x in group] for group in (given, outs))
        options = _on_device(options)
    options = options | dict(zip(names, outs, strict=True))
    attention_backward(*given, **options)
    return outs if side == "host" else [np.asarray(out.numpy()) for out in outs]


def close(found: HostArray, exact: HostArray, dtype: str) -> None:
    """Compare at the rounding of weights, their gradients and the result, each to the dtype."""
    largest = max(1.0, np.abs(exact).max(initial=0))
    np.testing.assert_allclose(
        found.astype(np.float64),
        exact,
        rtol=2 * ROUNDOFF[dtype],
        atol=(6 * ROUNDOFF[dtype] + 8e-6) * largest,
    )


def _wide(array: HostArray) -> HostArray:
    return array.astype(np.float64)


def _exact_options(options: dict[str, Any]) -> dict[str, Any]:
    return options | ({"bias": _wide(options["bias"])} if "bias" in options else {})


def _on_device(options: dict[str, Any]) -> dict[str, Any]:
    return {name: to_device(value) if name in _ARRAYS else value for name, value in options.items()}
