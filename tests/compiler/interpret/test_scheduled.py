"""Scheduled kernels give what the interpreter gives, in every order in which warps may run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from helpers.interpreted_kernels import in_turn, row_softmax, strided_sum
from helpers.kernel_source import signature_of
from helpers.staged_kernels import KERNELS, arguments, optimized, types_of
from tilewright.abi.numpy_types import to_numpy
from tilewright.abi.signature import ConstexprValue, parse_dtype
from tilewright.errors import InterpreterError, OutOfBoundsError
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.interpret import scheduled, tile
from tilewright_compiler.interpret.numerics import Array
from tilewright_compiler.interpret.warp.agreement import differ
from tilewright_compiler.interpret.warp.copies import Copies
from tilewright_compiler.interpret.warp.shared_memory import SharedMemory
from tilewright_compiler.interpret.warp.traces import Access
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.plan import schedule_module

Types = dict[str, ConstexprValue]
Call = dict[str, tile.Argument]


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("name", ["product", "attention", "persistent"])
def test_any_number_of_iterations_and_any_order(name: str, trips: int, tmp_path: Path) -> None:
    values = arguments(name, trips=trips, tail=5 if name == "product" and trips else 0)
    module = optimized(tmp_path, KERNELS[name], types_of(values))
    schedule = schedule_module(module)
    expected = {**values, "out": values["out"].copy()}
    tile.run(module, grid=(1, 1, 1), arguments=expected)
    for seed in range(3):
        got = {**values, "out": values["out"].copy()}
        scheduled.run(schedule, grid=(1, 1, 1), arguments=got, seed=seed)
        np.testing.assert_array_equal(got["out"], expected["out"])


def test_programs_of_a_grid() -> None:
    types: Types = {"x": "*f32", "out": "*f32", "columns": "i64", "BLOCK": 64}
    module = optimize(lower_kernel(row_softmax, signature_of(row_softmax, types)))
    x = np.random.default_rng(0).standard_normal((5, 99)).astype(np.float32)
    out = np.zeros_like(x)
    call: Call = {"x": x, "out": out, "columns": 99}
    scheduled.run(schedule_module(module), grid=(5, 1, 1), arguments=call)
    exponentials = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, exponentials / exponentials.sum(1, keepdims=True), rtol=1e-6)


def test_loops_of_different_length_and_f64() -> None:
    types: Types = {"x": "*f64", "out": "*f64", "n": "i64", "BLOCK": 128}
    module = optimize(lower_kernel(strided_sum, signature_of(strided_sum, types)))
    x, out = np.arange(1000, dtype=np.float64), np.zeros(3)
    call: Call = {"x": x, "out": out, "n": 1000}
    scheduled.run(schedule_module(module), grid=(3, 1, 1), arguments=call)
    assert out.sum() == x.sum()


def test_accesses_outside_an_argument_are_found(tmp_path: Path) -> None:
    values = arguments("walking", trips=2)
    module = schedule_module(optimized(tmp_path, KERNELS["walking"], types_of(values)))
    short = {**values, "x": values["x"][:20]}
    with pytest.raises(OutOfBoundsError, match=r"program \(0, 0, 0\): async_copy of bf16 outside"):
        scheduled.run(module, grid=(1, 1, 1), arguments={**short, "x": short["x"].copy()})


def test_programs_that_wait_for_each_other_are_refused() -> None:
    types: Types = {"turn": "*i64", "out": "*i64", "n": "i64"}
    module = schedule_module(optimize(lower_kernel(in_turn, signature_of(in_turn, types))))
    call: Call = {"turn": np.zeros(1, np.int64), "out": np.zeros(2, np.int64), "n": 2}
    with pytest.raises(InterpreterError, match="runs no programs that wait"):
        scheduled.run(module, grid=(2, 1, 1), arguments=call)


CHECKED = """
@tl.kernel
def checked(n, out):
    tl.device_assert(n > 2, "more than two")
    tl.store(out, 1)
