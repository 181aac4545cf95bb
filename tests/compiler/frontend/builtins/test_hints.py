"""Promises: what they say to axis analysis and to the machine code, and when one is broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.kernel_source import load_kernel, lower_text, run_text, signature_of
from tilewright.errors import InterpreterError
from tilewright_compiler import driver
from tilewright_compiler.analysis.axis_info import AxisInfo, analyze
from tilewright_compiler.interpret.scheduled import run as run_scheduled
from tilewright_compiler.pipeline import schedule_signature
from tilewright_compiler.snapshots import Snapshots

COPY = """
@tl.kernel
def k(x, out, start):
    lanes = tl.arange(0, 256)
    source = {promise}
    tl.store(tl.multiple_of(out, 16) + lanes, tl.load(source))
"""
ALIGNED = "tl.multiple_of(x + start, 16) + lanes"


def _info(directory: Path, expression: str) -> AxisInfo:
    """Return what is known of an expression of `n` (i32), a tile `lanes` and a pointer `x`."""
    text = f"""
@tl.kernel
def k(x, n):
    lanes = tl.arange(0, 64)
    loaded = tl.load(x + lanes)
    result = {expression}
    tl.store(x + lanes, loaded)
"""
    module = lower_text(directory, text, x="*i32", n="i32")
    found = analyze(module)
    (info,) = (info for value, info in found.items() if value.name == "result")
    return info


@pytest.mark.parametrize(
    ("expression", "contiguity", "divisibility", "constancy"),
    [
        ("tl.multiple_of(n, 8)", 1, 8, 1),
        ("tl.multiple_of(n, 24)", 1, 8, 1),  # of 24 the power of two counts
        ("tl.multiple_of(lanes + n, 16)", 64, 16, 1),  # one run: its first element is element 0
        ("tl.multiple_of(loaded, 16)", 1, 1, 1),  # an element may lie inside a run
        ("tl.max_contiguous(loaded, 8)", 8, 1, 1),
        ("tl.max_contiguous(tl.multiple_of(loaded, 16), 16)", 16, 16, 1),
        ("tl.multiple_of(tl.max_contiguous(loaded, 16), 32)", 16, 16, 1),
        ("tl.max_contiguous(loaded, 100)", 4, 1, 1),
        ("tl.max_contiguous(loaded, 1024)", 64, 1, 1),  # no longer than the tile
        ("tl.max_constancy(loaded, 16)", 1, 1, 16),
        ("tl.multiple_of(x + n, 16)", 1, 16, 1),
    ],
)
def test_promise_is_known_to_axis_analysis(
    expression: str, contiguity: int, divisibility: int, constancy: int, tmp_path: Path
) -> None:
    info = _info(tmp_path, expression)
    assert (info.contiguity, info.divisibility, info.constancy) == (
        (contiguity,),
        (divisibility,),
        (constancy,),
    )


def test_each_axis_has_its_promise(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, n):
    lanes = tl.arange(0, 64)
    result = tl.multiple_of(lanes[:, None] * n + lanes[None, :], (4, 8))
    tl.store(x + result, 0)
"""
    module = lower_text(tmp_path, text, x="*i32", n="i32")
    (info,) = (info for value, info in analyze(module).items() if value.name == "result")
    # Along axis 0 nothing is known to be a run: the promise is about elements that begin one.
    assert info.divisibility == (1, 8)


@pytest.mark.parametrize(("promise", "wide"), [("x + start + lanes", False), (ALIGNED, True)])
def test_promised_alignment_widens_loads(promise: str, wide: bool, tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, COPY.format(promise=promise))
    signature = signature_of(kernel, {"x": "*f32", "out": "*f32", "start": "i64"})
    ptx = driver.show(kernel, signature, "ptx")
    assert ("ld.global.v4" in ptx or "ld.global.v2" in ptx) == wide


