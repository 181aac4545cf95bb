"""Attention against the definition in fp64: lengths, heads, causal and additive masks, strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.errors import ArgumentError
from tilewright.reference.attention import attention as reference
from tilewright.tensor.attention import attention

# (batch, heads, heads of k and v, queries, keys, dim)
SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (2, 4, 4, 64, 64, 64),
    (2, 4, 2, 37, 70, 32),
    (1, 6, 1, 130, 65, 24),
    (1, 2, 2, 5, 200, 128),
    (1, 1, 1, 70, 3, 80),
    (3, 2, 2, 1, 129, 16),
]


def inputs(shape: tuple[int, ...], dtype: str) -> list[HostArray]:
    batch, heads, shared, queries, keys, dim = shape
    extents = ((heads, queries), (shared, keys), (shared, keys))
    return [
        random((batch, *extent, dim), DTYPES[dtype], seed=seed)
        for seed, extent in enumerate(extents)
    ]


def expected_of(
    arrays: list[HostArray], bias: HostArray | None = None, **options: Any
) -> tuple[HostArray, HostArray]:
    exact = [array.astype(np.float64) for array in arrays]
    wide_bias = None if bias is None else bias.astype(np.float64)
    return reference(exact[0], exact[1], exact[2], bias=wide_bias, **options)


def close(found: HostArray, expected: HostArray, dtype: str) -> None:
    """Compare at the rounding of weights and result to the dtype, relative to values of size 1.

    Of f32 at that of scores from three tf32 products, whose sums tensor cores cut off, not round.
    """
    np.testing.assert_allclose(
        found.astype(np.float64),
        expected,
        rtol=2 * ROUNDOFF[dtype],
        atol=6 * ROUNDOFF[dtype] + 8e-6,
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape(shape: tuple[int, ...], dtype: str, causal: bool, side: str) -> None:
    arrays = inputs(shape, dtype)
    lse = poisoned(arrays[0].shape[:-1], DTYPES["f32"])

    def operation(q: Any, k: Any, v: Any, lse: Any, *, out: Any) -> Any:
        attention(q, k, v, causal=causal, out=out, lse=lse)
        sums.append(lse if side == "host" else lse.numpy())

    sums: list[HostArray] = []
    found = run(side, operation, *arrays, lse, out=poisoned(arrays[0].shape, DTYPES[dtype]))
    result, exact_sums = expected_of(arrays, causal=causal)
    close(found, result, dtype)
    np.testing.assert_allclose(sums[0], exact_sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "bias_shape",
    [(2, 4, 37, 70), (4, 37, 70), (37, 70), (2, 1, 1, 70), (4, 37, 1), (1,)],
    ids=str,
)
def test_a_bias_broadcasts(bias_shape: tuple[int, ...], dtype: str, side: str) -> None:
    arrays = inputs((2, 4, 2, 37, 70, 32), dtype)
    bias = random(bias_shape, DTYPES[dtype], seed=7)

    def operation(q: Any, k: Any, v: Any, bias: Any, *, out: Any) -> Any:
        return attention(q, k, v, bias=bias, causal=True, scale=0.3, out=out)

    found = run(side, operation, *arrays, bias, out=poisoned(arrays[0].shape, DTYPES[dtype]))
    close(found, expected_of(arrays, bias, causal=True, scale=0.3)[0], dtype)


@pytest.mark.parametrize("side", SIDES)
def test_rows_that_see_no_key_give_0(side: str) -> None:
    arrays = inputs((1, 1, 1, 70, 40, 32), "f16")  # with causal the first 30 queries see nothing
    bias = np.zeros((70, 40), np.float16)
    bias[50] = -np.inf
    lse = poisoned((1, 1, 70), DTYPES["f32"])

    def operation(q: Any, k: Any, v: Any, bias: Any, lse: Any, *, out: Any) -> Any:
        attention(q, k, v, bias=bias, causal=True, lse=lse, out=out)
        sums.append(lse if side == "host" else lse.numpy())

    sums: list[HostArray] = []
    found = run(side, operation, *arrays, bias, lse, out=poisoned((1, 1, 70, 32), DTYPES["f16"]))
    empty = [*range(30), 50]
    assert (found[0, 0, empty] == 0).all()
    assert (sums[0][0, 0, empty] == -np.inf).all()
    assert np.isfinite(np.delete(sums[0][0, 0], empty)).all()


@pytest.mark.parametrize("side", SIDES)
def test_no_keys_and_no_queries(side: str) -> None:
    for queries, keys in ((5, 0), (0, 5), (0, 0)):
        arrays = inputs((2, 2, 2, queries, keys, 16), "f16")
        found = run(side, attention, *arrays, out=poisoned(arrays[0].shape, DTYPES["f16"]))
        assert np.array_equal(found, np.zeros(arrays[0].shape))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dim", [16, 32, 40, 64, 128, 200, 256])
def test_every_extent_of_heads(dim: int, side: str) -> None:
    arrays = inputs((1, 2, 1, 65, 66, dim), "f16")
    found = run(side, attention, *arrays, out=poisoned(arrays[0].shape, DTYPES["f16"]))
    close(found, expected_of(arrays)[0], "f16")


@pytest.mark.parametrize("side", SIDES)
def test_any_strides_and_leading_axes(side: str) -> None:
    packed = random((2, 33, 3, 4, 16), DTYPES["f32"])  # batch, length, q k v, heads, dim
    q, k, v = (packed[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    expected = expected_of([q, k, v])[0]
    close(run(side, attention, q, k, v, out=poisoned(q.shape, q.dtype)), expected, "f32")
    found = run(side, attention, q[0], k[0], v[0], out=poisoned(q.shape[1:], q.dtype))
    close(found, expected[0], "f32")
    found = run(side, attention, q[0, 0], k[0, 0], v[0, 0], out=poisoned(q.shape[2:], q.dtype))
    close(found, expected[0, 0], "f32")
    q, k, v = (np.broadcast_to(x[:, None], (2, 3, 4, 33, 16)) for x in (q, k, v))
    found = run(side, attention, q, k, v, out=poisoned(q.shape, q.dtype))
    close(found, np.broadcast_to(expected[:, None], q.shape), "f32")
    wide = random((1, 1, 20, 48), DTYPES["f32"], seed=5)[..., ::3]
    found = run(side, attention, wide, wide, wide, out=poisoned(wide.shape, wide.dtype))
    close(found, expected_of([wide, wide, wide])[0], "f32")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("scale", [0.0, -0.5, 1e-3, 40.0])
def test_any_scale(scale: float, has_bias: bool, side: str) -> None:
    arrays = inputs((1, 2, 2, 40, 70, 32), "f32")
    bias = random((40, 70), DTYPES["f32"], seed=9) if has_bias else np.zeros((1,), np.float32)

    def operation(q: Any, k: Any, v: Any, bias: Any, *, out: Any) -> Any:
        options = {"bias": bias} if has_bias else {}
        return attention(q, k, v, causal=True, scale=scale, out=out, **options)

    found = run(side, operation, *arrays, bias, out=poisoned(arrays[0].shape, DTYPES["f32"]))
    expected = expected_of(arrays, bias, causal=True, scale=scale)[0]
    np.testing.assert_allclose(found, expected, atol=2e-6 * (1 + 40 * abs(scale)))


@pytest.mark.parametrize("side", SIDES)
def test_large_scores_do_not_overflow(side: str) -> None:
    arrays = inputs((1, 1, 1, 40, 50, 32), "f32")
    arrays[0] *= 1000
    found = run(side, attention, *arrays, out=poisoned(arrays[0].shape, DTYPES["f32"]))
    np.testing.assert_allclose(found, expected_of(arrays)[0], atol=2e-2)


@pytest.mark.parametrize("side", SIDES)
def test_tf32_rounds_operands(side: str) -> None:
    arrays = inputs((1, 2, 2, 40, 50, 32), "f32")
    out = poisoned(arrays[0].shape, DTYPES["f32"])
    found = run(side, attention, *arrays, out=out, input_precision="tf32")
    np.testing.assert_allclose(found, expected_of(arrays)[0], atol=4e-3)


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("dim", [64, 128])
def test_long_sequences(dim: int, dtype: str) -> None:
    arrays = inputs((1, 2, 1, 1000, 1500, dim), dtype)
    out = poisoned(arrays[0].shape, DTYPES[dtype])
    found = run("gpu", attention, *arrays, out=out, causal=True)
    close(found, expected_of(arrays, causal=True)[0], dtype)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((4, 5, 16), (3, 5, 16), (3, 5, 16)), {}, "with H a multiple of G"),
        (((4, 5, 16), (2, 5, 8), (2, 5, 8)), {}, r"q has shape \(4, 5, 16\), k \(2, 5, 8\)"),
        (((4, 5, 16), (4, 5, 16), (4, 6, 16)), {}, "wanted are"),
        (((16,), (16,), (16,)), {}, "wanted are"),
        (((4, 5, 129),) * 3, {}, "heads have 129 elements; attention of f32 takes up to 128"),
        (((4, 5, 16),) * 3, {"input_precision": "ieee"}, "input_precision is 'ieee'"),
        (((4, 5, 16),) * 3, {"scale": "a"}, "scale is of str; a number is needed"),
        (
            ((4, 5, 16),) * 3,
            {"bias": np.zeros((4, 5, 6), np.float32)},
            r"bias has shape \(4, 5, 6\); it must broadcast .* \(4, 5, 5\)",
        ),
        (((4, 5, 16),) * 3, {"bias": np.zeros((2, 1, 5, 5), np.float32)}, r"bias has shape \(2, 1"),
        (((4, 5, 16),) * 3, {"bias": np.zeros((5, 5), np.float16)}, "one dtype"),
        (((4, 5, 16),) * 3, {"lse": np.zeros((4, 5), np.float16)}, "lse has dtype f16"),
        (((4, 5, 16),) * 3, {"lse": np.zeros((5, 4), np.float32).T}, "must be contiguous"),
    ],
)
def test_what_does_not_fit_is_refused(shapes: Any, options: Any, message: str) -> None:
    q, k, v = (np.zeros(shape, np.float32) for shape in shapes)
    with pytest.raises(ArgumentError, match=message):
        attention(q, k, v, **options)


def test_integers_are_refused() -> None:
    x = np.zeros((4, 16), np.int8)
    with pytest.raises(ArgumentError, match="attention takes f32, f16 and bf16"):
        attention(x, x, x)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_without_elements_have_sums_all_the_same(dtype: str, side: str) -> None:
    arrays = [np.zeros((2, rows, 0), DTYPES[dtype]) for rows in (5, 3, 3)]
    lse = poisoned((2, 5), np.dtype(np.float32))

    def sums(*given: Any, out: Any) -> Any:
        attention(*given, lse=out)
        return out

    found = run(side, sums, *arrays, out=lse)
    np.testing.assert_allclose(found, np.full((2, 5), np.log(3)), rtol=1e-6)


def test_no_heads_give_nothing_with_or_without_logarithms() -> None:
    nothing = np.zeros((0, 5, 8), np.float16)
    lse = np.zeros((0, 5), np.float32)
    assert attention(nothing, nothing, nothing, lse=lse).shape == (0, 5, 8)
