"""Matrix products against fp64 oracles: dtypes, odd sizes, transposes, strides, batches, epilogues.

Sums are bounded by the textbook bound, K roundings of f32 relative to the product of magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.abi.dtypes import float32
from tilewright.errors import ArgumentError
from tilewright.reference.elementwise import gelu as exact_gelu
from tilewright.tensor import launches
from tilewright.tensor.matmul import matmul

# What becomes of the operands: nothing, 11 significant bits, or 22 of them.
OPERAND_ROUNDOFF = {"ieee": 0.0, "tf32": 2.0**-11, "tf32x3": 2.0**-21}
KINDS = [("f16", "ieee"), ("bf16", "ieee"), ("f32", "ieee"), ("f32", "tf32"), ("f32", "tf32x3")]
# (M, N, K): one element, odd ones, a full tile, several tiles and steps, long and flat.
SIZES = [
    (1, 1, 1),
    (37, 45, 29),
    (64, 64, 64),
    (129, 65, 33),
    (16, 256, 160),
    (1, 300, 40),
    (200, 1, 17),
    (3, 5, 1000),
]
ACTIVATIONS: dict[str | None, Callable[[HostArray], HostArray]] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": exact_gelu,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def wide(array: HostArray) -> HostArray:
    return array.astype(np.float64)


def on_host(array: Any) -> HostArray:
    return np.asarray(array.numpy())


def close(
    found: HostArray, a: HostArray, b: HostArray, *, dtype: str, precision: str = "ieee"
) -> None:
    """Compare with `a @ b` at one rounding of the result and the bound of its sums."""
    exact = wide(a) @ wide(b)
    magnitude = np.abs(wide(a)) @ np.abs(wide(b))
    roundings = (a.shape[-1] + 8) * 2 * ROUNDOFF["f32"] + 2.1 * OPERAND_ROUNDOFF[precision]
    limit = 1.01 * ROUNDOFF[dtype] * np.abs(exact) + roundings * magnitude + 1e-30
    limit += {"f32": 0.0, "f16": 2.0**-25, "bf16": 0.0}[dtype]  # half of f16's smallest subnormal
    error = np.abs(wide(found) - exact)
    assert found.shape == exact.shape
    assert (error <= limit).all(), f"{(error - limit).max()} too far"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("dtype", "precision"), KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_any_size(size: tuple[int, int, int], dtype: str, precision: str, side: str) -> None:
    m, n, k = size
    a, b = random((m, k), DTYPES[dtype], seed=1), random((k, n), DTYPES[dtype], seed=2)
    out = poisoned((m, n), DTYPES[dtype])
    found = run(side, matmul, a, b, out=out, input_precision=precision)
    close(found, a, b, dtype=dtype, precision=precision)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("dtype", "precision"), [("f16", "ieee"), ("f32", "tf32")])
@pytest.mark.parametrize("size", [(64, 48, 80), (33, 47, 21)], ids=str)
@pytest.mark.parametrize("b_axis", ["n", "k", "neither"])
@pytest.mark.parametrize("a_axis", ["k", "m", "neither"])
def test_any_axis_may_be_contiguous(
    a_axis: str, b_axis: str, size: tuple[int, int, int], dtype: str, precision: str, side: str
) -> None:
    m, n, k = size
    kind = DTYPES[dtype]
    a = {
        "k": random((m, k), kind, seed=1),
        "m": random((k, m), kind, seed=1).T,
        "neither": random((m, 2 * k), kind, seed=1)[:, ::2],
    }[a_axis]
    b = {
        "n": random((k, n), kind, seed=2),
        "k": random((n, k), kind, seed=2).T,
        "neither": random((k, 3 * n), kind, seed=2)[:, ::3],
    }[b_axis]
    found = run(side, matmul, a, b, out=poisoned((m, n), kind), input_precision=precision)
    close(found, a, b, dtype=dtype, precision=precision)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 20, 16), (3, 16, 32)),
        ((3, 1, 20, 16), (4, 16, 32)),
        ((2, 3, 4, 5, 16), (3, 1, 16, 7)),
        ((16,), (16, 32)),
        ((20, 16), (16,)),
        ((16,), (16,)),
        ((5, 20, 16), (16,)),
        ((16,), (5, 16, 32)),
    ],
    ids=str,
)
def test_batches_and_vectors_as_in_numpy(
    left: tuple[int, ...], right: tuple[int, ...], side: str
) -> None:
    a, b = random(left, DTYPES["f16"], seed=1), random(right, DTYPES["f16"], seed=2)
    expected = np.matmul(wide(a), wide(b))
    found = run(side, matmul, a, b, out=poisoned(np.shape(expected), DTYPES["f16"]))
    np.testing.assert_allclose(wide(found), expected, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("side", SIDES)
def test_repeated_operands_have_stride_0(side: str) -> None:
    a = np.broadcast_to(random((20, 16), DTYPES["f16"], seed=1), (6, 20, 16))
    b = np.broadcast_to(random((6, 16, 1), DTYPES["f16"], seed=2), (6, 16, 32))
    found = run(side, matmul, a, b, out=poisoned((6, 20, 32), DTYPES["f16"]))
    close(found, a, b, dtype="f16")


@pytest.mark.parametrize("side", SIDES)
def test_more_batches_than_a_grid_is_high(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = 70_000
    if side == "host":  # where so many programs would take minutes
        monkeypatch.setattr(launches, "GRID_HEIGHT", 3)
        batch = 11
    launches.forget_plans()
    a, b = random((batch, 1, 2), DTYPES["f32"], seed=1), random((2, 1), DTYPES["f32"], seed=2)
    found = run(side, matmul, a, b, out=poisoned((batch, 1, 1), DTYPES["f32"]))
    launches.forget_plans()
    close(found, a, b, dtype="f32")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", [(48, 64, 32), (17, 33, 21)], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_epilogue(
    dtype: str, activation: str | None, size: tuple[int, int, int], side: str
) -> None:
    m, n, k = size
    kind = DTYPES[dtype]
    a, b = random((m, k), kind, seed=1, scale=0.3), random((k, n), kind, seed=2)
    bias, gate, residual = (
        random(shape, kind, seed=seed) for seed, shape in ((3, (n,)), (4, (m, n)), (5, (m, n)))
    )

    def operation(a: Any, b: Any, bias: Any, gate: Any, residual: Any, *, out: Any) -> Any:
        return matmul(
            a, b, alpha=0.5, bias=bias, activation=activation, gate=gate, residual=residual, out=out
        )

    found = run(side, operation, a, b, bias, gate, residual, out=poisoned((m, n), kind))
    plain = 0.5 * (wide(a) @ wide(b)) + wide(bias)
    expected = ACTIVATIONS[activation](plain) * wide(gate) + wide(residual)
    np.testing.assert_allclose(wide(found), expected, rtol=1.01 * ROUNDOFF[dtype] + 1e-5, atol=2e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["bias", "gate", "residual"])
@pytest.mark.parametrize("shape", [(32,), (3, 1, 32), (20, 1), (3, 20, 32), (1,)], ids=str)
def test_each_part_of_an_epilogue_broadcasts(name: str, shape: tuple[int, ...], side: str) -> None:
    if name == "bias" and shape != (32,):
        return
    a, b = random((3, 20, 16), DTYPES["f32"], seed=1), random((16, 32), DTYPES["f32"], seed=2)
    part = random(shape, DTYPES["f32"], seed=3)

    def operation(a: Any, b: Any, part: Any, *, out: Any) -> Any:
        return matmul(a, b, out=out, **{name: part})

    found = run(side, operation, a, b, part, out=poisoned((3, 20, 32), DTYPES["f32"]))
    exact = wide(a) @ wide(b)
    expected = exact * wide(part) if name == "gate" else exact + wide(part)
    np.testing.assert_allclose(wide(found), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
def test_adding_to_the_result_in_place(side: str) -> None:
    a, b = random((40, 24), DTYPES["f32"], seed=1), random((24, 48), DTYPES["f32"], seed=2)
    start = random((40, 48), DTYPES["f32"], seed=3)

    def operation(a: Any, b: Any, *, out: Any) -> Any:
        return matmul(a, b, residual=out, out=out)

    found = run(side, operation, a, b, out=start.copy())
    np.testing.assert_allclose(found, wide(start) + wide(a) @ wide(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
def test_a_transposed_result_is_written_as_it_lies(side: str) -> None:
    a, b = random((40, 24), DTYPES["f16"], seed=1), random((24, 48), DTYPES["f16"], seed=2)
    gate = random((40, 48), DTYPES["f16"], seed=3)

    def operation(a: Any, b: Any, gate: Any, *, out: Any) -> Any:
        columns = out.view((40, 48), (1, 40)) if side == "gpu" else out.T
        return matmul(a, b, gate=gate, out=columns)

    found = run(side, operation, a, b, gate, out=poisoned((48, 40), DTYPES["f16"])).T
    expected = wide(a) @ wide(b) * wide(gate)
    np.testing.assert_allclose(wide(found), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((0, 5), (5, 3)), ((4, 5), (5, 0)), ((4, 0), (0, 3)), ((0, 4, 5), (5, 3)), ((0,), (0,))],
    ids=str,
)
def test_nothing_to_multiply(left: tuple[int, ...], right: tuple[int, ...], side: str) -> None:
    a, b = np.zeros(left, np.float16), np.zeros(right, np.float16)
    expected = np.matmul(a, b)
    found = run(side, matmul, a, b, out=poisoned(np.shape(expected), DTYPES["f16"]))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("side", SIDES)
def test_without_columns_the_epilogue_remains(side: str) -> None:
    bias = random((32,), DTYPES["f32"])

    def operation(a: Any, b: Any, bias: Any, *, out: Any) -> Any:
        return matmul(a, b, bias=bias, activation="relu", out=out)

    a, b = np.zeros((5, 0), np.float32), np.zeros((0, 32), np.float32)
    found = run(side, operation, a, b, bias, out=poisoned((5, 32), DTYPES["f32"]))
    assert np.array_equal(found, np.broadcast_to(np.maximum(bias, 0), (5, 32)))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("size", [(64, 64, 128), (33, 47, 21), (1, 16, 64)], ids=str)
def test_integers_are_exact(size: tuple[int, int, int], dtype: type, side: str) -> None:
    m, n, k = size
    generator = np.random.default_rng(0)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = generator.integers(low, high, (m, k), dtype, endpoint=True)
    b = generator.integers(low, high, (n, k), dtype, endpoint=True).T
    found = run(side, matmul, a, b, out=np.full((m, n), -7, np.int32))
    assert np.array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", [(64, 64, 32), (33, 47, 21)], ids=str)
def test_doubles_keep_their_digits(size: tuple[int, int, int], side: str) -> None:
    m, n, k = size
    a, b = random((m, k), np.dtype(np.float64)), random((k, n), np.dtype(np.float64), seed=1)
    found = run(side, matmul, a, b, out=poisoned((m, n), a.dtype))
    np.testing.assert_allclose(found, a @ b, atol=k * 2.0**-50)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("result", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("size", [(64, 64, 32), (33, 47, 21)], ids=str)
def test_8_bit_floats(size: tuple[int, int, int], kind: Any, result: str, side: str) -> None:
    m, n, k = size
    a, b = random((m, k), np.dtype(kind), seed=1), random((k, n), np.dtype(kind), seed=2)
    names = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
    from tilewright.abi import dtypes

    def operation(a: Any, b: Any, *, out: Any) -> Any:
        return matmul(a, b, out_dtype=getattr(dtypes, names[result]), out=out)

    found = run(side, operation, a, b, out=poisoned((m, n), DTYPES[result]))
    close(found, a, b, dtype=result)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_wider_result(dtype: str, side: str) -> None:
    a, b = random((40, 64), DTYPES[dtype], seed=1), random((64, 48), DTYPES[dtype], seed=2)

    def operation(a: Any, b: Any, *, out: Any) -> Any:
        return matmul(a, b, out_dtype=float32, out=out)

    found = run(side, operation, a, b, out=poisoned((40, 48), DTYPES["f32"]))
    close(found, a, b, dtype="f32")


@pytest.mark.parametrize("side", SIDES)
def test_what_is_not_finite_stays_in_its_row_and_column(side: str) -> None:
    a, b = random((20, 37), DTYPES["f16"], seed=1), random((37, 45), DTYPES["f16"], seed=2)
    a[3, 5], b[7, 11] = np.nan, np.inf
    found = run(side, matmul, a, b, out=poisoned((20, 45), DTYPES["f16"]))
    with np.errstate(invalid="ignore"):
        expected = wide(a) @ wide(b)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(np.isinf(found), np.isinf(expected))


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("size", [(2048, 2048, 512), (4097, 1025, 513), (16, 4096, 4096)], ids=str)
def test_large_sizes(size: tuple[int, int, int], dtype: str) -> None:
    m, n, k = size
    a, b = random((m, k), DTYPES[dtype], seed=1), random((k, n), DTYPES[dtype], seed=2)
    found = run("gpu", matmul, a, b, out=poisoned((m, n), DTYPES[dtype]))
    close(found, a, b, dtype=dtype)


@pytest.mark.gpu
@requires_gpu()
def test_elements_past_two_to_the_31() -> None:
    from tilewright.abi.dtypes import float16
    from tilewright.runtime.memory import from_numpy, zeros

    rows, columns = 2**31 // 1024 + 64, 1024
    a, b = zeros((rows, columns), float16), random((columns, 16), DTYPES["f16"], seed=2)
    tail = random((64, columns), DTYPES["f16"], seed=1)
    matmul(from_numpy(tail), from_numpy(np.eye(columns, dtype=np.float16)), out=a[-64:])
    found = on_host(matmul(a, from_numpy(b))[-64:])
    close(found, tail, b, dtype="f16")
    # The result as the large one: [64, 16] @ [16, many].
    wide_b = a.view((16, rows * columns // 16))
    left = random((64, 16), DTYPES["f16"], seed=3)
    found = on_host(matmul(from_numpy(left), wide_b)[:, -64:])
    close(found, left, np.ascontiguousarray(wide_b[:, -64:].numpy()), dtype="f16")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((4, 5), (4, 5)), {}, r"a of shape \(4, 5\) has 5 columns, b of shape \(4, 5\) has 4"),
        (((), (4, 5)), {}, "at least one axis of each"),
        (((2, 4, 5), (3, 5, 6)), {}, "do not broadcast together"),
        (((4, 5), (5, 6)), {"activation": "tanh"}, "activation is 'tanh'; it is one of None, 'r"),
        (((4, 5), (5, 6)), {"input_precision": "tf16"}, "input_precision is 'tf16'"),
        (((4, 5), (5, 6)), {"alpha": np.ones(3)}, "alpha is of ndarray; a number is needed"),
        (((4, 5), (5, 6)), {"bias": np.zeros(5, np.float32)}, r"contiguous of shape \(6,\)"),
        (
            ((4, 5), (5, 6)),
            {"bias": np.zeros(6, np.float16)},
            "bias has dtype f16, the result has f32",
        ),
        (((4, 5), (5, 6)), {"gate": np.zeros((3, 6), np.float32)}, "do not broadcast"),
        (((4, 5), (5, 6)), {"residual": np.zeros((2, 4, 6), np.float32)}, "does not broadcast to"),
        (((4, 5), (5, 6)), {"out": np.zeros((4, 5), np.float32)}, r"the result has \(4, 6\)"),
        (((4, 5), (5, 6)), {"out": np.zeros((4, 6), np.float16)}, "out has dtype f16, the result"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, options: Any, message: str) -> None:
    a, b = (np.zeros(shape, np.float32) for shape in arguments)
    with pytest.raises(ArgumentError, match=message):
        matmul(a, b, **options)


def test_dtypes_that_do_not_fit_are_refused() -> None:
    ints, floats = np.zeros((4, 4), np.int8), np.zeros((4, 4), np.float32)
    with pytest.raises(ArgumentError, match="one dtype"):
        matmul(ints, floats)
    with pytest.raises(ArgumentError, match="arrays of i32 are not multiplied"):
        matmul(ints.astype(np.int32), ints.astype(np.int32))
    with pytest.raises(ArgumentError, match="a product of i8 takes no alpha"):
        matmul(ints, ints, alpha=2.0)
    with pytest.raises(ArgumentError, match="out_dtype is f32; a product of f64 is f64"):
        matmul(floats.astype(np.float64), floats.astype(np.float64), out_dtype=float32)
