"""What only arranges elements, run in every way, against NumPy on the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.every_way import lower_text, run_every_way
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.emit.module import emit_module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "i64": np.dtype(np.int64),
    "f64": np.dtype(np.float64),
}


def _bits(count: int, dtype: np.dtype[Any]) -> Array:
    random = np.random.default_rng(count)
    if dtype == np.bool_:
        return random.integers(0, 2, count).astype(np.bool_)
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).copy()


def _kernel(expression: str, shape: tuple[int, ...], result: tuple[int, ...]) -> str:
    size, total = int(np.prod(shape)), int(np.prod(result))
    return (
        "@tl.kernel\ndef k(x, y, out):\n"
        f"    places = tl.reshape(tl.arange(0, {size}), {shape})\n"
        "    a, b = tl.load(x + places), tl.load(y + places)\n"
        f"    tl.store(out + tl.reshape(tl.arange(0, {total}), {result}), {expression})\n"
    )


ARRANGED: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "join": ("tl.join(a, b)", lambda a, b: np.stack([a, b], -1)),
    "interleave": (
        "tl.interleave(a, b)",
        lambda a, b: np.stack([a, b], -1).reshape(*a.shape[:-1], -1),
    ),
    "cat": ("tl.cat(a, b)", lambda a, b: np.concatenate([a, b], 0)),
    "cat last": ("tl.cat(a, b, dim=-1)", lambda a, b: np.concatenate([a, b], -1)),
    "permute": ("tl.permute(a, (1, 0))", lambda a, _: a.T),
    "permute by items": ("tl.permute(a, 1, 0)", lambda a, _: a.T),
    "trans": ("tl.trans(a, order=(1, 0))", lambda a, _: a.T),
    "flip": ("tl.flip(a, 0)", lambda a, _: a[::-1]),
    "flip last": ("tl.flip(a, -1)", lambda a, _: a[:, ::-1]),
    "flip both": ("tl.flip(tl.flip(a, 0), 1)", lambda a, _: a[::-1, ::-1]),
    "split": ("tl.split(tl.join(a, b))[1]", lambda _, b: b),
    "halves": (
        "tl.split(tl.permute(tl.reshape(a, (a.shape[0], 2, a.shape[1] // 2)), 0, 2, 1))[1]",
        lambda a, _: a[:, a.shape[1] // 2 :],
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["join", "cat last", "flip last", "flip both", "halves"])
def test_elements_keep_their_bits(name: str, dtype: str) -> None:
    _check(name, (8, 32), DTYPES[dtype], num_warps=2)


@pytest.mark.parametrize(
    ("shape", "num_warps"),
    [((2, 2), 1), ((64, 2), 4), ((128, 16), 4), ((2, 512), 8)],
    ids=str,
)
@pytest.mark.parametrize("name", ARRANGED)
def test_any_shape_and_number_of_warps(name: str, shape: tuple[int, int], num_warps: int) -> None:
    _check(name, shape, DTYPES["f32"], num_warps=num_warps)


def _check(name: str, shape: tuple[int, int], dtype: np.dtype[Any], *, num_warps: int) -> None:
    expression, truth = ARRANGED[name]
    a, b = _bits(2 * shape[0] * shape[1], dtype).reshape(2, *shape)
    expected = np.ascontiguousarray(truth(a, b))
    text = _kernel(expression, shape, expected.shape)
    arrays = {"x": a.ravel(), "y": b.ravel(), "out": np.zeros(expected.size, dtype)}
    found = run_every_way(text, arrays, num_warps=num_warps)["out"]
    bits = f"u{dtype.itemsize}"
    np.testing.assert_array_equal(found.view(bits), expected.ravel().view(bits))


@pytest.mark.parametrize("size", [32, 512, 4096])
@pytest.mark.parametrize("num_warps", [1, 4])
def test_a_line_is_reversed(size: int, num_warps: int) -> None:
    text = (
        "@tl.kernel\ndef k(x, out):\n"
        f"    places = tl.arange(0, {size})\n"
        "    tl.store(out + places, tl.flip(tl.load(x + places)))\n"
    )
    x = np.arange(size, dtype=np.int16)
    arrays = {"x": x, "out": np.zeros_like(x)}
    found = run_every_way(text, arrays, num_warps=num_warps)
    np.testing.assert_array_equal(found["out"], x[::-1])


def test_pairs_that_a_thread_holds_are_split_and_joined_by_names_alone() -> None:
    text = (
        "@tl.kernel\ndef k(x, out):\n"
        "    places = tl.arange(0, 512)[:, None] * 2 + tl.arange(0, 2)\n"
        "    left, right = tl.split(tl.load(x + places))\n"
        "    tl.store(out + places, tl.join(left - right, left + right))\n"
    )
    x = np.arange(1024, dtype=np.float32)
    arrays = {"x": x, "out": x}
    module = schedule_module(optimize(lower_text(text, arrays, specialization="fast")))
    ptx = lower_to_ptx(emit_module(module)).text
    assert "v2.b32" in ptx
    assert "shfl" not in ptx
    assert "selp" not in ptx
    assert "bar.sync" not in ptx
