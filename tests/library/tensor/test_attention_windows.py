"""Windows of attention and of its gradients against the definition in fp64, at every edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.attention_features import attended, close, exact_of, gradients_of, operands
from helpers.sides import SIDES, HostArray
from tilewright.errors import ArgumentError, ArgumentValueError
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward

WINDOWS = [(0, 0), (3, None), (None, 5), (20, 7), (70, 0), (1, 1000), (None, None)]
# (queries, keys): equal, fewer queries, more queries, of which the first may see no key.
LENGTHS = [(70, 70), (33, 140), (140, 33), (1, 90), (90, 1)]


def heads(queries: int, keys: int, dtype: str) -> list[HostArray]:
    """Return q, k, v and dy, of four heads that share two."""
    return [x[0] for x in operands((1, 4, 2, queries, keys, 32), dtype)]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_attention_sees_a_window(
    lengths: tuple[int, int], window: Any, causal: bool, side: str
) -> None:
    q, k, v, _ = heads(*lengths, "f32")
    options: dict[str, Any] = {"window": window, "causal": causal}
    out, lse = attended(side, q, k, v, **options)
    exact, sums = exact_of(q, k, v, **options)
    close(out, exact, "f32")
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gradients_see_the_same_window(
    lengths: tuple[int, int], window: Any, causal: bool, side: str
) -> None:
    q, k, v, dy = heads(*lengths, "f16")
    found, exact = gradients_of(side, q, k, v, dy, window=window, causal=causal)
    for gradient, expected in zip(found, exact, strict=True):
        close(gradient, expected, "f16")


def test_a_window_of_one_key_is_a_copy() -> None:
    _, k, v, _ = heads(40, 40, "f16")
    np.testing.assert_array_equal(attention(k, k, v, window=(0, 0)), v)


def test_nothing_is_read_that_no_window_reaches() -> None:
    q, k, v, _ = heads(64, 512, "f32")
    expected = attention(q, k, v, window=(100, 0))
    k[:, : 512 - 64 - 100 - 32] = np.nan
    v[:, : 512 - 64 - 100 - 32] = np.nan
    np.testing.assert_array_equal(attention(q, k, v, window=(100, 0)), expected)


@pytest.mark.parametrize(
    ("window", "error", "message"),
    [
        ((-1, 0), ArgumentValueError, "its sides are at least 0"),
        ((0, -1), ArgumentValueError, "its sides are at least 0"),
        (3, ArgumentError, "window is 3; a pair is needed"),
        ((1, 2, 3), ArgumentError, "a pair is needed"),
        ((1.5, 2), ArgumentError, "a side of window is of float; an int is needed"),
    ],
)
def test_what_is_no_window_is_refused(
    window: Any, error: type[ArgumentError], message: str
) -> None:
    q, k, v, dy = heads(4, 4, "f16")
    with pytest.raises(error, match=message):
        attention(q, k, v, window=window)
    with pytest.raises(error, match=message):
        attention_backward(q, k, v, q, np.zeros((4, 4), np.float32), dy, window=window)


def test_more_keys_than_places_are_refused() -> None:
    q, k = np.zeros((1, 16), np.float16), np.broadcast_to(np.float16(0), (2**31 - 1000, 16))
    with pytest.raises(ArgumentError, match="counts both together in 31 bits"):
        attention(q, k, k)
    with pytest.raises(ArgumentError, match="counts both together in 31 bits"):
        attention_backward(q, k, k, q, np.zeros(1, np.float32), q)
