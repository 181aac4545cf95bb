"""Control flow where programs agree, where they part, and where they wait for each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.kernel_source import run_text
from tilewright.errors import InterpreterError, OutOfBoundsError
from tilewright_compiler.interpret.tile import run
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.verifier import verify

LOAD = '{cache = "", eviction = ""}'


def kernel(signature: str, body: str, functions: str = "") -> Module:
    """Return a module whose kernel has that body; `signature` lists `name:type` as it prints."""
    parameters = [part.strip().split(":") for part in signature.split(",")]
    arguments = ", ".join(
        f"%{name}: ptr<{kind[1:]}>" if kind[0] == "*" else f"%{name}: {kind}"
        for name, kind in parameters
    )
    module = parse_module(
        f"signature ({signature}) general num_warps=4 num_stages=3\n"
        f"kernel @k({arguments}) {{\n%pid = program_id {{axis = 0}} : i64\n"
        f"{body}\nreturn\n}}\n{functions}"
    )
    verify(module)
    return module


def launch(module: Module, programs: int, **arguments: Any) -> None:
    run(module, grid=(programs, 1, 1), arguments=arguments)


STORE_BY_PROGRAM = f"%place = addptr %out, %pid : ptr<i64>\nstore %place, %result {LOAD}"
TRIANGLE = f"""
    %zero = constant {{value = 0}} : i64
    %one = constant {{value = 1}} : i64
    %result = for %zero, %pid, %one, %zero : i64 (%i: i64, %sum: i64) {{
      %next = add %sum, %i : i64
      yield %next
    }}
    {STORE_BY_PROGRAM}
"""


@pytest.mark.parametrize("programs", [1, 2, 100])
def test_trip_counts_may_differ(programs: int) -> None:
    out = np.full(programs, -1)
    launch(kernel("out:*i64", TRIANGLE), programs, out=out)
    assert out.tolist() == [i * (i - 1) // 2 for i in range(programs)]


def test_a_loop_over_the_whole_range_of_integers_counts_right() -> None:
    body = f"""
        %zero = constant {{value = 0}} : i64
        %one = constant {{value = 1}} : i64
        %result = for %lower, %upper, %step, %zero : i64 (%i: i64, %count: i64) {{
          %next = add %count, %one : i64
          yield %next
        }}
        {STORE_BY_PROGRAM}
    """
    module = kernel("out:*i64, lower:i64, upper:i64, step:i64", body)
    out = np.zeros(1, np.int64)
    for lower, upper, step, count in [
        (-(2**63), 2**63 - 1, 2**62, 4),
        (5, 5, 1, 0),
        (9, 5, 1, 0),
        (0, 7, 3, 3),
        (-4, 4, 4, 2),
    ]:
        launch(module, 1, out=out, lower=lower, upper=upper, step=step)
        assert out[0] == count
    with pytest.raises(
        InterpreterError, match=r"\(0, 0, 0\): a loop's step is 0, it must be positive"
    ):
        launch(module, 1, out=out, lower=0, upper=1, step=0)


COLLATZ = f"""
    %zero = constant {{value = 0}} : i64
    %one = constant {{value = 1}} : i64
    %two = constant {{value = 2}} : i64
    %three = constant {{value = 3}} : i64
    %start = add %pid, %one : i64
    %last, %result = while %start, %zero : i64, i64 (%n: i64, %steps: i64) {{
      %again = cmp %n, %one {{predicate = "gt"}} : i1
      condition %again, %n, %steps
    }} do (%m: i64, %count: i64) {{
      %half = div %m, %two : i64
      %odd = rem %m, %two : i64
      %is_odd = cmp %odd, %one {{predicate = "eq"}} : i1
      %next = if %is_odd : i64 {{
        %triple = mul %m, %three : i64
        %more = add %triple, %one : i64
        yield %more
      }} else {{
        yield %half
      }}
      %counted = add %count, %one : i64
      yield %next, %counted
    }}
    {STORE_BY_PROGRAM}
