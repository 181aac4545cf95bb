"""Pipelined loops: equal to the bit for every number of stages, and pipelined where they can be."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.staged_kernels import BLOCKS, KERNELS, Arguments, arguments, optimized, types_of
from tilewright.abi.signature import Specialization
from tilewright.errors import ScheduleError
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.ir.builder import rewrite_module
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.schedule.plan import schedule_module

STAGES = (1, 2, 4)


def staged(module: Module, stages: int) -> Module:
    """Schedule a kernel as if its signature asked for that many stages."""
    signature = replace(module.signature, num_stages=stages)
    result = schedule_module(Module(module.functions, signature, dict(module.attributes)))
    verify(result)
    return result


def operations(module: Module, *names: str) -> list[Operation]:
    return [operation for operation in module.kernel.body.walk() if operation.name in names]


def loops(module: Module) -> list[Operation]:
    return operations(module, "for")


def direct(loop: Operation) -> list[str]:
    return [operation.name for operation in loop.regions[0].operations]


def check(module: Module, *launches: Arguments, stages: tuple[int, ...] = STAGES) -> None:
    """Run every schedule under the checker; each must leave what the interpreter does."""
    schedules = {count: staged(module, count) for count in stages}
    for values in launches:
        grid = (3 if "tiles" in values else 1, 1, 1)
        expected = copy.deepcopy(values)
        tile.run(module, grid=grid, arguments=expected)
        for count, schedule in schedules.items():
            got = copy.deepcopy(values)
            scheduled.run(schedule, grid=grid, arguments=got, seed=count)
            np.testing.assert_array_equal(got["out"], expected["out"], err_msg=f"{count} stages")


@pytest.mark.parametrize("specialization", ["fast", "general"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_number_of_stages_gives_equal_bits(
    name: str, specialization: Specialization, tmp_path: Path
) -> None:
    types = types_of(arguments(name, trips=1))
    module = optimized(tmp_path, KERNELS[name], types, specialization=specialization)
    ragged = name in ("product", "gather", "attention", "row_sum")
    launches = [
        arguments(name, trips=trips, tail=3 if ragged and trips else 0) for trips in (0, 1, 2, 5)
    ]
    check(module, *launches)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float8_e4m3fn"])
def test_operands_of_every_width(dtype: str, tmp_path: Path) -> None:
    values = arguments("walking", trips=3, dtype=dtype)
    if dtype == "int8":
        values["out"] = values["out"].astype(np.int32)
    text = KERNELS["walking"].replace("tl.float32", "tl.int32") if dtype == "int8" else None
    module = optimized(tmp_path, text or KERNELS["walking"], types_of(values))
    check(module, values, stages=(1, 3))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_barrier_is_needed(name: str, stages: int, tmp_path: Path) -> None:
    module = optimized(tmp_path, KERNELS[name], types_of(arguments(name, trips=1)))
    result = staged(module, stages)
    for barrier in operations(result, "barrier"):
        with pytest.raises(ScheduleError):
            run_without(result, barrier, name)


def run_without(module: Module, left_out: Operation, name: str) -> None:
    """Run a schedule without an operation: which iteration meets which slot, their number says."""

    def rewrite(operation: Operation, _operands: object, _builder: object) -> tuple[()] | None:
        return () if operation is left_out else None

    for trips in (4, 5, 3, 0):
        values = arguments(name, trips=trips)
        scheduled.run(rewrite_module(module, rewrite), grid=(1, 1, 1), arguments=values)


# The last iterations end at the largest number of the type, or the first begin at the smallest.
_ENDS = [
    (dtype, first, last)
    for dtype, low, high in (
        (np.int32, -(2**31), 2**31 - 1),
        (np.int64, -(2**63), 2**63 - 1),
        (np.uint32, 0, 2**32 - 1),
        (np.uint64, 0, 2**64 - 1),
    )
    for first, last in ((high - 40, high), (low, low + 40), (high - 3, high), (high, low))
]


@pytest.mark.parametrize(("dtype", "first", "last"), _ENDS)
def test_no_bound_wraps(dtype: Any, first: int, last: int, tmp_path: Path) -> None:
    values = arguments("product", trips=1)
    values |= {"first": dtype(first), "last": dtype(last), "step": dtype(16)}
    values["pitch"] = np.int64(values["pitch"])
    text = KERNELS["product"].replace(
        "start - first + inner", "(start - first).to(tl.int32) + inner"
    )
    text = text.replace("depth < last - first", "depth < 40")
    module = optimized(tmp_path, text, types_of(values))
    check(module, values, stages=(1, 2, 4))


def test_a_step_of_any_size_ends_the_loop(tmp_path: Path) -> None:
    values = arguments("product", trips=1)
    values |= {"first": np.int64(-(2**63)), "last": np.int64(2**63 - 1)}
    text = KERNELS["product"].replace(
        "start - first + inner", "(start >> 60).to(tl.int32) + 8 + inner"
    )
    text = text.replace("depth < last - first", "depth < 16")
    for step in (2**62, 2**63 - 1):
        values["step"] = np.int64(step)
        module = optimized(tmp_path, text, types_of(values))
        check(module, values, stages=(1, 2, 4, 5))


@pytest.mark.parametrize("specialization", ["fast", "general"])
def test_no_iteration_is_fetched_that_there_is_not(
    specialization: Specialization, tmp_path: Path
) -> None:
    values = arguments("walking", trips=11)
    module = optimized(
        tmp_path, KERNELS["walking"], types_of(values), specialization=specialization
    )
    # The rows of the last iteration are the last there are.
    assert values["last"] == values["y"].shape[0]
    nothing = dict.fromkeys(("x", "y"), values["x"][:1, :1])
    check(module, values, *({**values, **nothing, "last": last} for last in (0, -16, -(2**63))))


def test_a_matmul_waits_and_meets_once_an_iteration(tmp_path: Path) -> None:
    module = optimized(tmp_path, KERNELS["walking"], types_of(arguments("walking", trips=1)))
    for stages in (2, 3, 4):
        (loop,) = loops(staged(module, stages))
        body = direct(loop)
        assert [body.count(name) for name in ("async_wait", "barrier", "async_commit")] == [1, 1, 1]
        assert not {"load", "shared_load", "convert_layout"} & set(body)
        (wait,) = (o for o in loop.regions[0].operations if o.name == "async_wait")
        assert wait.attributes["pending"] == stages - 2


def test_unaligned_tiles_go_through_registers_and_meet_once_an_iteration(tmp_path: Path) -> None:
    types = types_of(arguments("walking", trips=1))
    module = optimized(tmp_path, KERNELS["walking"], types, specialization="general")
    for stages in (2, 4):
        result = staged(module, stages)
        (loop,) = loops(result)
        body = direct(loop)
        assert not operations(result, "async_copy", "async_commit", "async_wait")
        assert body.count("barrier") == 1
        # Loaded before the dot, stored after it: the dot hides the latency.
        assert body.index("if") < body.index("dot") < body.index("shared_store")


def test_attention_meets_once_an_iteration_beside_what_it_exchanges(tmp_path: Path) -> None:
    module = optimized(tmp_path, KERNELS["attention"], types_of(arguments("attention", trips=1)))
    result = staged(module, 3)
    (loop,) = loops(result)
    body = loop.regions[0].operations
    exchanges = [o for o in body if o.name != "alloc_shared" and "shared_offset" in o.attributes]
    stored = [o for o in body if o.name == "shared_store"]
    # Each tile of weights is stored for the second dot to read, and that is one more meeting.
    assert [o.name for o in exchanges] == ["reduce"]
    assert direct(loop).count("barrier") == 1 + len(stored)
    assert len(operations(result, "async_copy")) == 3 * 3


def test_the_slice_of_a_gather_runs_at_issue(tmp_path: Path) -> None:
    module = optimized(tmp_path, KERNELS["gather"], types_of(arguments("gather", trips=1)))
    (loop,) = loops(staged(module, 3))
    guard = next(o for o in loop.regions[0].operations if o.name == "if")
    inside = [operation.name for operation in guard.regions[0].operations]
    assert "load" in inside[: inside.index("async_copy")]
    assert "load" not in direct(loop)


def test_a_loop_that_stores_is_left_alone(tmp_path: Path) -> None:
    module = optimized(tmp_path, KERNELS["storing"], types_of(arguments("storing", trips=1)))
    assert not operations(staged(module, 4), "shared_slot", "async_copy")


def test_the_loop_around_a_pipelined_loop_may_store(tmp_path: Path) -> None:
    types = types_of(arguments("persistent", trips=1))
    outer, inner = loops(staged(optimized(tmp_path, KERNELS["persistent"], types), 3))
    assert "async_wait" in direct(inner)
    assert {"store", "alloc_shared"} <= set(direct(outer))


def test_a_loop_without_dots_runs_ahead_where_it_asks_to_and_meets_nobody(tmp_path: Path) -> None:
    values = arguments("row_sum", trips=1)
    text = KERNELS["row_sum"].replace(", mask=(at < last)[None, :]", "")
    result = staged(optimized(tmp_path, text, types_of(values)), 1)
    assert operations(result, "async_copy")
    assert not operations(result, "barrier")
    plain = text.replace(", num_stages=4", "")
    assert not operations(staged(optimized(tmp_path, plain, types_of(values)), 4), "async_copy")


def test_addresses_alone_are_not_carried_twice(tmp_path: Path) -> None:
    module = optimized(tmp_path, KERNELS["walking"], types_of(arguments("walking", trips=1)))
    (before,) = loops(module)
    (after,) = loops(staged(module, 3))
    # Pointers of the iteration itself are gone; two tokens and two counters are new.
    assert len(after.results) == len(before.results) + 4


def test_a_fill_that_is_not_zero_goes_through_registers(tmp_path: Path) -> None:
    values = arguments("walking", trips=3)
    text = KERNELS["walking"].replace(
        "tl.load(a), tl.load(b)", "tl.load(a, mask=start < 16, other=1.0), tl.load(b)"
    )
    module = optimized(tmp_path, text, types_of(values))
    assert len(operations(staged(module, 3), "async_copy")) == 3
    check(module, values)


def test_one_stage_reads_operands_where_they_are_stored(tmp_path: Path) -> None:
    module = optimized(tmp_path, KERNELS["walking"], types_of(arguments("walking", trips=1)))
    (loop,) = loops(staged(module, 1))
    body = direct(loop)
    assert body.count("shared_store") == body.count("barrier") == 2
    assert "convert_layout" not in body
    assert BLOCKS["BK"] == 16
