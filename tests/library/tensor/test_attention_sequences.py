"""Sequences in a row, packed q, k and v, arrays past 2^31 elements, and graphs of attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.attention_features import attended, close, exact_of, gradients, gradients_of, operands
from helpers.gpu import requires_gpu
from helpers.packed_attention import exact_in_turn
from helpers.sides import DTYPES, SIDES, HostArray, poisoned, random, to_device
from tilewright.errors import ArgumentError
from tilewright.reference.attention_features import kept
from tilewright.tensor.attention import attention
from tilewright.tensor.attention_backward import attention_backward
from tilewright.tensor.axes import transposed

# Starts of queries and of keys. The numbers are those of FlashAttention's issues.
STARTS = {
    "443": ([0, 76, 110, 256], [0, 1, 2, 3]),
    "2562": ([0, 0, 120, 204, 204], [0, 253, 428, 512, 819]),
    "1537": ([0, 1, 1, 2], [0, 0, 1, 2]),
    "one": ([0, 70], [0, 90]),
    "many": ([0, 5, 133, 134, 200], [0, 70, 75, 140, 141]),
    "no keys": ([0, 3, 9], [0, 0, 0]),
}


def i32(numbers: list[int]) -> HostArray:
    return np.array(numbers, np.int32)


def in_a_row(
    starts: tuple[list[int], list[int]], heads: tuple[int, int], dim: int, dtype: str
) -> list[HostArray]:
    extents = [(heads[0], starts[0][-1]), *[(heads[1], starts[1][-1])] * 2]
    return [
        random((*extent, dim), DTYPES[dtype], seed=seed)
        for seed, extent in enumerate((*extents, extents[0]))
    ]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("has_longest", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window": (20, 3), "softcap": 2.0}], ids=str
)
@pytest.mark.parametrize("name", STARTS)
def test_sequences_in_a_row(
    name: str, options: dict[str, Any], has_longest: bool, side: str
) -> None:
    starts = STARTS[name]
    q, k, v, dy = in_a_row(starts, (4, 2), 32, "f16")
    exact = exact_in_turn(q, k, v, dy, *starts, **options)
    given = {"q_starts": i32(starts[0]), "k_starts": i32(starts[1]), **options}
    if has_longest:
        given["longest"] = tuple(int(np.diff(x).max()) for x in starts)
    out, lse = attended(side, q, k, v, **given)
    close(out, exact[0], "f16")
    np.testing.assert_allclose(lse, exact[1], rtol=1e-5, atol=1e-5)
    arrays = [q, k, v, exact[0].astype(q.dtype), exact[1].astype(np.float32), dy]
    for found, expected in zip(gradients(side, arrays, **given), exact[2:], strict=True):
        close(found, expected, "f16")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_heads_inside_each_other_and_of_any_dtype(dtype: str, side: str) -> None:
    """As a model has them: `[rows, heads, elements]`, and heads of 80 elements."""
    starts = STARTS["many"]
    q, k, v, dy = (
        np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)
        for x in in_a_row(starts, (4, 2), 80, dtype)
    )
    exact = exact_in_turn(q, k, v, dy, *starts, causal=True)
    given = {"q_starts": i32(starts[0]), "k_starts": i32(starts[1]), "causal": True}
    out, lse = attended(side, q, k, v, **given)
    close(out, exact[0], dtype)
    np.testing.assert_allclose(lse, exact[1], rtol=1e-5, atol=1e-5)
    if dtype != "f32":
        arrays = [q, k, v, exact[0].astype(q.dtype), exact[1].astype(np.float32), dy]
        for found, expected in zip(gradients(side, arrays, **given), exact[2:], strict=True):
            close(found, expected, dtype)


def test_keys_without_queries_have_gradients_of_exactly_0() -> None:
    starts = STARTS["2562"]
    q, k, v, dy = in_a_row(starts, (2, 2), 64, "bf16")
    exact = exact_in_turn(q, k, v, dy, *starts)
    arrays = [q, k, v, exact[0].astype(q.dtype), exact[1].astype(np.float32), dy]
    found = gradients("host", arrays, q_starts=i32(starts[0]), k_starts=i32(starts[1]))
    for gradient in found[1:]:
        assert not gradient[:, :253].any()
        assert not gradient[:, 512:].any()
        assert gradient[:, 253:512].any()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("step", [1, 3], ids=["dense", "strided"])
def test_rows_of_no_sequence_are_left_alone(step: int, side: str) -> None:
    """Also of results that kernels do not write where they lie; backward as forward."""
    starts = [3, 20, 31], [1, 15, 38]
    q, k, v, dy = in_a_row(([0, 40], [0, 40]), (2, 2), 16, "f16")
    given: Any = {"q_starts": i32(starts[0]), "k_starts": i32(starts[1])}
    exact = exact_in_turn(q, k, v, dy, *starts)
    y, sums = exact[0].astype(q.dtype), exact[1].astype(np.float32)
    spread: list[Any] = [poisoned((2, 40, 16 * step), q.dtype) for _ in range(4)]
    spread.append(poisoned((2, 40 * step), np.dtype(np.float32)))
    arrays: list[Any] = [q, k, v, y, sums, dy]
    if side == "gpu":
        spread, arrays = ([to_device(x) for x in group] for group in (spread, arrays))
        given = {name: to_device(numbers) for name, numbers in given.items()}
    out, dq, dk, dv = (x[:, :, ::step] for x in spread[:4])
    lse = spread[4][:, :40]
    attention(*arrays[:3], out=out, lse=lse, **given)
    attention_backward(*arrays, dq=dq, dk=dk, dv=dv, **given)
    found = [x.numpy() if side == "gpu" else x for x in (out, lse, dq, dk, dv)]
    for result, expected, of_keys in zip(found, exact, (0, 0, 0, 1, 1), strict=True):
        rows = slice(starts[of_keys][0], starts[of_keys][-1])
        close(result[:, rows], expected[:, rows], "f16")
        assert np.isnan(np.delete(result, rows, axis=1)).all()


def test_new_gradients_of_rows_of_no_sequence_are_0(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, dy = in_a_row(([0, 40], [0, 40]), (2, 2), 16, "f16")
    given: Any = {"q_starts": i32([3, 20, 31]), "k_starts": i32([1, 15, 38])}
    y, lse = attended("host", q, k, v, **given)

    def used(shape: Any, dtype: Any = float, **_options: Any) -> HostArray:
        return np.full(shape, 77, dtype)

    monkeypatch.setattr(np, "empty", used)
    dq, dk, dv = map(np.asarray, attention_backward(q, k, v, y, lse, dy, **given))
    assert not np.delete(dq, slice(3, 31), axis=1).any()
    for gradient in (dk, dv):
        assert not np.delete(gradient, slice(1, 38), axis=1).any()
        assert gradient[:, 1:38].all()


def test_dropout_of_sequences_counts_them_as_a_batch_of_the_longest() -> None:
    starts = ([0, 30, 50], [0, 24, 64])
    q, k, v, dy = in_a_row(starts, (2, 1), 16, "f16")
    given = {"q_starts": i32(starts[0]), "k_starts": i32(starts[1]), "longest": (30, 40)}
    dropout = {"dropout": 0.4, "seed": 7, "offset": 2}
    out, lse = attended("host", q, k, v, **given, **dropout)
    factors = kept((2, 2, 30, 40), 0.4, seed=7, offset=2)
    for number, (rows, keys) in enumerate((((0, 30), (0, 24)), ((30, 50), (24, 64)))):
        a, b = slice(*rows), slice(*keys)
        wide = [x.astype(np.float64) for x in (q[:, a], k[:, b], v[:, b])]
        scores = wide[0] @ np.swapaxes(wide[1].repeat(2, 0), -1, -2) / 4
        weights = np.exp(scores - lse[:, a, None])
        weights *= factors[number][:, : rows[1] - rows[0], : keys[1] - keys[0]]
        close(out[:, a], weights @ wide[2].repeat(2, 0), "f16")
    found = gradients("host", [q, k, v, out, lse, dy], **given, **dropout)
    again = gradients("host", [q, k, v, out, lse, dy], **given, **dropout)
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("options", [{"causal": True}, {"softcap": 3.0}], ids=str)
def test_packed_q_k_and_v_and_gradients_into_views(options: dict[str, Any], side: str) -> None:
    shape = (2, 70, 3, 4, 32)  # batch, length, q k v, heads, elements
    packed = random(shape, DTYPES["bf16"])
    q, k, v = (packed[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    dy = random((2, 70, 4, 32), q.dtype, seed=3).transpose(0, 2, 1, 3)
    _, exact = gradients_of("host", q, k, v, dy, **options)
    y, sums = exact_of(q, k, v, **options)
    into: Any = poisoned(shape, q.dtype)
    arrays: list[Any] = [q, k, v, y.astype(q.dtype), sums.astype(np.float32), dy]
    if side == "gpu":
        into, arrays = to_device(into), [to_device(x) for x in arrays]
    views = [transposed(into[:, :, part], (0, 2, 1, 3)) for part in range(3)]
    named = options | dict(zip(("dq", "dk", "dv"), views, strict=True))
    attention_backward(*arrays, **named)
    found = into.numpy() if side == "gpu" else into
    for part, expected in enumerate(exact):
        close(found[:, :, part].transpose(0, 2, 1, 3), expected, "bf16")


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("options", [{"window": (50, 0)}, {"softcap": 2.0}], ids=str)
def test_elements_past_two_to_the_31(options: dict[str, Any]) -> None:
    from tilewright.abi.dtypes import float16, float32
    from tilewright.runtime.memory import zeros

    batches, heads, rows, dim = 2**31 // (16 * 128 * 64) + 1, 16, 128, 64
    shape = (batches, heads, rows, dim)
    tails = operands((1, heads, heads, rows, rows, dim), "f16")
    q, k, v, dy = (zeros(shape, float16) for _ in range(4))
    for array, tail in zip((q, k, v, dy), tails, strict=True):
        array[-1:].copy_from(tail)
    lse = zeros(shape[:-1], float32)
    y: Any = attention(q, k, v, lse=lse, **options)
    found: Any = attention_backward(q, k, v, y, lse, dy, **options)
    exact, _ = exact_of(*tails[:3], **options)
    close(np.asarray(y[-1:].numpy()), exact, "f16")
    _, expected = gradients_of("host", *tails, **options)
    for gradient, wanted in zip(found, expected, strict=True):
        close(np.asarray(gradient[-1:].numpy()), wanted, "f16")


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("name", ["plain", "features", "sequences"])
def test_a_graph_of_attention_and_its_gradients(name: str) -> None:
    """A replay drops the same weights: seed and offset are part of the graph."""
    from tilewright.runtime.graph import capture

    q, k, v, dy = (to_device(x[0]) for x in operands((1, 4, 2, 150, 150, 64), "f16"))
    options: dict[str, Any] = {"causal": True}
    if name == "features":
        mask = np.random.default_rng(1).random((150, 150)) < 0.8
        options = {"mask": to_device(mask), "softcap": 3.0, "dropout": 0.2, "seed": 4}
    if name == "sequences":
        starts = to_device(i32([0, 40, 150]))
        options = {"q_starts": starts, "k_starts": starts, "longest": (110, 110)}
    lse, y = (
        to_device(poisoned((4, 150), DTYPES["f32"])),
        to_device(poisoned(q.shape, q.numpy().dtype)),
    )
    results = [to_device(poisoned(x.shape, x.numpy().dtype)) for x in (q, k, v)]
    named = options | dict(zip(("dq", "dk", "dv"), results, strict=True))

    def step() -> None:
        attention(q, k, v, out=y, lse=lse, **options)
        attention_backward(q, k, v, y, lse, dy, **named)

    step()
    expected = [np.array(x.numpy()) for x in (y, *results)]
    with capture() as graph:
        step()
    for x in (y, *results):
        x.copy_from(poisoned(x.shape, DTYPES["f16"]))
    graph.replay()
    for found, wanted in zip((y, *results), expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q_starts": i32([0, 5])}, "belong together"),
        ({"longest": (5, 5)}, "without q_starts and k_starts"),
        ({"q_starts": i32([0, 5]), "k_starts": i32([0, 2, 5])}, "both need one start"),
        ({"q_starts": np.array([0, 5]), "k_starts": i32([0, 5])}, r"dtype i64; wanted is i32"),
        ({"q_starts": i32([]), "k_starts": i32([])}, r"shape \(0,\)"),
        ({"q_starts": i32([0, 5]), "k_starts": i32([0, 5]), "longest": 5}, "a pair is needed"),
        ({"q_starts": i32([0, 5]), "k_starts": i32([0, 5]), "longest": (5, -1)}, "longest is"),
        (
            {"q_starts": i32([0, 5]), "k_starts": i32([0, 5]), "mask": np.ones((5, 5), np.bool_)},
            "mask is given with q_starts .* neither bias nor mask",
        ),
        (
            {"q_starts": i32([0, 5]), "k_starts": i32([0, 5]), "bias": np.ones((5, 5), np.float16)},
            "bias is given with q_starts",
        ),
    ],
)
def test_what_are_no_sequences_is_refused(options: dict[str, Any], message: str) -> None:
    x = np.zeros((2, 5, 16), np.float16)
    with pytest.raises(ArgumentError, match=message):
        attention(x, x, x, **options)
    with pytest.raises(ArgumentError, match=message):
        attention_backward(x, x, x, x, np.zeros((2, 5), np.float32), x, **options)


def test_sequences_have_no_other_axes() -> None:
    x = np.zeros((2, 2, 5, 16), np.float16)
    with pytest.raises(ArgumentError, match="without other axes"):
        attention(x, x, x, q_starts=i32([0, 5]), k_starts=i32([0, 5]))
