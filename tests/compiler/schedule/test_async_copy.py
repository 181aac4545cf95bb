"""tl.async_copy: a load that runs ahead also where the loop stores, or the kernel is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.kernel_source import load_kernel, signature_of
from tilewright.errors import CompileError
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret import scheduled
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.hopper import why_not
from tilewright_compiler.schedule.plan import schedule_module

DOUBLED = """
@tl.kernel(divisible=("columns",))
def k(x, out, rows, columns, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        values = tl.async_copy(x + row * columns + lanes, mask=lanes < columns{other})
        tl.store(out + row * columns + lanes, values * 2, mask=lanes < columns)
"""


def optimized(tmp_path: Path, text: str, *, stages: int = 3, **types: Any) -> Module:
    kernel = load_kernel(tmp_path, text)
    signature = replace(signature_of(kernel, types, specialization="fast"), num_stages=stages)
    return optimize(lower_kernel(kernel, signature))


def doubled(tmp_path: Path, *, stages: int, dtype: str = "f32", other: str = "") -> Module:
    types: dict[str, Any] = {"x": f"*{dtype}", "out": f"*{dtype}", "rows": "i64"}
    types |= {"columns": "i64", "BLOCK": 64}
    return optimized(tmp_path, DOUBLED.format(other=other), stages=stages, **types)


def names(module: Module) -> list[str]:
    return [operation.name for operation in module.kernel.body.walk()]


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("rows", [0, 1, 2, 11])
def test_rows_arrive_in_time_and_in_full(rows: int, stages: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((rows, 48)).astype(np.float32)
    out = np.full_like(x, np.nan)
    arguments: dict[str, Any] = {"x": x, "out": out, "rows": rows, "columns": 48}
    module = schedule_module(doubled(tmp_path, stages=stages))
    scheduled.run(module, grid=(3, 1, 1), arguments=arguments)
    np.testing.assert_array_equal(out, 2 * x)


def test_a_loop_that_stores_copies_ahead(tmp_path: Path) -> None:
    assert names(schedule_module(doubled(tmp_path, stages=4))).count("async_copy") == 4
    plain = DOUBLED.replace("async_copy", "load")
    types: dict[str, Any] = {"x": "*f32", "out": "*f32", "rows": "i64", "columns": "i64"}
    types["BLOCK"] = 64
    loaded = schedule_module(optimized(tmp_path, plain.format(other=""), **types))
    assert "async_copy" not in names(loaded)


def test_one_stage_is_a_load(tmp_path: Path) -> None:
    found = names(schedule_module(doubled(tmp_path, stages=1)))
    assert "load" in found
    assert "async_copy" not in found


@pytest.mark.parametrize(("dtype", "other"), [("f32", ", other=1.0"), ("i8", "")])
def test_what_the_hardware_cannot_copy_goes_through_registers(
    dtype: str, other: str, tmp_path: Path
) -> None:
    module = schedule_module(doubled(tmp_path, stages=3, dtype=dtype, other=other))
    found = names(module)
    assert "async_copy" not in found
    assert "shared_store" in found
    x = np.arange(5 * 48).reshape(5, 48).astype({"f32": np.float32, "i8": np.int8}[dtype])
    out = np.zeros_like(x)
    arguments: dict[str, Any] = {"x": x, "out": out, "rows": 5, "columns": 48}
    scheduled.run(module, grid=(2, 1, 1), arguments=arguments)
    np.testing.assert_array_equal(out, x * np.int8(2))


def test_the_mark_survives_text(tmp_path: Path) -> None:
    module = doubled(tmp_path, stages=3)
    text = print_module(module)
    assert "ahead = true" in text
    assert print_module(parse_module(text)) == text


def test_the_copy_is_not_moved_out_of_its_loop(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out):
    total = tl.zeros([64], tl.float32)
    for i in range(0, 8):
        total += tl.async_copy(x + tl.arange(0, 64))
    tl.store(out + tl.arange(0, 64), total)
"""
    module = schedule_module(optimized(tmp_path, text, x="*f32", out="*f32"))
    assert "async_copy" in names(module)


def test_the_schedule_of_hopper_leaves_such_kernels_to_the_common_one(tmp_path: Path) -> None:
    reason = why_not(doubled(tmp_path, stages=3))
    assert reason is not None
    assert "tl.async_copy" in reason


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("tl.store(out + lanes, tl.async_copy(x + lanes))", "stands in no run-time `for`"),
        (
            "for i in range(n):\n    if i > 3:\n        y = tl.async_copy(x + lanes + i)\n"
            "        tl.store(out + lanes, y)",
            "stands in a run-time `if`",
        ),
        (
            "p = lanes\nfor i in range(n):\n    p = tl.async_copy(x + p).to(tl.int32) + "
            "tl.atomic_add(count, 1)\ntl.store(out + lanes, p)",
            "its address or mask depends on what its loop computes",
        ),
        (
            "p = lanes\nfor i in range(n):\n    while tl.load(count, volatile=True) < i:\n"
            "        pass\n    p += tl.async_copy(x + lanes + i).to(tl.int32)\n"
            "tl.store(out + lanes, p)",
            "its loop may wait for what another program writes",
        ),
    ],
)
def test_a_copy_that_cannot_run_ahead_is_refused(body: str, says: str, tmp_path: Path) -> None:
    lines = "\n".join(f"    {line}" for line in ("lanes = tl.arange(0, 64)\n" + body).split("\n"))
    text = f"@tl.kernel\ndef k(x, out, count, n):\n{lines}\n"
    module = optimized(tmp_path, text, x="*f32", out="*f32", count="*i32", n="i64")
    with pytest.raises(CompileError) as caught:
        schedule_module(module)
    assert says in str(caught.value)
    assert "tl.async_copy(" in str(caught.value)  # the line and its caret
    assert "^" in str(caught.value)


def test_a_copy_for_whose_stages_there_is_no_room_is_refused(tmp_path: Path) -> None:
    text = """
@tl.kernel
def k(x, out, n):
    lanes = tl.arange(0, 16384)
    total = tl.zeros((16384,), tl.float32)
    for step in tl.range(0, n, num_stages={stages}):
        total += tl.async_copy(x + step * 16384 + lanes)
    tl.store(out + lanes, total)
"""
    types: dict[str, Any] = {"x": "*f32", "out": "*f32", "n": "i64"}
    module = optimized(tmp_path, text.format(stages=4), **types)
    with pytest.raises(CompileError, match=r"a ring of 2 stages .* needs 131072 bytes"):
        schedule_module(module)
    # One stage is what such a loop may ask for: a load.
    other = tmp_path / "one"
    other.mkdir()
    schedule_module(optimized(other, text.format(stages=1), **types))
