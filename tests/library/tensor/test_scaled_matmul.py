"""Products of 8-bit floats with scales on the device, of every kind, against fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gpu import requires_gpu
from helpers.sides import DTYPES, ROUNDOFF, SIDES, HostArray, poisoned, random, run
from tilewright.abi.dtypes import BY_NAME, bfloat16, float16, float32, int32
from tilewright.abi.numpy_types import to_numpy
from tilewright.errors import ArgumentError
from tilewright.reference.scaled_matmul import scaled_matmul as definition
from tilewright.tensor.scaled_matmul import scaled_matmul

F8 = {name: to_numpy(BY_NAME[name]) for name in ("f8e4m3", "f8e5m2")}
E4M3 = F8["f8e4m3"]
# The shapes of both scales by name; K and N count blocks of 128.
SCALES = {
    "scalar": ((), ()),
    "one": ((1,), (1, 1)),
    "rows": (("M", 1), (1, "N")),
    "blocks": (("M", "KB"), ("KB", "NB")),
    "rows of a alone": (("M", 1), (1,)),
    "blocks of a, columns of b": (("M", "KB"), (1, "N")),
    "blocks of b alone": ((), ("KB", "NB")),
    "blocks along k of b": (("M", 1), ("KB", 1)),
}
# (M, N, K): one tile and less, several of them, a last block along K that is not whole.
SIZES = [(1, 1, 16), (37, 45, 48), (64, 128, 128), (70, 150, 272), (16, 264, 400)]


def scales(kind: str, size: tuple[int, int, int]) -> tuple[HostArray, HostArray]:
    m, n, k = size
    extents = {"M": m, "N": n, "KB": -(-k // 128), "NB": -(-n // 128)}
    draw = np.random.default_rng(7).uniform
    left, right = (
        np.asarray(draw(0.25, 4, [extents.get(str(x), 1) for x in shape]), np.float32)
        for shape in SCALES[kind]
    )
    return left, right


_BLOCK_ROUNDOFF = 2.0**-13


def whole(scale: HostArray, shape: tuple[int, int]) -> HostArray:
    """Return the scale of every element, in f64."""
    wide = scale.astype(np.float64).reshape(scale.shape if scale.ndim == 2 else (1, 1))
    index = [
        np.arange(extent) // (extent if have == 1 else 1 if have == extent else 128)
        for extent, have in zip(shape, wide.shape, strict=True)
    ]
    return np.asarray(wide[np.ix_(*index)])


def close(
    found: HostArray, factors: tuple[HostArray, ...], *, bias: HostArray | None = None, dtype: str
) -> None:
    """Compare with fp64 at one rounding of the result and the bound of sums.

    Those are in f32 but within a block of 128 products, of which Hopper's matrix units keep some 14
    bits of the largest.
    """
    a, b, a_scale, b_scale = factors
    left = a.astype(np.float64) * whole(a_scale, a.shape)
    right = b.astype(np.float64) * whole(b_scale, b.shape)
    exact, magnitude = left @ right, np.abs(left) @ np.abs(right)
    if bias is not None:
        exact = exact + bias.astype(np.float64)
        magnitude = magnitude + np.abs(bias.astype(np.float64))
    limit = 1.01 * ROUNDOFF[dtype] * np.abs(exact)
    limit += ((a.shape[1] + 8) * 2 * ROUNDOFF["f32"] + _BLOCK_ROUNDOFF) * magnitude + 1e-30
    assert found.shape == exact.shape
    error = np.abs(found.astype(np.float64) - exact)
    assert (error <= limit).all(), f"{(error - limit).max()} too far"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_scales_of_any_kind(size: tuple[int, int, int], kind: str, side: str) -> None:
    m, n, k = size
    a, b = random((m, k), E4M3, seed=1), np.asfortranarray(random((k, n), E4M3, seed=2))
    factors = (a, b, *scales(kind, size))
    found = run(side, scaled_matmul, *factors, out=poisoned((m, n), DTYPES["bf16"]))
    close(found, factors, dtype="bf16")


@pytest.mark.parametrize("kind", SCALES)
def test_definition_is_what_it_says(kind: str) -> None:
    size = (37, 150, 272)
    a, b = random((37, 272), E4M3, seed=1), random((272, 150), E4M3, seed=2)
    factors = (a, b, *scales(kind, size))
    close(definition(*factors, out_dtype=float32), factors, dtype="f32")


@pytest.mark.parametrize("result", [bfloat16, float16, float32], ids=str)
@pytest.mark.parametrize("kind", F8)
def test_dtypes_and_bias(kind: str, result: Any) -> None:
    size = (37, 150, 272)
    a, b = random((37, 272), F8[kind], seed=1), random((272, 150), F8[kind], seed=2)
    bias = random((150,), DTYPES[result.name], seed=3, scale=20.0)
    factors = (a, b, *scales("blocks", size))
    found = scaled_matmul(*factors, bias=bias, out_dtype=result)
    assert isinstance(found, np.ndarray)
    close(found, factors, bias=bias, dtype=result.name)


def cut(array: HostArray, layout: str) -> HostArray:
    """Return the same numbers, laid out otherwise."""
    rows, columns = array.shape
    if layout == "transposed":
        return np.asfortranarray(array)
    wide = np.zeros((2 * rows, 2 * columns + 3), array.dtype)
    view = {
        "odd rows": wide[:rows, :columns],
        "every other": wide[::2, :-3:2],
        "backwards": wide[rows - 1 :: -1, columns - 1 :: -1],
    }[layout]
    view[:] = array
    return view


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("layout", ["transposed", "odd rows", "every other"])
@pytest.mark.parametrize("name", ["a", "b", "a_scale", "b_scale", "out"])
def test_what_lies_otherwise_is_copied(name: str, layout: str, side: str) -> None:
    size = (70, 150, 272)
    a, b = random((70, 272), E4M3, seed=1), np.asfortranarray(random((272, 150), E4M3, seed=2))
    left, right = scales("blocks", size)
    given = {
        "a": a,
        "b": b,
        "a_scale": left,
        "b_scale": right,
        "out": poisoned((70, 150), DTYPES["bf16"]),
    }
    given[name] = cut(given[name], layout)
    out = given.pop("out")
    found = run(side, scaled_matmul, *given.values(), out=out)
    close(found, tuple(given.values()), dtype="bf16")


def test_rows_may_run_backwards() -> None:
    size = (70, 150, 272)
    a = cut(random((70, 272), E4M3, seed=1), "backwards")
    b = np.asfortranarray(random((272, 150), E4M3, seed=2))
    factors = (a, b, *(cut(scale, "backwards") for scale in scales("blocks", size)))
    found = scaled_matmul(*factors)
    assert isinstance(found, np.ndarray)
    close(found, factors, dtype="bf16")


def test_nothing_along_k_gives_the_bias() -> None:
    a, b, one = np.zeros((3, 0), E4M3), np.zeros((0, 8), E4M3), np.ones((), np.float32)
    bias = random((8,), DTYPES["bf16"], seed=1)
    found = scaled_matmul(a, b, one, one, bias=bias, out=poisoned((3, 8), DTYPES["bf16"]))
    np.testing.assert_array_equal(found, np.broadcast_to(bias, (3, 8)))


@pytest.mark.parametrize("shape", [(0, 32, 8), (4, 32, 0)])
def test_results_without_elements(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    one = np.ones((), np.float32)
    assert scaled_matmul(np.zeros((m, k), E4M3), np.zeros((k, n), E4M3), one, one).shape == (m, n)


@pytest.mark.gpu
@requires_gpu()
@pytest.mark.parametrize("kind", ["one", "rows", "blocks"])
@pytest.mark.parametrize("size", [(1000, 2056, 1040), (16, 4096, 2048), (200, 136, 4096)], ids=str)
def test_every_tile_on_a_gpu(size: tuple[int, int, int], kind: str) -> None:
    m, n, k = size
    a, b = random((m, k), E4M3, seed=1), np.asfortranarray(random((k, n), E4M3, seed=2))
    factors = (a, b, *scales(kind, size))
    found = run("gpu", scaled_matmul, *factors, out=poisoned((m, n), DTYPES["bf16"]))
    close(found, factors, dtype="bf16")


def wrong(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "a": np.zeros((4, 272), E4M3),
        "b": np.zeros((272, 150), E4M3),
        "a_scale": np.ones((4, 3), np.float32),
        "b_scale": np.ones((3, 2), np.float32),
    }
    return given | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": np.zeros((4, 272), np.float16)}, "one dtype"),
        ({"a": np.zeros((4, 272), np.float16), "b": np.zeros((272, 150), np.float16)}, "tw.matmul"),
        ({"b": np.zeros((256, 150), E4M3)}, r"\(4, 272\) and \(256, 150\)"),
        ({"a": np.zeros((4, 17), E4M3), "b": np.zeros((17, 150), E4M3)}, "K is 17; .* pad"),
        ({"a_scale": np.ones((4, 3))}, "a_scale has dtype f64"),
        ({"a_scale": np.ones((4, 2), np.float32)}, r"shape \(4, 2\) with M = 4 and K = 272"),
        ({"b_scale": np.ones((3, 150), np.float32)}, r"\[1, N\] or \[ceil"),
        ({"b_scale": np.ones((150,), np.float32)}, r"shape \(150,\) with K = 272 and N = 150"),
        ({"a_scale": None}, "a_scale"),
        ({"bias": np.zeros((150,), np.float32)}, "bias has dtype f32"),
        ({"bias": np.zeros((149,), DTYPES["bf16"])}, r"shape \(150,\)"),
        ({"out_dtype": int32}, "one of bf16, f16, f32"),
        ({"out": np.zeros((150, 4), DTYPES["bf16"])}, r"the result has \(4, 150\)"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        scaled_matmul(**wrong(**changes))
