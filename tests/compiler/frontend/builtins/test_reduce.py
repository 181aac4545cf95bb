"""Reductions: axes, kept axes, the dtype that accumulates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text
from tilewright_compiler.passes.inline import inline

TEXT = """
@tl.kernel
def k(x, out):
    i = tl.arange(0, 4)
    j = tl.arange(0, 8)
    tile = tl.load(x + i[:, None] * 8 + j)
    r = {expression}
    tl.store({pointer}, r)
"""
DATA = np.array([[(7 * i + 3 * j) % 11 - 4 for j in range(8)] for i in range(4)], np.int64)


@pytest.mark.parametrize(
    ("expression", "pointer", "expected"),
    [
        ("tl.sum(tile, 1)", "out + i", DATA.sum(1)),
        ("tl.sum(tile, axis=0)", "out + j", DATA.sum(0)),
        ("tl.sum(tile, axis=-1)", "out + i", DATA.sum(1)),
        ("tl.sum(tile)", "out", DATA.sum()),
        ("tl.max(tile, 1)", "out + i", DATA.max(1)),
        ("tl.min(tile, 0)", "out + j", DATA.min(0)),
        ("tl.max(tile)", "out", DATA.max()),
        ("tl.sum(tile, 1, keep_dims=True)", "out + i[:, None]", DATA.sum(1)),
        ("tl.max(tile, 0, keep_dims=True)", "out + j[None, :]", DATA.max(0)),
        ("tl.sum(tile, keep_dims=True)", "out + tl.zeros((1, 1), tl.int32)", DATA.sum()),
        ("tl.sum(tile > 0, 1)", "out + i", (DATA > 0).sum(1)),
        ("tl.max(tile > 5, 1)", "out + i", (DATA > 5).any(1)),
        ("tl.min(tile > -3, 1)", "out + i", (DATA > -3).all(1)),
    ],
)
def test_reduction_is_numpys(
    expression: str, pointer: str, expected: object, tmp_path: Path
) -> None:
    out = np.full(8, -99, np.int64)
    text = TEXT.format(expression=expression, pointer=pointer)
    run_text(tmp_path, text, {"x": DATA, "out": out})
    wanted = np.atleast_1d(np.asarray(expected, np.int64))
    np.testing.assert_array_equal(out, [*wanted, *[-99] * (8 - len(wanted))])


@pytest.mark.parametrize(
    ("expression", "dtype", "operations"),
    [
        ("tl.sum(tile, 1)", "f16", ["cast f32", "reduce f32", "cast f16"]),
        ("tl.sum(tile, 1)", "bf16", ["cast f32", "reduce f32", "cast bf16"]),
        ("tl.sum(tile, 1)", "f32", ["reduce f32"]),
        ("tl.sum(tile, 1)", "i8", ["cast i32", "reduce i32"]),
        ("tl.sum(tile, 1)", "u16", ["cast u32", "reduce u32"]),
        ("tl.sum(tile, 1)", "u64", ["reduce u64"]),
        ("tl.sum(tile)", "f16", ["cast f32", "reduce f32", "reduce f32", "cast f16"]),
        ("tl.max(tile, 1)", "f16", ["reduce f16"]),
        ("tl.max(tile, 1)", "i8", ["reduce i8"]),
        ("tl.sum(tile, 1, dtype=tl.float32)", "f16", ["cast f32", "reduce f32"]),
        ("tl.sum(tile, 1, dtype=tl.int8)", "i8", ["cast i32", "reduce i32", "cast i8"]),
        ("tl.xor_sum(tile, 1)", "u8", ["reduce u8"]),
        ("tl.cumsum(tile, 1)", "bf16", ["cast f32", "scan f32", "cast bf16"]),
        ("tl.cumprod(tile, 1)", "u8", ["cast u32", "scan u32"]),
        ("tl.cumsum(tile, 0, dtype=tl.float64)", "i64", ["cast f64", "scan f64"]),
        ("tl.reduce(tile, 0, tl.maximum)", "f16", ["reduce_with f16"]),
        ("tl.associative_scan(tile, 1, tl.minimum)", "i8", ["scan i8"]),
    ],
)
def test_reduction_accumulates_in_its_dtype(
    expression: str, dtype: str, operations: list[str], tmp_path: Path
) -> None:
    text = (
        "@tl.kernel\ndef k(x):\n    tile = tl.load(x + tl.zeros((4, 8), tl.int32))\n"
        f"    r = {expression}\n"
    )
    module = lower_text(tmp_path, text, x=f"*{dtype}")
    body = module.kernel.body.operations
    start = [operation.name for operation in body].index("load") + 1
    found = [(o.name, str(o.result.type).split("x")[-1].rstrip(">")) for o in body[start:-1]]
    assert [f"{name} {type_}" for name, type_ in found] == operations


@pytest.mark.parametrize(
    ("expression", "kinds"),
    [
        ("tl.max(tile, 1, return_indices=True)", ["max", "max", "min"]),
        ("tl.argmin(tile)", ["min", "min"]),
        ("tl.reduce_or(tile > 0)", ["or", "or"]),
    ],
)
def test_an_extremum_and_its_place_are_plain_reductions(
    expression: str, kinds: list[str], tmp_path: Path
) -> None:
    text = (
        "@tl.kernel\ndef k(x):\n    tile = tl.load(x + tl.zeros((4, 8), tl.int32))\n"
        f"    r = {expression}\n"
    )
    module = lower_text(tmp_path, text, x="*f32")
    reductions = [o for o in module.kernel.body.walk() if o.name == "reduce"]
    assert [operation.attributes["kind"] for operation in reductions] == kinds


def test_a_function_of_the_language_and_a_kernel_make_one_region(tmp_path: Path) -> None:
    regions = []
    for function in ("tl.maximum", "larger"):
        text = (
            "@tl.kernel\ndef larger(a, b):\n    return tl.maximum(a, b)\n"
            "@tl.kernel\ndef k(x):\n    tile = tl.load(x + tl.zeros((8,), tl.int32))\n"
            f"    r = tl.reduce(tile, 0, {function})\n"
        )
        module = inline(lower_text(tmp_path, text, x="*f32"))
        (operation,) = (o for o in module.kernel.body.walk() if o.name == "reduce_with")
        regions.append([inner.name for inner in operation.regions[0].operations])
    assert regions == [["max", "yield"], ["max", "yield"]]


def test_a_kernel_is_lowered_once_for_many_reductions(tmp_path: Path) -> None:
    text = (
        "@tl.kernel\ndef larger(a, b):\n    return tl.maximum(a, b)\n"
        "@tl.kernel\ndef k(x):\n    tile = tl.load(x + tl.zeros((8,), tl.int32))\n"
        "    r = tl.reduce(tile, 0, larger)\n    s = tl.associative_scan(tile, 0, larger)\n"
        "    t = tl.reduce(tile.to(tl.float64), 0, larger)\n"
    )
    assert len(lower_text(tmp_path, text, x="*f32").functions) == 3
