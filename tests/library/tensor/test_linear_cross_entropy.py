"""Cross entropy of a linear layer against fp64: in one part and in several, and what it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, random, to_device
from tilewright.errors import ArgumentError, IndexRangeError
from tilewright.reference import cross_entropy as definitions
from tilewright.tensor import linear_cross_entropy as operations

IGNORED = -100
EVERY_OPTION = {"label_smoothing": 0.1, "z_loss": 1e-2}


def numbers(side: str, name: str, *inputs: HostArray | None, **options: Any) -> tuple[Any, ...]:
    """Call an operation on a side; return all its results as NumPy."""
    operation = getattr(operations, name)
    given: list[Any] = list(inputs)
    if side == "gpu":
        given = [to_device(x) if isinstance(x, np.ndarray) else x for x in given]
        options = {k: to_device(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    results = operation(*given, **options)
    results = results if isinstance(results, tuple) else (results,)
    return tuple(r if side == "host" else r.numpy() for r in results)


def operands(rows: int, width: int, classes: int, dtype: str) -> tuple[HostArray, ...]:
    """Return rows, a layer's weight, and targets of which some are ignored."""
    generator = np.random.default_rng(rows)
    target = generator.integers(0, classes, rows)
    target[generator.random(rows) < 0.25] = IGNORED
    x = random((rows, width), DTYPES[dtype])
    return x, random((classes, width), DTYPES[dtype], seed=1, scale=width**-0.5), target


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the logits of 128 rows at once, of weights narrower than that."""
    monkeypatch.setattr(operations, "_LEAST_BYTES", 1)


def exact(*given: Any, **options: Any) -> tuple[HostArray, ...]:
    wide = [a.astype(np.float64) if a is not None and a.dtype.kind != "i" else a for a in given]
    return definitions.linear_cross_entropy_backward(*wide, **options)


def close(found: HostArray, expected: HostArray, dtype: str) -> None:
    """Compare relative to the largest: logits are rounded to the type, and so are gradients."""
    error = np.abs(found.astype(np.float64) - expected).max(initial=0)
    allowed = 8 * ROUNDOFF[dtype] + 4e-6
    assert error <= allowed * np.abs(expected).max(initial=0)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("rows", [1, 130, 300], ids=["a row", "two parts", "three parts"])
def test_gradients(
    rows: int, reduction: str, dtype: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(monkeypatch)
    x, weight, target = operands(rows, 40, 201, dtype)
    target[0] = 3
    shape = (rows,) if reduction == "none" else ()
    dloss = np.asarray(random(shape, np.dtype(np.float32), seed=2))
    given: dict[str, Any] = {**EVERY_OPTION, "reduction": reduction}
    *gradients, loss = numbers(
        side, "linear_cross_entropy_backward", x, weight, target, dloss, **given
    )
    *expected, expected_loss = exact(x, weight, target, dloss, **given)
    for found, wanted, like in zip(gradients, expected, (x, weight), strict=True):
        assert found.dtype == like.dtype
        assert found.shape == like.shape
        close(found, wanted, dtype)
    assert loss.dtype == np.float32
    close(loss, expected_loss, dtype)
    (alone,) = numbers(side, "linear_cross_entropy", x, weight, target, **given)
    np.testing.assert_array_equal(alone, loss)


@pytest.mark.parametrize("side", SIDES)
def test_parts_give_what_all_rows_at_once_give(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the rounding of sums; the gradient of a row does not know of parts."""
    x, weight, target = operands(300, 48, 64, "f32")
    dx, dweight, loss = numbers(side, "linear_cross_entropy_backward", x, weight, target)
    in_parts(monkeypatch)
    parted = numbers(side, "linear_cross_entropy_backward", x, weight, target)
    np.testing.assert_allclose(parted[0], dx, atol=1e-8)
    np.testing.assert_allclose(parted[1], dweight, atol=1e-7)
    np.testing.assert_array_equal(parted[2], loss)


def test_wide_floats_stay_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    x, weight, target = operands(200, 7, 9, "f32")
    wide = [array.astype(np.float64) for array in (x, weight)]
    found = numbers("host", "linear_cross_entropy_backward", *wide, target, **EVERY_OPTION)
    for one, other in zip(found, exact(*wide, target, **EVERY_OPTION), strict=True):
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("side", SIDES)
def test_leading_axes_and_strides(side: str) -> None:
    base, weight, _ = operands(60, 96, 33, "f32")
    x, weight = base.reshape(3, 20, 96)[:, ::2, ::2], weight[:, ::2]
    target = np.arange(30).reshape(3, 10)
    target[1] = IGNORED
    found = numbers(side, "linear_cross_entropy_backward", x, weight, target)
    for one, other in zip(found, exact(x, weight, target), strict=True):
        assert one.shape == other.shape
        close(one, other, "f32")
    assert not found[0][1].any()


@pytest.mark.parametrize("side", SIDES)
def test_no_rows(side: str) -> None:
    x, weight, target = operands(0, 16, 33, "bf16")
    dx, dweight, loss = numbers(side, "linear_cross_entropy_backward", x, weight, target)
    assert dx.shape == (0, 16)
    assert not dweight.any()
    assert np.isnan(loss)


@pytest.mark.parametrize("side", SIDES)
def test_a_target_that_names_no_class(side: str) -> None:
    x, weight, target = operands(5, 16, 33, "f32")
    target[1] = 33
    for name in ("linear_cross_entropy", "linear_cross_entropy_backward"):
        with pytest.raises(IndexRangeError, match=r"target 33 at \(1,\) names none of 33 classes"):
            numbers(side, name, x, weight, target)


def test_what_does_not_fit_is_refused() -> None:
    x, weight, target = operands(5, 16, 33, "f32")
    with pytest.raises(ArgumentError, match=r"x has shape \(5, 16\), linear_weight \(33, 8\)"):
        operations.linear_cross_entropy(x, weight[:, ::2], target)
    with pytest.raises(ArgumentError, match="one dtype, got x: f32, linear_weight: f16"):
        operations.linear_cross_entropy(x, weight.astype(np.float16), target)
    with pytest.raises(ArgumentError, match=r"target has shape \(4,\), x \(5, 16\)"):
        operations.linear_cross_entropy(x, weight, target[1:])


@pytest.mark.parametrize(("width", "classes"), [(512, 50_257), (300, 1000), (1, 7)])
def test_no_more_logits_are_held_than_the_weight_has_bytes(width: int, classes: int) -> None:
    x = np.zeros((20_000, width), np.float32)
    layer = operations.Layer.of(x, np.zeros((classes, width), np.float32))
    room = layer.room()
    assert isinstance(room, np.ndarray)
    row_bytes = room.shape[1] * 4
    assert room.shape[1] >= classes
    assert room.shape[0] * row_bytes <= max(width * row_bytes, 2**24) + 128 * row_bytes
    assert [first for first, _ in layer.parts()] == list(range(0, 20_000, room.shape[0]))
    assert sum(part.shape[0] for _, part in layer.parts()) == 20_000