@pytest.mark.parametrize("start", [0, 4, 16])
def test_kept_promise_changes_nothing(start: int, tmp_path: Path) -> None:
    x, out = np.arange(512, dtype=np.float32), np.zeros(256, np.float32)
    run_text(tmp_path, COPY.format(promise=ALIGNED), {"x": x, "out": out, "start": start})
    np.testing.assert_array_equal(out, x[start : start + 256])
    kernel = load_kernel(tmp_path, COPY.format(promise=ALIGNED))
    signature = signature_of(kernel, {"x": "*f32", "out": "*f32", "start": "i64"})
    again = np.zeros(256, np.float32)
    run_scheduled(
        schedule_signature(kernel, signature, snapshots=Snapshots()),
        grid=(1, 1, 1),
        arguments={"x": x, "out": again, "start": start},
    )
    np.testing.assert_array_equal(again, out)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "a = tl.multiple_of(n, 16)",
            "tl.multiple_of promises multiples of 16, but the value is 8",
        ),
        ("a = tl.multiple_of(x + 1, 16)", "the address is"),
        ("a = tl.multiple_of(lanes + 1, 4)", "the value at (0,) is 1"),
        ("a = tl.multiple_of(lanes * 3, 2)", "the value at (1,) is 3"),
        ("a = tl.max_contiguous(lanes % 12, 8)", "runs of 8, but the value at (12,) is 0"),
        ("a = tl.max_contiguous(tl.zeros(16, tl.int32), 2)", "runs of 2"),
        ("a = tl.max_constancy(lanes, 2)", "2 equal elements each, but the value at (1,) is 1"),
        ("tl.assume(n > 100)", "tl.assume of what is false"),
    ],
)
def test_broken_promise_is_told(statement: str, says: str, tmp_path: Path) -> None:
    text = f"@tl.kernel\ndef k(x, n):\n    lanes = tl.arange(0, 16)\n    {statement}\n"
    x = np.zeros(64, np.float32)
    with pytest.raises(InterpreterError) as caught:
        run_text(tmp_path, text, {"x": x, "n": 8})
    assert says in str(caught.value)
    assert "kernels.py:4" in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "tl.multiple_of(lanes % 12, 4)",
        "tl.max_contiguous(tl.multiple_of(lanes % 8, 8), 8)",
        "tl.max_constancy(lanes // 4, 4)",
        "tl.max_constancy(tl.zeros(16, tl.int32), 16)",
        "tl.assume(n == 8)",
        "tl.multiple_of(-n, 8)",
    ],
)
def test_kept_promises_are_silent(statement: str, tmp_path: Path) -> None:
    text = f"@tl.kernel\ndef k(x, n):\n    lanes = tl.arange(0, 16)\n    {statement}\n"
    run_text(tmp_path, text, {"x": np.zeros(64, np.float32), "n": 8})


def test_promise_holds_only_where_it_stands(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(out, n):
    a = tl.multiple_of(n, 16) if n % 16 == 0 else n
    if n % 16 == 0:
        a = tl.multiple_of(a, 16) + 1
    tl.store(out, a)
"""
    for n in (16, 7):
        out = np.zeros(1, np.int64)
        run_text(tmp_path, text, {"out": out, "n": n})
        assert out[0] == n + (n == 16)


RESIDENT = """
@tl.kernel
def k(x, out):
    tl.resident({programs})
    lanes = tl.arange(0, 256)
    tl.store(out + lanes, tl.load(x + lanes))
"""


@pytest.mark.parametrize(("programs", "said"), [(1, None), (4, ".minnctapersm 4")])
def test_room_for_programs_is_asked_of_the_assembler(
    programs: int, said: str | None, tmp_path: Path
) -> None:
    text = RESIDENT.format(programs=programs)
    kernel = load_kernel(tmp_path, text)
    ptx = driver.show(kernel, signature_of(kernel, {"x": "*f32", "out": "*f32"}), "ptx")
    assert (said in ptx) if said else (".minnctapersm" not in ptx)
    x, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    run_text(tmp_path, text, {"x": x, "out": out})
    np.testing.assert_array_equal(out, x)