"""


def collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


def test_while_loops_and_branches_may_part_at_every_step() -> None:
    out = np.zeros(200, np.int64)
    launch(kernel("out:*i64", COLLATZ), 200, out=out)
    assert out.tolist() == [collatz(n) for n in range(1, 201)]


def test_a_branch_not_taken_touches_no_memory() -> None:
    body = f"""
        %zero = constant {{value = 0}} : i64
        %inside = cmp %pid, %n {{predicate = "lt"}} : i1
        %result = if %inside : i64 {{
          %pointer = addptr %x, %pid : ptr<i64>
          %loaded = load %pointer {LOAD} : i64
          yield %loaded
        }} else {{
          yield %zero
        }}
        {STORE_BY_PROGRAM}
    """
    module = kernel("x:*i64, out:*i64, n:i64", body)
    out = np.full(6, -1)
    launch(module, 6, x=np.array([7, 8, 9]), out=out, n=3)
    assert out.tolist() == [7, 8, 9, 0, 0, 0]
    with pytest.raises(OutOfBoundsError, match=r"program \(3, 0, 0\): load .* 'x' .* offset 3"):
        launch(module, 6, x=np.array([7, 8, 9]), out=out, n=4)


def test_a_program_that_left_a_loop_loads_no_more() -> None:
    body = f"""
        %zero = constant {{value = 0}} : i64
        %one = constant {{value = 1}} : i64
        %length = load %lengths_at {LOAD} : i64
        %result = for %zero, %length, %one, %zero : i64 (%i: i64, %sum: i64) {{
          %pointer = addptr %x, %i : ptr<i64>
          %loaded = load %pointer {LOAD} : i64
          %next = add %sum, %loaded : i64
          yield %next
        }}
        {STORE_BY_PROGRAM}
    """
    body = f"%lengths_at = addptr %lengths, %pid : ptr<i64>\n{body}"
    module = kernel("x:*i64, lengths:*i64, out:*i64", body)
    out = np.zeros(4, np.int64)
    launch(module, 4, x=np.array([1, 10, 100]), lengths=np.array([3, 0, 1, 3]), out=out)
    assert out.tolist() == [111, 0, 1, 111]


def test_tiles_are_merged_behind_a_branch_even_if_one_side_is_constant() -> None:
    body = f"""
        %zero = constant {{value = 0}} : i64
        %lanes = arange {{start = 0, end = 4}} : tile<4xi32>
        %is_first = cmp %pid, %zero {{predicate = "eq"}} : i1
        %tile = if %is_first : tile<4xi32> {{
          yield %lanes
        }} else {{
          %minus = constant {{value = -1}} : i32
          %filled = splat %minus : tile<4xi32>
          yield %filled
        }}
        %four = constant {{value = 4}} : i64
        %first = mul %pid, %four : i64
        %base = addptr %out, %first : ptr<i32>
        %all = splat %base : tile<4xptr<i32>>
        %places = addptr %all, %lanes : tile<4xptr<i32>>
        store %places, %tile {LOAD}
    """
    out = np.zeros((3, 4), np.int32)
    launch(kernel("out:*i32", body), 3, out=out)
    assert out.tolist() == [[0, 1, 2, 3], [-1] * 4, [-1] * 4]


def test_calls_nest_and_return_what_differs_by_program() -> None:
    functions = """
        func @square(%x: i64) -> i64 {
          %y = mul %x, %x : i64
          return %y
        }
        func @fourth(%x: i64) -> i64 {
          %y = call %x {callee = "square"} : i64
          %z = call %y {callee = "square"} : i64
          return %z
        }
    """
    body = f'%result = call %pid {{callee = "fourth"}} : i64\n{STORE_BY_PROGRAM}'
    out = np.zeros(4, np.int64)
    launch(kernel("out:*i64", body, functions), 4, out=out)
    assert out.tolist() == [0, 1, 16, 81]


def test_an_error_shows_the_chain_of_calls() -> None:
    text = f"""
        signature (x:*i64) general num_warps=4 num_stages=3
        kernel @k(%x: ptr<i64>) {{
          call %x {{callee = "peek"}} loc("user.py" 9:4:11 in "k")
          return
        }}
        func @peek(%x: ptr<i64>) {{
          %value = load %x {LOAD} : i64 loc("user.py" 3:12:20 in "peek")
          return
        }}
    """
    with pytest.raises(OutOfBoundsError) as caught:
        launch(parse_module(text), 1, x=np.zeros(0, np.int64))
    assert "  at user.py:3:13: in peek\n  called from user.py:9:5: in k" in str(caught.value)


# A program spins until it is its turn, then hands on to the next; `order` computes %mine.
BATON = f"""
    %one = constant {{value = 1}} : i64
    while {{
      %now = load %turn {LOAD} : i64
      %wait = cmp %now, %mine {{predicate = "ne"}} : i1
      condition %wait
    }} do {{
      yield
    }}
    %next = add %mine, %one : i64
    store %turn, %next {LOAD}
    %handed_on = load %turn {LOAD} : i64
    %result = add %handed_on, %pid : i64
    {STORE_BY_PROGRAM}
