"""Row kernels against fp64 oracles: every configuration, widths around each, special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.errors import ArgumentError
from tilewright.reference import norm as norm_reference
from tilewright.reference import reduce as reduce_reference
from tilewright.reference import softmax as softmax_reference
from tilewright.tensor import rows
from tilewright.tensor.configurations import ROWS, ROWS_LOOPED

# One width inside each configuration, odd ones, the edges of a tile, and rows walked in chunks.
WIDTHS = [1, 2, 31, 100, 128, 129, 256, 257, 511, 1000, 1025, 2049, 4099, 8193, 16384, 16385, 20001]
NORM_WIDTHS = sorted({*WIDTHS, 32, 33, 127, 256, 512, 1024, 8191, 8192})


def close(found: HostArray, expected: Any, *, roundings: float, dtype: str, scale: float) -> None:
    """Compare at one rounding of the type plus `roundings` f32 units of the largest magnitude."""
    exact = np.asarray(expected, np.float64)
    error = np.abs(found.astype(np.float64) - exact)
    limit = 1.01 * ROUNDOFF[dtype] * np.abs(exact) + roundings * ROUNDOFF["f32"] * scale
    limit += {"f32": 0.0, "f16": 2.0**-25, "bf16": 0.0}[dtype]  # half of f16's smallest subnormal
    assert (error <= limit).all(), f"{(error - limit).max()} too far at {np.argmax(error - limit)}"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_softmax(columns: int, dtype: str, side: str) -> None:
    x = random((3, columns), DTYPES[dtype], scale=4.0)
    found = run(side, rows.softmax, x, out=poisoned(x.shape, x.dtype))
    close(
        found,
        softmax_reference.softmax(x.astype(np.float64)),
        roundings=200,
        dtype=dtype,
        scale=1.0,
    )
    total = found.astype(np.float64).sum(axis=-1)
    np.testing.assert_allclose(total, 1.0, atol=columns**0.5 * ROUNDOFF[dtype] + 2e-6)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", NORM_WIDTHS)
def test_layer_norm(columns: int, dtype: str, side: str) -> None:
    kind = DTYPES[dtype]
    x = random((3, columns), kind)
    weight, bias = random((columns,), kind, seed=1), random((columns,), kind, seed=2)
    found = run(side, rows.layer_norm, x, weight, bias, out=poisoned(x.shape, kind))
    exact = [array.astype(np.float64) for array in (x, weight, bias)]
    expected = norm_reference.layer_norm(*exact, eps=1e-5)
    close(found, expected, roundings=64, dtype=dtype, scale=float(np.abs(expected).max()) + 1)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", NORM_WIDTHS)
def test_rms_norm_and_l2_norm(columns: int, dtype: str, side: str) -> None:
    kind = DTYPES[dtype]
    x, weight = random((3, columns), kind), random((columns,), kind, seed=1)
    exact = [array.astype(np.float64) for array in (x, weight)]
    found = run(side, rows.rms_norm, x, weight, out=poisoned(x.shape, kind))
    expected = norm_reference.rms_norm(*exact)
    close(found, expected, roundings=64, dtype=dtype, scale=float(np.abs(expected).max()) + 1)
    found = run(side, rows.l2_norm, x, out=poisoned(x.shape, kind))
    close(found, norm_reference.l2_norm(exact[0]), roundings=64, dtype=dtype, scale=1.0)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [1, 100, 1030, 2048])
@pytest.mark.parametrize("pad", [0, 1], ids=["contiguous", "padded"])
def test_f64_is_computed_in_f64(pad: int, columns: int, side: str) -> None:
    x = random((3, columns + pad), np.dtype(np.float64), scale=4.0)[:, :columns]
    weight, bias = (random((columns,), x.dtype, seed=seed) for seed in (1, 2))
    for operation, reference, inputs in (
        (rows.softmax, softmax_reference.softmax, (x,)),
        (rows.layer_norm, norm_reference.layer_norm, (x, weight, bias)),
        (rows.rms_norm, norm_reference.rms_norm, (x, weight)),
        (rows.l2_norm, norm_reference.l2_norm, (x,)),
    ):
        found = run(side, operation, *inputs, out=poisoned(x.shape, x.dtype))
        np.testing.assert_allclose(found, reference(*inputs), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [16, 100, 3000, 16384, 40001])
def test_layer_norm_keeps_its_digits_under_a_large_mean(columns: int, side: str) -> None:
    x = random((2, columns), DTYPES["f32"]) + np.float32(10000)
    found = run(side, rows.layer_norm, x, out=poisoned(x.shape, x.dtype))
    expected = norm_reference.layer_norm(x.astype(np.float64), None, None, eps=1e-5)
    # The lanes of a walked row keep rounded means of their own.
    np.testing.assert_allclose(found, expected, atol=4e-5 if columns > 32768 else 1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("mean", "first"), [(0, -1.34164), (100, -1.34153), (1000, -1.34151), (10000, -1.33133)]
)
def test_layer_norm_of_steps_on_a_large_mean(mean: float, first: float, side: str) -> None:
    """16 steps of 0.001: the variance as `mean(x ** 2) - mean(x) ** 2` would lose them."""
    x = (mean + np.arange(16) * 1e-3).astype(np.float32)[None]
    found = run(side, rows.layer_norm, x, out=poisoned(x.shape, x.dtype))
    np.testing.assert_allclose(found[0, 0], first, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("base", "spread"), [(1e6, 1e-3), (1e7, 1e-2), (1e6, 1.0), (1e7, 4.0)])
@pytest.mark.parametrize("columns", [64, 1000, 4096])
def test_layer_norm_of_what_hardly_differs(
    columns: int, base: float, spread: float, side: str
) -> None:
    """Elements of f32 that differ in their last digits, or not at all."""
    x = (base + random((2, columns), np.dtype(np.float64)) * spread).astype(np.float32)
    found = run(side, rows.layer_norm, x, out=poisoned(x.shape, x.dtype))
    expected = norm_reference.layer_norm(x.astype(np.float64), None, None, eps=1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [100, 128, 500, 1024])
def test_layer_norm_of_a_first_element_above_all_others(
    columns: int, dtype: str, side: str
) -> None:
    """Sums about it, as 16-bit rows may take them, are `columns` times what they leave."""
    x = random((9, columns), DTYPES[dtype])
    x[:, 0] = 1000
    x[5:] += x.dtype.type(100)
    found = run(side, rows.layer_norm, x, out=poisoned(x.shape, x.dtype))
    expected = norm_reference.layer_norm(x.astype(np.float64), None, None, eps=1e-5)
    close(found, expected, roundings=32 + columns // 2, dtype=dtype, scale=1.0)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("columns", [768, 2048, 32768, 40001])
def test_layer_norm_of_the_largest_numbers_is_finite(columns: int, dtype: str, side: str) -> None:
    """Their sum is no number of f32, nor are their squares: then the row is 0."""
    x = (np.random.default_rng(0).uniform(0.25, 1, (2, columns)) * 3.3e38).astype(DTYPES[dtype])
    found = run(side, rows.layer_norm, x, out=poisoned(x.shape, x.dtype))
    np.testing.assert_array_equal(found.astype(np.float32), np.zeros(x.shape))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [7, 4096, 32768, 40001])
def test_norms_of_zeros_are_zeros(columns: int, side: str) -> None:
    x = np.zeros((2, columns), DTYPES["bf16"])
    for operation in (rows.layer_norm, rows.rms_norm, rows.l2_norm):
        found = run(side, operation, x, out=poisoned(x.shape, x.dtype))
        np.testing.assert_array_equal(found.astype(np.float32), np.zeros(x.shape))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("columns", [7, 1000, 4096, 32768, 32760, 40001])
def test_norms_of_what_is_no_number(columns: int, dtype: str, side: str) -> None:
    """A row with NaN is NaN, of layer norm one with inf too; in RMS norm the finite become 0."""
    x = random((3, columns), DTYPES[dtype])
    x[0, columns // 2], x[1, columns - 1] = np.nan, np.inf
    found = run(side, rows.layer_norm, x, out=poisoned(x.shape, x.dtype)).astype(np.float32)
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2]).all()
    found = run(side, rows.rms_norm, x, out=poisoned(x.shape, x.dtype)).astype(np.float32)
    assert np.isnan(found[0]).all()
    assert np.isnan(found[1, -1])
    np.testing.assert_array_equal(found[1, :-1], np.zeros(columns - 1))
    assert np.isfinite(found[2]).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", WIDTHS)
def test_sum_and_max(columns: int, dtype: str, side: str) -> None:
    x = random((3, columns), DTYPES[dtype])
    exact = x.astype(np.float64)
    found = run(side, rows.sum, x, out=poisoned((3,), x.dtype))
    magnitude = float(np.abs(exact).sum(axis=-1).max())
    close(found, reduce_reference.sum(exact), roundings=2, dtype=dtype, scale=magnitude)
    found = run(side, rows.max, x, out=poisoned((3,), x.dtype))
    assert np.array_equal(found.astype(np.float64), reduce_reference.max(exact))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "operation", [rows.softmax, rows.layer_norm, rows.rms_norm], ids=lambda f: f.__name__
)
def test_any_leading_axes_and_strides(operation: Any, side: str) -> None:
    base = random((6, 10, 4, 37), DTYPES["f32"])
    contiguous = {}
    for name, view in {
        "transposed rows": base.transpose(2, 0, 1, 3),
        "sliced": base[::2, ::3, 1:, 3:30],
        "strided columns": base[..., ::3],
        "columns outermost": base.transpose(3, 1, 2, 0),
        "reversed": base[::-1, :, ::-1, ::-1],
        "one axis": base[1, 2, 3],
    }.items():
        if side == "gpu" and any(stride < 0 for stride in view.strides):
            continue  # device arrays take no negative strides
        contiguous[name] = operation(np.ascontiguousarray(view))
        found = run(side, operation, view, out=poisoned(view.shape, view.dtype))
        np.testing.assert_allclose(found, contiguous[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1025, 2047, 2048, 4095, 8185, 16400])
@pytest.mark.parametrize("shift", [0, 1, 7], ids=lambda shift: f"from {shift}")
def test_rows_that_begin_anywhere(shift: int, columns: int, dtype: str, side: str) -> None:
    """Rows are `columns + 3` apart; the output begins like the input, and one element later."""
    kind, count, stride = DTYPES[dtype], 11, columns + 3
    base = random((count * stride + 32,), kind, scale=2.0)
    x = np.lib.stride_tricks.as_strided(
        base[shift:], (count, columns), (stride * kind.itemsize, kind.itemsize)
    )
    weight, bias = random((columns,), kind, seed=1), random((columns,), kind, seed=2)
    exact = [array.astype(np.float64) for array in (x, weight, bias)]
    softmax = softmax_reference.softmax(exact[0])
    layer_norm = norm_reference.layer_norm(*exact, eps=1e-5)
    for later in (0, 1):
        out = poisoned((count * stride + 32,), kind)[shift + later :]
        out = np.lib.stride_tricks.as_strided(out, x.shape, x.strides)
        found = run(side, rows.softmax, x, out=out)
        close(found, softmax, roundings=200, dtype=dtype, scale=1.0)
        found = run(side, rows.layer_norm, x, weight, bias, out=out)
        scale = float(np.abs(layer_norm).max()) + 1
        close(found, layer_norm, roundings=64, dtype=dtype, scale=scale)
        whole = out.base if side == "host" else None
        while isinstance(whole, np.ndarray) and isinstance(whole.base, np.ndarray):
            whole = whole.base
        if isinstance(whole, np.ndarray):  # nothing but the rows was written
            assert np.isnan(whole.astype(np.float32)).sum() == whole.size - count * columns


@pytest.mark.parametrize("side", SIDES)
def test_unaligned_rows_of_two_leading_axes(side: str) -> None:
    kind = DTYPES["bf16"]
    base = random((5, 3, 2051), kind)
    x = base[:, :2, :2047]
    weight = random((2047,), kind, seed=1)
    found = run(side, rows.layer_norm, x, weight, out=poisoned(x.shape, kind))
    expected = norm_reference.layer_norm(
        x.astype(np.float64), weight.astype(np.float64), None, eps=1e-5
    )
    close(found, expected, roundings=64, dtype="bf16", scale=float(np.abs(expected).max()) + 1)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0,), (2, 0, 7)], ids=str)
def test_empty_arrays(shape: tuple[int, ...], side: str) -> None:
    x = np.zeros(shape, np.float32)
    for operation in (rows.softmax, rows.layer_norm, rows.rms_norm, rows.l2_norm):
        assert run(side, operation, x, out=poisoned(shape, x.dtype)).shape == shape
    found = run(side, rows.sum, x, out=poisoned(shape[:-1], x.dtype))
    assert np.array_equal(found, np.zeros(shape[:-1], np.float32))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("columns", [5, 2050, 16400, 40001])
def test_softmax_of_infinities(columns: int, dtype: str, side: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.full((5, columns), -inf, DTYPES[dtype])
    x[0, 0] = 0.0  # one finite element takes all
    x[1, 1] = inf  # inf / inf
    x[3, 2] = nan
    x[4, :2] = -3e38  # finite, and lower than exp can tell from -inf
    found = run(side, rows.softmax, x, out=poisoned(x.shape, x.dtype))
    expected = np.zeros(x.shape, np.float32)
    expected[0, 0] = 1.0
    expected[4, :2] = 0.5
    expected[1:4] = nan
    np.testing.assert_array_equal(found.astype(np.float32), expected)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("largest", [1e7, 3e10, 1e30, 3e38])
@pytest.mark.parametrize("columns", [5, 4096, 20001, 70001])
def test_softmax_of_large_numbers(columns: int, largest: float, side: str) -> None:
    x = np.full((2, columns), [[largest], [-largest]], np.float32)
    x[:, 1] = 0.0
    found = run(side, rows.softmax, x, out=poisoned(x.shape, x.dtype))
    expected = np.zeros_like(x)
    expected[0] = 1 / (columns - 1)
    expected[0, 1] = 0.0
    expected[1, 1] = 1.0
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("columns", [7, 20001], ids=["one pass", "looped"])
def test_max_propagates_nan_and_knows_infinities(columns: int, side: str) -> None:
    x = random((4, columns), DTYPES["f32"])
    x[0, columns // 2] = np.nan
    x[1] = -np.inf
    x[2, -1] = np.inf
    found = run(side, rows.max, x, out=poisoned((4,), x.dtype))
    np.testing.assert_array_equal(found, x.max(axis=-1))


@pytest.mark.parametrize("side", SIDES)
def test_equal_rows_give_equal_bits(side: str) -> None:
    row = random((1, 4099), DTYPES["f32"])
    found = run(side, rows.sum, np.repeat(row, 50, axis=0), out=poisoned((50,), row.dtype))
    assert len({value.tobytes() for value in found}) == 1


def test_maximum_of_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"maximum over an empty axis: x has shape \(3, 0\)"):
        rows.max(np.zeros((3, 0), np.float32))


def test_a_scalar_has_no_last_axis() -> None:
    with pytest.raises(ArgumentError, match="at least one"):
        rows.softmax(np.zeros((), np.float32))


def test_layer_norm_parameters_must_fit() -> None:
    x = np.zeros((2, 8), np.float32)
    with pytest.raises(ArgumentError, match=r"weight must be contiguous of shape \(8,\)"):
        rows.layer_norm(x, np.zeros((4,), np.float32))
    with pytest.raises(ArgumentError, match="one dtype"):
        rows.layer_norm(x, np.zeros((8,), np.float16))
    with pytest.raises(ArgumentError, match="eps is of str; a number is needed"):
        rows.layer_norm(x, eps="a")  # type: ignore[arg-type]  # what is tested


def test_configurations_grow_and_end_where_looping_starts() -> None:
    widths = [configuration.block_n for configuration in ROWS]
    assert widths == sorted(widths)
    assert ROWS_LOOPED.block_n <= widths[-1]


@pytest.mark.gpu
@requires_gpu()
def test_rows_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import empty, from_numpy

    columns = 16384
    x = empty((2**31 // columns + 3, columns), float16)
    tail = random((3, columns), DTYPES["f16"])
    from tilewright.tensor import elementwise

    elementwise.add(from_numpy(tail), from_numpy(np.zeros_like(tail)), out=x[-3:])
    rows.softmax(x, out=x)
    expected = softmax_reference.softmax(tail.astype(np.float64))
    close(x[-3:].numpy(), expected, roundings=200, dtype="f16", scale=1.0)


@pytest.mark.parametrize("operation", [rows.softmax, rows.layer_norm, rows.rms_norm, rows.l2_norm])
@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.bool_])
def test_what_is_no_float_is_refused(operation: Any, dtype: type) -> None:
    with pytest.raises(ArgumentError, match="takes f64, f32, f16 and bf16"):
        operation(np.zeros((2, 3), dtype))


def test_a_repeated_element_is_no_weight_of_many_columns() -> None:
    x = np.zeros((2, 8), np.float32)
    with pytest.raises(ArgumentError, match=r"weight must be contiguous .* strides \(0,\)"):
        rows.layer_norm(x, np.broadcast_to(np.float32(1), (8,)))
    assert rows.layer_norm(x[:, :1], np.ones(2, np.float32)[::2]).shape == (2, 1)
