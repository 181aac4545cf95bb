"""Attention with a mask, a cap, dropout and a bias, and its gradients, against fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.attention_features import attended, close, exact_of, gradients_of, operands
from helpers.sides import DTYPES, SIDES, HostArray, random
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.kernels.attention_features import featured_attention
from tilewright.reference.attention_features import kept
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward
from tilewright.tensor.attention_features import featured_launch

# (batch, heads, heads of k and v, queries, keys, dim)
SHAPES = [(2, 4, 2, 70, 90, 32), (1, 2, 2, 90, 40, 64), (1, 1, 1, 1, 1, 1), (2, 2, 1, 33, 20, 24)]


def mask_of(*shape: int, seed: int = 0) -> HostArray:
    return np.random.default_rng(seed).random(shape) < 0.7


def options_of(name: str, shape: tuple[int, ...], dtype: str) -> dict[str, Any]:
    batch, heads, _, queries, keys, _ = shape
    dropout = {"dropout": 0.3, "seed": 2**63 + 5, "offset": 11}
    options: dict[str, dict[str, Any]] = {
        "mask": {"mask": mask_of(batch, 1, queries, keys)},
        "softcap": {"softcap": 1.5},
        "softcap-causal": {"softcap": 20.0, "causal": True, "scale": -0.4},
        "dropout": dropout,
        "dropout-all": {"dropout": 1.0},
        "bias-mask": {
            "bias": random((heads, queries, keys), DTYPES[dtype], seed=7),
            "mask": mask_of(heads, 1, keys),
        },
        "everything": {
            "bias": random((heads, 1, keys), DTYPES[dtype], seed=7),
            "mask": mask_of(queries, 1) | mask_of(batch, heads, 1, keys),
            "softcap": 2.0,
            "window": (40, 9),
            "scale": 0.3,
            **dropout,
        },
    }
    return options[name]


NAMES = ["mask", "softcap", "softcap-causal", "dropout", "dropout-all", "bias-mask", "everything"]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(shape: tuple[int, ...], dtype: str, name: str, side: str) -> None:
    options = options_of(name, shape, dtype)
    q, k, v, _ = operands(shape, dtype)
    out, lse = attended(side, q, k, v, **options)
    exact, sums = exact_of(q, k, v, **options)
    close(out, exact, dtype)
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients(shape: tuple[int, ...], dtype: str, name: str, side: str) -> None:
    options = options_of(name, shape, dtype)
    q, k, v, dy = operands(shape, dtype)
    found, exact = gradients_of(side, q, k, v, dy, **options)
    for gradient, expected in zip(found, exact, strict=True):
        close(gradient, expected, dtype)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "bias_shape",
    [(2, 4, 70, 90), (4, 70, 90), (2, 1, 70, 90), (70, 90), (2, 1, 1, 90), (4, 1, 90), (90,)],
    ids=str,
)
def test_the_gradient_of_a_bias_is_summed_where_it_broadcasts(
    bias_shape: tuple[int, ...], side: str
) -> None:
    q, k, v, dy = operands((2, 4, 2, 70, 90, 32), "f16")
    bias = random(bias_shape, DTYPES["f16"], seed=9)
    found, exact = gradients_of(side, q, k, v, dy, bias=bias, causal=True)
    assert found[3].shape == bias_shape
    close(found[3], exact[3], "f16")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "bias_shape", [(3, 1, 21, 40), (1, 3, 2, 21, 40), (2, 1, 1, 1, 40), (2, 3, 1, 21, 40)], ids=str
)
def test_the_gradient_of_a_bias_that_has_some_of_the_batch_axes(
    bias_shape: tuple[int, ...], side: str
) -> None:
    shapes = [(2, 3, 2, rows, 16) for rows in (21, 40, 40, 21)]
    q, k, v, dy = (random(s, DTYPES["f16"], seed=i) for i, s in enumerate(shapes))
    bias = random(bias_shape, DTYPES["f16"], seed=9)
    found, exact = gradients_of(side, q, k, v, dy, bias=bias)
    assert found[3].shape == bias_shape
    for gradient, wanted in zip(found, exact, strict=True):
        close(gradient, wanted, "f16")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("bias_shape", [(2, 1, 70, 1), (4, 1, 1), (1,)], ids=str)
def test_a_bias_that_is_the_same_for_all_keys_has_no_gradient(
    bias_shape: tuple[int, ...], side: str
) -> None:
    """What is left is the rounding of `y`, summed over all that the element serves."""
    q, k, v, dy = operands((2, 4, 2, 70, 90, 32), "f16")
    found, exact = gradients_of(side, q, k, v, dy, bias=random(bias_shape, q.dtype, seed=9))
    np.testing.assert_allclose(exact[3], 0, atol=1e-12)
    served = 2 * 4 * 70 / np.prod(bias_shape)
    np.testing.assert_allclose(found[3].astype(np.float64), 0, atol=4e-3 * np.sqrt(served))


@pytest.mark.parametrize("side", SIDES)
def test_rows_that_see_no_key(side: str) -> None:
    q, k, v, dy = operands((2, 2, 1, 70, 50, 32), "f16")
    mask = np.ones((2, 1, 70, 50), np.bool_)
    mask[0, 0, 3:40] = False
    mask[1] = False
    out, lse = attended(side, q, k, v, mask=mask)
    empty = ~mask.any(axis=-1).repeat(2, axis=1)
    assert not out[empty].any()
    assert np.isneginf(lse[empty]).all()
    assert np.isfinite(lse[~empty]).all()
    found, exact = gradients_of(side, q, k, v, dy, mask=mask, softcap=3.0, dropout=0.2)
    assert not found[0][empty].any()
    assert not found[1][1].any()
    assert not found[2][1].any()
    for gradient, expected in zip(found, exact, strict=True):
        close(gradient, expected, "f16")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["plain", "mask", "softcap", "bias"])
@pytest.mark.parametrize("scale", [0.0, 1e-46])
def test_what_is_hidden_stays_so_at_a_scale_of_0(scale: float, name: str, side: str) -> None:
    """The other one is 0 in f32, in which kernels take it; what is hidden is -inf times it."""
    q, k, v, dy = operands((1, 2, 1, 70, 50, 32), "f16")
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "mask": {"mask": mask_of(70, 50)},
        "softcap": {"softcap": 2.0},
        "bias": {"bias": random((70, 50), q.dtype, seed=7)},
    }
    options: dict[str, Any] = {"causal": True, "scale": scale, **cases[name]}
    out, lse = attended(side, q, k, v, **options)
    exact, sums = exact_of(q, k, v, **options)
    close(out, exact, "f16")
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)
    found, gradients = gradients_of(side, q, k, v, dy, **options)
    for gradient, expected in zip(found, gradients, strict=True):
        close(gradient, expected, "f16")


@pytest.mark.parametrize("side", SIDES)
def test_a_bias_of_minus_infinity_hides_as_a_mask_does(side: str) -> None:
    q, k, v, dy = operands((1, 2, 2, 40, 50, 16), "f16")
    mask = mask_of(2, 40, 50)
    mask[0, 7] = False
    bias = np.where(mask, 0, -np.inf).astype(np.float16)
    hidden, _ = gradients_of(side, q, k, v, dy, mask=mask)
    added, exact = gradients_of(side, q, k, v, dy, bias=bias)
    for one, other in zip(hidden, added, strict=False):
        np.testing.assert_array_equal(one, other)
    assert not added[3][~mask].any()
    close(added[3], exact[3], "f16")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dim", [16, 24, 48, 80, 96, 128, 192, 256])
def test_every_extent_of_heads(dim: int, side: str) -> None:
    shape = (1, 2, 1, 65, 66, dim)
    q, k, v, dy = operands(shape, "bf16")
    cases: list[dict[str, Any]] = [{}, {"softcap": 4.0, "causal": True}]
    for options in cases:
        out, _ = attended(side, q, k, v, **options)
        close(out, exact_of(q, k, v, **options)[0], "bf16")
        found, exact = gradients_of(side, q, k, v, dy, **options)
        for gradient, expected in zip(found, exact, strict=True):
            close(gradient, expected, "bf16")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("sizes", [(5, 0, 16), (0, 5, 16), (0, 0, 16), (3, 4, 0)], ids=str)
def test_without_queries_keys_or_elements(sizes: tuple[int, int, int], side: str) -> None:
    queries, keys, dim = sizes
    q, k, v, dy = operands((2, 2, 2, queries, keys, dim), "f16")
    mask = np.ones((queries, keys), np.bool_)
    out, lse = attended(side, q, k, v, mask=mask, softcap=1.0)
    assert not out.any()
    sums = np.log(keys) if keys else -np.inf
    np.testing.assert_allclose(lse, np.full(lse.shape, sums), rtol=1e-6)
    bias = np.zeros((queries, keys), np.float16)
    found, _ = gradients_of(side, q, k, v, dy, mask=mask, bias=bias, exact=False)
    assert not any(gradient.any() for gradient in found)


@pytest.mark.parametrize("side", SIDES)
def test_any_strides(side: str) -> None:
    """Of operands, of what lies over the scores, and of results."""
    q, k, v, dy = operands((2, 4, 2, 33, 20, 24), "f16")
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v, dy)]
    mask = np.asfortranarray(mask_of(33, 20))
    bias = random((4, 20, 33), q.dtype, seed=3).swapaxes(1, 2)
    options: dict[str, Any] = {"mask": mask, "bias": bias, "dropout": 0.25, "seed": 1}
    out, _ = attended(side, *turned[:3], **options)
    close(out, exact_of(q, k, v, **options)[0], "f16")
    found, exact = gradients_of(side, *turned, **options)
    for gradient, expected in zip(found, exact, strict=True):
        close(gradient, expected, "f16")
    spread = np.full((2, 4, 33, 60), np.nan, q.dtype)[..., 5::2][..., :24]
    attention(q, k, v, mask=mask, out=spread)
    close(spread, exact_of(q, k, v, mask=mask)[0], "f16")


def test_leading_axes_that_are_not_as_one() -> None:
    q, k, v, dy = operands((6, 2, 1, 20, 24, 16), "f16")
    mask = mask_of(2, 1, 2, 20, 24)
    wide = np.broadcast_to(mask, (2, 3, 2, 20, 24)).reshape(6, 2, 20, 24)
    cut = [x.reshape(2, 3, *x.shape[1:]) for x in (q, k, v, dy)]
    exact, sums = exact_of(q, k, v, mask=wide)
    out, lse = attended("host", *cut[:3], mask=mask)
    close(out.reshape(exact.shape), exact, "f16")
    np.testing.assert_allclose(lse.reshape(sums.shape), sums, rtol=1e-5, atol=1e-5)
    found, _ = gradients_of("host", *cut, mask=mask, exact=False)
    _, gradients = gradients_of("host", q, k, v, dy, mask=wide)
    for gradient, expected in zip(found, gradients, strict=True):
        close(gradient.reshape(expected.shape), expected, "f16")


def test_dropout_is_a_function_of_seed_offset_and_place() -> None:
    q, k, v, _ = operands((1, 2, 1, 100, 120, 16), "f16")
    first = attended("host", q, k, v, dropout=0.5, seed=3, offset=8)[0]
    np.testing.assert_array_equal(attention(q, k, v, dropout=0.5, seed=3, offset=8), first)
    for seed, offset in ((4, 8), (3, 9)):
        other = attended("host", q, k, v, dropout=0.5, seed=seed, offset=offset)[0]
        assert (other != first).mean() > 0.9
    # Of a single value that is 1 the result is the sum of what is kept, and none but 0 without.
    ones = np.ones_like(v)
    zero = np.zeros_like(q)
    sums = np.asarray(attention(zero, k, ones, dropout=0.4, seed=1))[..., 0].astype(np.float64)
    expected = kept((1, 2, 100, 120), 0.4, seed=1).mean(axis=-1)
    np.testing.assert_allclose(sums, expected, atol=2e-3)
    assert abs(sums.mean() - 1) < 0.02
    np.testing.assert_array_equal(
        attention(q, k, v, dropout=0.0, seed=3, softcap=2.0), attention(q, k, v, softcap=2.0)
    )


def test_what_dropout_keeps_is_even_over_all_places() -> None:
    factors = kept((3, 2, 160, 144), 0.25, seed=12)
    is_kept = factors > 0
    np.testing.assert_allclose(factors[is_kept], 4 / 3)
    for axes in ((1, 2, 3), (0, 1, 3), (0, 1, 2)):
        assert np.abs(is_kept.mean(axis=axes) - 0.75).max() < 0.06
    # No two heads, rows or columns are alike, and none is shifted into the next.
    flat = is_kept.reshape(6, -1)
    assert all((flat[n] != flat[n + 1]).mean() > 0.3 for n in range(5))
    assert all((is_kept[..., n:, :] != is_kept[..., :-n, :]).mean() > 0.3 for n in (1, 8, 16))
    assert all((is_kept[..., n:] != is_kept[..., :-n]).mean() > 0.3 for n in (1, 8, 16))


def test_results_may_lie_where_operands_do() -> None:
    q, k, v, dy = operands((1, 2, 2, 40, 40, 32), "f16")
    exact = exact_of(q, k, v, softcap=2.0)[0]
    taken = q.copy()
    attention(taken, k, v, softcap=2.0, out=taken)
    close(taken, exact, "f16")
    out, lse = attended("host", q, k, v, softcap=2.0)
    _, gradients = gradients_of("host", q, k, v, dy, softcap=2.0)
    in_q, in_k, in_v, in_dy = (x.copy() for x in (q, k, v, dy))
    attention_backward(in_q, in_k, in_v, out, lse, in_dy, softcap=2.0, dq=in_dy, dk=in_q, dv=in_k)
    for gradient, expected in zip((in_dy, in_q, in_k), gradients, strict=True):
        close(gradient, expected, "f16")


_HEADS = (2, 5, 16)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mask": np.ones((5, 5), np.int8)}, ArgumentError, "mask has dtype i8; bools are needed"),
        (
            {"mask": np.ones((4, 5), np.bool_)},
            ArgumentError,
            r"mask has shape \(4, 5\); it must broadcast to the scores .* \(2, 5, 5\)",
        ),
        ({"mask": np.ones((3, 2, 5, 5), np.bool_)}, ArgumentError, "mask has shape"),
        ({"softcap": -1.0}, ArgumentValueError, "softcap is -1.0; a positive number"),
        ({"softcap": float("nan")}, ArgumentValueError, "softcap is nan"),
        ({"softcap": 1e39}, ArgumentValueError, "a positive number of f32"),
        ({"softcap": 1e-46}, ArgumentValueError, "a positive number of f32"),
        ({"softcap": "a"}, ArgumentError, "softcap is of str"),
        ({"dropout": -0.1}, ArgumentValueError, r"a probability lies in \[0, 1\]"),
        ({"dropout": 1.5}, ArgumentValueError, "dropout is 1.5"),
        ({"dropout": 0.5, "seed": 2**64}, ArgumentValueError, "it has 64 bits"),
        ({"dropout": 0.5, "offset": -1}, ArgumentValueError, "it counts from 0"),
        ({"seed": "a"}, ArgumentError, "seed is of str; an int is needed"),
        ({"offset": 1.0}, ArgumentError, "offset is of float; an int is needed"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: dict[str, Any], error: type[ArgumentError], message: str
) -> None:
    x = np.zeros(_HEADS, np.float16)
    with pytest.raises(error, match=message):
        attention(x, x, x, **options)
    with pytest.raises(error, match=message):
        attention_backward(x, x, x, x, np.zeros((2, 5), np.float32), x, **options)


def test_what_a_grid_or_31_bits_do_not_hold_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"needs 2147483648 programs, a grid has .*; split the"):
        featured_launch(featured_attention, (), (), 2**31, {}, ())
    with pytest.raises(ArgumentError, match=r"featured_attention takes .*, got 2147483649; split"):
        featured_launch(featured_attention, tuple(range(9)), (5, 2**31 + 1), 1, {}, ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dbias": np.zeros((5, 5), np.float16)}, "dbias is given without the bias"),
        (
            {"bias": np.zeros((5, 5), np.float16), "dbias": np.zeros((5, 4), np.float16)},
            "dbias has shape",
        ),
        ({"bias": np.zeros((5, 5), np.float32)}, "one dtype"),
        ({"bias": np.zeros((3, 5), np.float16)}, r"bias has shape \(3, 5\); it must broadcast"),
    ],
)
def test_what_is_no_bias_of_gradients_is_refused(options: dict[str, Any], message: str) -> None:
    x = np.zeros(_HEADS, np.float16)
    with pytest.raises(ArgumentError, match=message):
        attention_backward(x, x, x, x, np.zeros((2, 5), np.float32), x, **options)
