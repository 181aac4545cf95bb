"""Tiles from nothing, and tiles of another shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import lower_text, run_text


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.arange(0, 8)", np.arange(8)),
        ("tl.arange(-3, 5)", np.arange(-3, 5)),
        ("tl.full((8,), 7, tl.int32)", np.full(8, 7)),
        ("tl.full(8, n, tl.float32)", np.full(8, 3)),
        ("tl.full([8], -1, tl.uint8)", np.full(8, 255)),
        ("tl.zeros(8, tl.float16)", np.zeros(8)),
        ("tl.zeros_like(tl.arange(0, 8))", np.zeros(8)),
        ("tl.broadcast_to(n, 8)", np.full(8, 3)),
        ("tl.broadcast_to(5, (8,))", np.full(8, 5)),
        ("tl.ravel(tl.broadcast_to(tl.arange(0, 2)[:, None], (2, 4)))", np.repeat([0, 1], 4)),
        ("tl.ravel(tl.broadcast_to(tl.arange(0, 4), (2, 4)))", np.tile(np.arange(4), 2)),
        ("tl.ravel(tl.trans(tl.reshape(tl.arange(0, 8), (2, 4))))", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("tl.ravel(tl.reshape(tl.arange(0, 8), (2, 4)).T)", [0, 4, 1, 5, 2, 6, 3, 7]),
        (
            "tl.ravel(tl.trans(tl.reshape(tl.arange(0, 8), (2, 2, 2)), (2, 0, -2)))",
            np.arange(8).reshape(2, 2, 2).transpose(2, 0, 1).ravel(),
        ),
        ("tl.ravel(tl.expand_dims(tl.arange(0, 8), -1))", np.arange(8)),
    ],
)
def test_elements_are_numpys(expression: str, expected: object, tmp_path: Path) -> None:
    out = np.zeros(8, np.int64)
    text = f"@tl.kernel\ndef k(out, n):\n    tl.store(out + tl.arange(0, 8), {expression})\n"
    run_text(tmp_path, text, {"out": out, "n": 3})
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "expression",
    [
        "tl.reshape(t, 8)",
        "tl.ravel(t)",
        "tl.broadcast_to(t, (8,))",
        "t[:]",
        "tl.trans(t[None, :], (0, 1))[0 == 0 and None]",
    ],
)
def test_identity_builds_nothing(expression: str, tmp_path: Path) -> None:
    text = f"@tl.kernel\ndef k(n):\n    t = tl.arange(0, 8)\n    r = {expression}\n"
    names = [o.name for o in lower_text(tmp_path, text, n="i64").kernel.body.operations]
    assert [name for name in names if name not in ("arange", "expand_dims")] == ["return"]


def test_grid_is_read_as_i64(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out):
    place = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + 2 * tl.program_id(2))
    tl.static_assert(place.dtype == tl.int64)
    tl.store(out + place, place)
"""
    out = np.zeros(12, np.int64)
    run_text(tmp_path, text, {"out": out}, grid=(3, 2, 2))
    assert out.tolist() == list(range(12))