"""


def baton(order: str) -> Module:
    return kernel("turn:*i64, out:*i64, count:i64", f"{order}\n{BATON}")


FIRST_TO_LAST = "%zero = constant {value = 0} : i64\n%mine = add %pid, %zero : i64"
LAST_TO_FIRST = "%mine = sub %count, %pid : i64"


@pytest.mark.parametrize("order", [FIRST_TO_LAST, LAST_TO_FIRST], ids=["upwards", "downwards"])
def test_programs_that_wait_for_each_other_make_progress(order: str) -> None:
    count = 20
    turn, out = np.zeros(1, np.int64), np.zeros(count, np.int64)
    first = 0 if order is FIRST_TO_LAST else 1  # program count - 1 waits for turn 1
    turn[0] = first
    launch(baton(order), count, turn=turn, out=out, count=count)
    assert turn[0] == count + first
    mine = np.arange(count) if order is FIRST_TO_LAST else count - np.arange(count)
    assert out.tolist() == (mine + 1 + np.arange(count)).tolist()


def test_waiting_for_what_never_comes_is_an_error() -> None:
    turn, out = np.full(1, 99), np.zeros(3, np.int64)
    with pytest.raises(InterpreterError, match="never ends: all that still runs repeats a loop"):
        launch(baton(FIRST_TO_LAST), 3, turn=turn, out=out, count=3)


def test_a_loop_without_end_is_an_error_also_where_nothing_waits() -> None:
    body = f"""
        %zero = constant {{value = 0}} : i64
        %result = while %zero : i64 (%n: i64) {{
          %again = cmp %n, %zero {{predicate = "eq"}} : i1
          condition %again, %n
        }} do (%m: i64) {{
          yield %m
        }}
        {STORE_BY_PROGRAM}
    """
    with pytest.raises(InterpreterError, match="never ends"):
        launch(kernel("out:*i64", body), 3, out=np.zeros(3, np.int64))


def test_an_inner_loop_that_starts_again_is_progress() -> None:
    # Each outer iteration enters a `while` that carries the same values as in the one before.
    body = f"""
        %zero = constant {{value = 0}} : i64
        %one = constant {{value = 1}} : i64
        %result = for %zero, %count, %one, %zero : i64 (%i: i64, %sum: i64) {{
          %inner = while %zero : i64 (%n: i64) {{
            %now = load %turn {LOAD} : i64
            %same = cmp %n, %now {{predicate = "eq"}} : i1
            condition %same, %n
          }} do (%m: i64) {{
            %changed = add %m, %one : i64
            yield %changed
          }}
          %next = add %sum, %inner : i64
          yield %next
        }}
        {STORE_BY_PROGRAM}
        store %turn, %zero {LOAD}
    """
    out = np.zeros(2, np.int64)
    module = kernel("turn:*i64, out:*i64, count:i64", body)
    launch(module, 2, turn=np.zeros(1, np.int64), out=out, count=5)
    assert out.tolist() == [5, 5]


def test_a_step_that_is_not_positive_is_found_in_the_kernels_text(tmp_path: Path) -> None:
    text = """
        @tl.kernel
        def walk(out, step):
            for i in range(0, 4, step - tl.program_id(0)):
                tl.store(out, i)
    """
    with pytest.raises(InterpreterError, match=r"(?s)\(1, 0, 0\).*step is 0.*kernels.py:3:"):
        run_text(tmp_path, text, {"out": np.zeros(1, np.int64), "step": 1}, grid=(3, 1, 1))
