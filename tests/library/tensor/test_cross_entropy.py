"""Cross entropy and its gradient against fp64 oracles: every way to compute it, special values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, random, to_device
from tilewright.errors import ArgumentError, ArgumentValueError, IndexRangeError
from tilewright.reference import cross_entropy as definitions
from tilewright.tensor import cross_entropy as operations
from tilewright.tensor.arrays import on_host

# One width inside each configuration, odd ones, the edges of a tile, and rows walked in chunks.
WIDTHS = [1, 2, 7, 10, 128, 129, 1000, 1024, 1025, 2048, 4097, 8192, 32000, 32768, 50257, 65536]
WIDE = [65537, 70001, 80000]
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


def targets(shape: tuple[int, ...], classes: int, *, dtype: Any = np.int64) -> HostArray:
    """Return random classes, of which some are ignored."""
    generator = np.random.default_rng(classes)
    found = generator.integers(0, classes, shape)
    return np.where(generator.random(shape) < 0.25, IGNORED, found).astype(dtype)


def exact(x: HostArray, target: HostArray, *rest: Any, **options: Any) -> tuple[HostArray, ...]:
    """Return gradient and loss in f64."""
    wide: dict[str, Any] = {
        k: v.astype(np.float64) if isinstance(v, np.ndarray) else v for k, v in options.items()
    }
    return definitions.cross_entropy_backward(x.astype(np.float64), target, *rest, **wide)


def close(found: HostArray, expected: HostArray, *, roundoff: float = 2.0**-24) -> None:
    """Compare at one rounding of the type beside what f32 loses of the largest."""
    assert found.shape == expected.shape
    limit = 1.01 * roundoff * np.abs(expected) + 2e-6 * np.abs(expected).max(initial=0)
    limit += 2.0**-25 if roundoff == ROUNDOFF["f16"] else 1e-12
    assert (np.abs(found.astype(np.float64) - expected) <= limit).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [*WIDTHS, *WIDE])
def test_every_width(columns: int, dtype: str, side: str) -> None:
    x = random((7, columns), DTYPES[dtype], scale=3)
    target = targets((7,), columns)
    target[2] = columns - 1
    for options in ({}, EVERY_OPTION):
        dx, loss = numbers(side, "cross_entropy_backward", x, target, **options)
        expected_dx, expected_loss = exact(x, target, **options)
        assert dx.dtype == x.dtype
        assert loss.dtype == np.float32
        close(dx, expected_dx, roundoff=ROUNDOFF[dtype])
        close(loss, expected_loss)
        (alone,) = numbers(side, "cross_entropy", x, target, **options)
        assert alone.tobytes() == loss.tobytes()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("columns", [10, 1500, 70001])
def test_reductions_weights_and_upstream_gradients(columns: int, reduction: str, side: str) -> None:
    x = random((2, 9, columns), DTYPES["bf16"], scale=3)
    target = targets((2, 9), columns, dtype=np.int32)
    weight = np.abs(random((columns,), np.dtype(np.float32), seed=1)) + np.float32(0.1)
    shape = target.shape if reduction == "none" else ()
    dloss = np.asarray(random(shape, np.dtype(np.float32), seed=2))
    for given in ({}, {"weight": weight}):
        for options in ({}, EVERY_OPTION):
            every = {**given, **options, "reduction": reduction}
            dx, loss = numbers(side, "cross_entropy_backward", x, target, dloss, **every)
            expected_dx, expected_loss = exact(x, target, dloss, **every)
            close(dx, expected_dx, roundoff=ROUNDOFF["bf16"])
            close(loss, expected_loss)
            assert loss.shape == shape


def test_wide_floats_stay_wide() -> None:
    x = random((4, 5000), np.dtype(np.float64))
    weight = np.abs(random((5000,), x.dtype, seed=1))
    target = targets((4,), 5000)
    dx, loss = numbers("host", "cross_entropy_backward", x, target, weight=weight, **EVERY_OPTION)
    expected = exact(x, target, weight=weight, **EVERY_OPTION)
    assert loss.dtype == dx.dtype == np.float64
    np.testing.assert_allclose(loss, expected[1], rtol=1e-13)
    np.testing.assert_allclose(dx, expected[0], rtol=1e-11, atol=1e-16)


@pytest.mark.parametrize("side", SIDES)
def test_any_leading_axes_and_strides(side: str) -> None:
    base = random((5, 6, 4, 2100), np.dtype(np.float32))
    views = {
        "transposed rows": base.transpose(2, 0, 1, 3)[..., :16],
        "sliced": base[::2, ::3, 1:, 3:2003],
        "shifted by one": base[:, :, 0, 1:2050],
        "strided columns": base[..., ::3],
        "padded rows": base[0, :, 0, :2048],
        "one axis": base[1, 2, 3, :1300],
        "columns outermost": np.ascontiguousarray(base.transpose(3, 1, 2, 0))[:20].T,
    }
    for label, x in views.items():
        target = targets(x.shape[:-1], x.shape[-1])
        if not target.ndim:
            target[...] = 3
        dx, loss = numbers(side, "cross_entropy_backward", x, target, reduction="sum")
        expected_dx, expected_loss = exact(x, target, reduction="sum")
        np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, err_msg=label)
        np.testing.assert_allclose(dx, expected_dx, atol=1e-6, err_msg=label)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [1, 3, 9, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_begin_anywhere(dtype: str, columns: int, side: str) -> None:
    base = random((9, columns + 5), DTYPES[dtype])
    for start in range(1, 5):
        x = base[:, start : start + columns]
        target = targets((9,), columns)
        target[:2] = IGNORED, 0
        dx, loss = numbers(side, "cross_entropy_backward", x, target)
        expected_dx, expected_loss = exact(x, target)
        close(dx, expected_dx, roundoff=ROUNDOFF[dtype])
        close(loss, expected_loss)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [50, 2000, 5001, 32768, 70001])
def test_logits_make_room_for_their_gradient(columns: int, side: str) -> None:
    x, target = random((5, columns), DTYPES["bf16"]), targets((5,), columns)
    expected, expected_loss = exact(x, target)
    memory: Any = x.copy() if side == "host" else to_device(x)
    given: Any = target if side == "host" else to_device(target)
    dx, loss = operations.cross_entropy_backward(memory, given, out=memory)
    found, total = on_host(memory), on_host(loss)
    assert dx is memory
    close(np.asarray(found), expected, roundoff=ROUNDOFF["bf16"])
    close(np.asarray(total), expected_loss)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [10, 3000, 70001])
def test_where_nothing_counts_a_mean_is_nan_and_gradients_are_zero(columns: int, side: str) -> None:
    """torch gives NaN too; its gradient is 0 as well."""
    x, target = random((1, 5, columns), np.dtype(np.float32)), np.full((1, 5), IGNORED)
    x[0, 1, 2], x[0, 2, 3] = np.inf, np.nan
    for reduction, value in (("mean", np.nan), ("sum", 0), ("none", np.zeros((1, 5)))):
        dx, loss = numbers(
            side, "cross_entropy_backward", x, target, reduction=reduction, **EVERY_OPTION
        )
        np.testing.assert_array_equal(loss, value)
        np.testing.assert_array_equal(dx, np.zeros_like(x))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("ignored", [-1, 0, 2])
def test_smoothing_leaves_ignored_rows_out(ignored: int, side: str) -> None:
    x, target = random((5, 3), np.dtype(np.float32)), np.array([0, 0, 0, 1, 2])
    options: dict[str, Any] = {"ignore_index": ignored, "label_smoothing": 0.3}
    dx, loss = numbers(side, "cross_entropy_backward", x, target, **options)
    kept = target != ignored
    logs = x - np.log(np.exp(x.astype(np.float64)).sum(-1, keepdims=True))
    rows = -0.7 * logs[np.arange(5), target] - 0.1 * logs.sum(-1)
    np.testing.assert_allclose(loss, rows[kept].sum() / kept.sum(), rtol=1e-6)
    assert not dx[~kept].any()
    assert dx[kept].all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [8, 4000, 70001])
def test_infinite_logits(columns: int, side: str) -> None:
    x = np.zeros((6, columns), np.float32)
    x[0, 1] = np.inf  # as in a softmax
    x[1, 1] = -np.inf  # has no part in it
    x[2, 5] = -np.inf  # the target itself
    x[3] = -np.inf
    x[4, 2] = np.nan
    x[5] = -np.inf
    x[5, 5] = 2.0
    target = np.full(6, 5)
    dx, loss = numbers(side, "cross_entropy_backward", x, target, reduction="none")
    np.testing.assert_allclose(loss[1], np.log(columns - 1), rtol=1e-6)
    assert np.isnan(loss[[0, 3, 4]]).all()
    assert loss[2] == np.inf
    assert loss[5] == 0
    assert dx[1, 1] == 0
    np.testing.assert_allclose(dx[1, 5], 1 / (columns - 1) - 1, rtol=1e-6)
    assert dx[2, 5] == -1
    assert np.isfinite(dx[2]).all()
    assert not dx[5].any()
    # A share of every class, so also of one that cannot be.
    dx, loss = numbers(
        side, "cross_entropy_backward", x[:2], target[:2], reduction="none", label_smoothing=0.1
    )
    assert loss[1] == np.inf
    np.testing.assert_allclose(dx[1, 1], -0.1 / columns, rtol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [16, 4000])
def test_large_logits_neither_overflow_nor_lose_their_difference(columns: int, side: str) -> None:
    x = np.full((3, columns), -3e38, np.float32)
    x[0, :2] = 3e38
    x[1, :2] = 1e4, 1e4 - 1
    x[2, :2] = 30000.5, 30000.0
    loss = numbers(side, "cross_entropy", x, np.zeros(3, np.int64), reduction="none")[0]
    expected = [np.log(2), np.log1p(np.exp(-1)), np.log1p(np.exp(-0.5))]
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("probability", [0.9, 0.99, 0.999])
def test_a_gradient_at_the_target_is_rounded_once(probability: float, side: str) -> None:
    """Rounding the probability to bf16 before 1 is taken off would lose up to all of it."""
    columns = 32000
    x = np.zeros((4, columns), ml_dtypes.bfloat16)
    x[:, 7] = np.log(probability / (1 - probability) * (columns - 1))
    target = np.full(4, 7)
    dx, _ = numbers(side, "cross_entropy_backward", x.copy(), target)
    np.testing.assert_allclose(dx[:, 7].astype(np.float64), exact(x, target)[0][:, 7], rtol=2.0**-8)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("columns", [6, 3000, 70001])
def test_a_target_that_names_no_class(columns: int, dtype: Any, side: str) -> None:
    x, target = random((4, columns), np.dtype(np.float32)), np.array([1, IGNORED, 2, 3], dtype)
    for wrong in (columns, -1, -4, np.iinfo(dtype).max, np.iinfo(dtype).min):
        target[2] = wrong
        before = x.copy()
        message = rf"target {wrong} at \(2,\) names none of {columns} classes"
        for name in ("cross_entropy", "cross_entropy_backward"):
            with pytest.raises(IndexRangeError, match=message):
                numbers(side, name, x, target, ignore_index=IGNORED)
        dx, loss = numbers(side, "cross_entropy_backward", x, target, reduction="none", check=False)
        assert np.isnan(loss[2])
        assert np.isnan(dx[2]).all()
        assert loss[1] == 0
        assert np.isfinite(np.delete(dx, 2, 0)).all()
        assert np.isnan(numbers(side, "cross_entropy", x, target, check=False)[0])
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 1023, 1025, 16_385, 70_000])
def test_any_number_of_rows(rows: int, side: str) -> None:
    """Fewer than a tile has, more than one program counts, more than one adds up."""
    x, target = random((rows, 3), np.dtype(np.float32)), targets((rows,), 3)
    for reduction in ("none", "sum", "mean"):
        dx, loss = numbers(side, "cross_entropy_backward", x, target, reduction=reduction)
        if not rows and reduction == "mean":
            assert np.isnan(loss)
            continue
        expected_dx, expected_loss = exact(x, target, reduction=reduction)
        close(dx, expected_dx)
        np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", SIDES)
def test_more_outer_rows_than_a_grid_is_high(side: str) -> None:
    x = random((66_000, 3, 4), np.dtype(np.float32))[:, :2, :3]
    target = targets((66_000, 2), 3)
    dloss = random(target.shape, x.dtype, seed=1)
    dx, loss = numbers(side, "cross_entropy_backward", x, target, dloss, reduction="none")
    expected_dx, expected_loss = exact(x, target, dloss, reduction="none")
    close(dx, expected_dx)
    close(loss, expected_loss)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [100, 5000, 70001])
def test_equal_calls_give_equal_bits_and_leave_inputs_alone(columns: int, side: str) -> None:
    x = random((300 if columns < 5000 else 9, columns), DTYPES["bf16"])
    target = targets(x.shape[:1], columns)
    before = x.copy()
    first = numbers(side, "cross_entropy_backward", x, target, **EVERY_OPTION)
    again = numbers(side, "cross_entropy_backward", x, target, **EVERY_OPTION)
    for one, other in zip(first, again, strict=True):
        assert one.tobytes() == other.tobytes()
    np.testing.assert_array_equal(x, before)


def test_what_does_not_fit_is_refused() -> None:
    x, target = np.zeros((2, 8), np.float32), np.zeros(2, np.int64)
    for changed, message in (
        ({"target": target[:1]}, r"target has shape \(1,\), x \(2, 8\)"),
        ({"target": target.astype(np.int16)}, "targets are i32 or i64"),
        ({"x": x.astype(int)}, "takes f64, f32, f16 and bf16"),
        ({"x": x[:, :0]}, "there are 0 classes"),
        ({"x": x[0, 0, ...]}, "at least one"),
        ({"weight": np.zeros(7, np.float32)}, r"weight must be contiguous f32 of shape \(8,\)"),
        ({"weight": np.zeros(8, np.float64)}, "got f64"),
        ({"weight": np.zeros(16, np.float32)[::2]}, r"with strides \(2,\)"),
        ({"dloss": np.zeros(2, np.float32)}, r"the loss f32 of shape \(\)"),
        ({"dloss": np.zeros((), np.float64)}, "dloss is f64"),
        ({"reduction": "average"}, "it is one of 'none', 'sum', 'mean'"),
        ({"out": np.zeros((2, 7), np.float32)}, r"out has shape \(2, 7\)"),
    ):
        arguments: dict[str, Any] = {"x": x, "target": target} | changed
        with pytest.raises(ArgumentError, match=message):
            operations.cross_entropy_backward(**arguments)
    for options, message in (
        ({"label_smoothing": 1.5}, "it lies between 0 and 1"),
        ({"label_smoothing": float("nan")}, "it lies between 0 and 1"),
        ({"ignore_index": 2**63}, r"which no i64 is; it lies in \[-2\*\*63, 2\*\*63\)"),
    ):
        with pytest.raises(ArgumentValueError, match=message):
            operations.cross_entropy(x, target, **options)


@pytest.mark.gpu
@requires_gpu()
def test_logits_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import from_numpy, zeros
    from tilewright.tensor import movement

    for columns in (8192, 70_001):
        rows = 2**31 // columns + 3
        x = zeros((rows, columns), float16)
        tail = random((3, columns), DTYPES["f16"])
        movement.copy(from_numpy(tail), out=x[-3:])
        target = np.full(rows, IGNORED)
        target[-3:] = 5, 0, columns - 1
        dx, loss = operations.cross_entropy_backward(x, from_numpy(target), out=x)
        expected_dx, expected_loss = exact(tail, target[-3:])
        close(on_host(dx[-3:]), expected_dx, roundoff=ROUNDOFF["f16"])
        close(on_host(loss), expected_loss)


@pytest.mark.gpu
@requires_gpu()
def test_a_captured_loss_follows_its_arrays() -> None:
    from tilewright.runtime.graph import capture
    from tilewright.runtime.memory import from_numpy

    x, target = random((6, 500), np.dtype(np.float32)), targets((6,), 500)
    on_device, given = from_numpy(x), from_numpy(target)
    operations.cross_entropy_backward(on_device, given, check=False)
    with capture() as graph:
        dx, loss = operations.cross_entropy_backward(on_device, given, check=False)
    for seed in (1, 2):
        again = random((6, 500), np.dtype(np.float32), seed=seed)
        on_device.copy_from(again)
        graph.replay()
        expected_dx, expected_loss = exact(again, target)
        close(on_host(dx), expected_dx)
        close(on_host(loss), expected_loss)