"""


@pytest.mark.parametrize("n", [2, 3])
def test_asserts_are_checked(n: int, tmp_path: Path) -> None:
    module = optimized(tmp_path, CHECKED, {"n": "i64", "out": "*i32"})
    schedule = schedule_module(module)
    out = np.zeros(1, np.int32)
    call: Call = {"n": n, "out": out}
    if n > 2:
        scheduled.run(schedule, grid=(1, 1, 1), arguments=call)
        assert out[0] == 1
        return
    with pytest.raises(InterpreterError, match="device_assert failed: more than two") as expected:
        tile.run(module, grid=(1, 1, 1), arguments=call)
    with pytest.raises(InterpreterError) as got:
        scheduled.run(schedule, grid=(1, 1, 1), arguments=call)
    assert str(got.value) == str(expected.value)
    assert out[0] == 0


REDUCED = """
@tl.kernel
def reduced(x, whole, of_rows, moved):
    rows, columns = tl.arange(0, 16), tl.arange(0, 32)
    values = tl.load(x + rows[:, None] * 32 + columns[None, :])
    tl.store(whole, tl.{kind}(tl.reshape(values, (512,)), axis=0))
    row = tl.{kind}(values, axis=1)
    tl.store(of_rows + rows, row)
    tl.store(moved + columns, tl.{kind}(tl.trans(values) + row[None, :], axis=1))
"""


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("kind", ["sum", "max", "argmax"])
def test_threads_may_hold_different_nans(kind: str, dtype: str, tmp_path: Path) -> None:
    result = "i32" if kind == "argmax" else dtype
    outputs = dict.fromkeys(["whole", "of_rows", "moved"], f"*{result}")
    types: Types = {"x": f"*{dtype}", **outputs}
    module = optimized(tmp_path, REDUCED.format(kind=kind), types)
    schedule = schedule_module(module)
    some = np.array([np.inf, -np.inf, np.nan, 1, 2, -np.inf, -np.nan, np.inf])
    x = np.tile(some, 64).astype(to_numpy(parse_dtype(dtype)))
    empty = np.zeros(32, to_numpy(parse_dtype(result)))
    expected: Call = {"x": x, **{name: empty.copy() for name in outputs}}
    got: Call = {"x": x, **{name: empty.copy() for name in outputs}}
    tile.run(module, grid=(1, 1, 1), arguments=expected)
    for seed in range(3):
        scheduled.run(schedule, grid=(1, 1, 1), arguments=got, seed=seed)
        for name in outputs:
            ours, theirs = np.asarray(got[name]), np.asarray(expected[name])
            np.testing.assert_array_equal(ours.astype(np.float64), theirs.astype(np.float64))


def test_only_nans_are_equal_with_different_bits() -> None:
    nans = np.array([0x7FC00000, 0xFFC00001, 0x80000000, 0x3F800000], np.uint32).view(np.float32)
    others = np.array([0x7FC00001, 0x7F800001, 0x00000000, 0x7FC00000], np.uint32).view(np.float32)
    assert differ(nans, others).tolist() == [False, False, True, True]
    assert differ(nans.view(np.int32), others.view(np.int32)).all()


def test_copies_read_and_arrive_early_and_late() -> None:
    """Over many seeds, a copy reads its source at its start and at its end, and arrives at both."""
    seen = set()
    for seed in range(60):
        memory = SharedMemory(size_bytes=4, granule=4, where="a test")
        copies = Copies(memory, Random(seed))
        source = np.array([1], np.uint32)
        operation = Operation("async_copy")

        def fetch(source: Array = source) -> Array:
            return source.copy().view(np.uint8).reshape(1, 4)

        copies.start(
            memory.start(
                np.array([0]),
                np.array([0]),
                4,
                fetch=fetch,
                end=lambda: None,
                access=Access(operation, 0, operation),
            )
        )
        group = copies.commit()
        copies.let_some_arrive()
        has_arrived = memory._units[0] == 1
        source[0] = 2
        assert copies.wait(0) == group + 1
        seen.add((bool(has_arrived), int(memory._units[0])))
    assert seen == {(True, 1), (False, 1), (False, 2)}
