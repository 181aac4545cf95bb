"""Scratch of neighbouring exchanges lies apart while there is room, and never exceeds 99 KiB."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tilewright.errors import KernelValueError
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.layout.linear import LinearLayout
from tilewright_compiler.schedule.allocate_shared import allocate_shared
from tilewright_compiler.schedule.scratch import scratch_bytes

# A row of 256 over four warps: a reduction needs one partial of each warp.
ROW = "#layout<1x256; r=1; l=2,4,8,16,32; w=64,128>"
RESULT = "#layout<1; r=; l=0,0,0,0,0; w=0,0>"
HEAD = """signature (x:*f32, n:i64) general num_warps=4 num_stages=3

kernel @k(%x: ptr<f32>, %n: i64) {
"""


def module(body: str) -> Module:
    return parse_module(HEAD + body + "  return\n}\n")


def zeros() -> str:
    return f"""  %zero = constant {{value = 0.0}} : f32
  %tile = splat %zero : tile<1x256xf32, {ROW}>
"""


def reduce(name: str, indent: str = "  ") -> str:
    return f'{indent}%{name} = reduce %tile {{axis = 1, kind = "sum"}} : tile<1xf32, {RESULT}>\n'


def spans(scheduled: Module) -> list[tuple[int, int]]:
    result = []
    for operation in scheduled.kernel.body.walk():
        if scratch_bytes(operation):
            start = operation.attributes["shared_offset"]
            result.append((start, start + scratch_bytes(operation)))
    return result


def overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def test_neighbours_lie_apart_and_the_third_reuses_the_first() -> None:
    scheduled = allocate_shared(module(zeros() + "".join(map(reduce, "abc"))))
    places = spans(scheduled)
    assert not any(overlap(a, b) for a, b in pairwise(places))
    assert places == [(0, 16), (16, 32), (0, 16)]
    assert scheduled.attributes["shared_bytes"] == 32


def test_the_last_exchange_of_a_loop_lies_apart_from_the_first() -> None:
    body = zeros() + (
        "  %c0 = constant {value = 0} : i64\n"
        "  %c1 = constant {value = 1} : i64\n"
        "  for %c0, %n, %c1 (%i: i64) {\n"
        + "".join(reduce(name, "    ") for name in "abc")
        + "    yield\n  }\n"
    )
    first, second, third = spans(allocate_shared(module(body)))
    assert not overlap(first, second)
    assert not overlap(second, third)
    assert not overlap(third, first)


def test_both_branches_lie_apart_from_what_follows_but_may_share() -> None:
    body = zeros() + (
        "  %c0 = constant {value = 0} : i64\n"
        '  %c = cmp %n, %c0 {predicate = "lt"} : i1\n'
        "  if %c {\n"
        + reduce("a", "    ")
        + "    yield\n  } else {\n"
        + reduce("b", "    ")
        + "    yield\n  }\n"
        + reduce("d")
    )
    first, second, after = spans(allocate_shared(module(body)))
    assert first == second
    assert not overlap(first, after)


def conversion(rows: int) -> str:
    """A tile moved from rows across warps to rows across lanes: everything crosses warps."""
    bits = [1 << bit for bit in range((rows * 64).bit_length() - 1)]
    shape = (rows, 64)
    source = LinearLayout(shape, tuple(bits[7:]), tuple(bits[:5]), tuple(bits[5:7]))
    target = LinearLayout(shape, tuple(bits[:-7]), tuple(bits[-7:-2]), tuple(bits[-2:]))
    return (
        "  %zero = constant {value = 0.0} : f32\n"
        f"  %a = splat %zero : tile<{rows}x64xf32, {source}>\n"
        f"  %b = convert_layout %a : tile<{rows}x64xf32, {target}>\n"
    )


def test_a_large_tile_may_take_what_every_gpu_has() -> None:
    scheduled = allocate_shared(module(conversion(256)))
    assert scheduled.attributes["shared_bytes"] == 64 * 1024


def test_a_tile_beyond_the_limit_says_by_how_much() -> None:
    with pytest.raises(KernelValueError, match=r"needs 131072 bytes.*29696 more than the 101376"):
        allocate_shared(module(conversion(512)))


def test_large_exchanges_share_their_place_rather_than_double_the_memory() -> None:
    twice = conversion(256) + conversion(256).replace("%zero", "%z").replace("%a", "%d").replace(
        "%b", "%e"
    )
    scheduled = allocate_shared(module(twice))
    assert scheduled.attributes["shared_bytes"] == 64 * 1024
    assert spans(scheduled) == [(0, 65536), (0, 65536)]


def test_a_kernel_without_exchanges_needs_no_shared_memory() -> None:
    scheduled = allocate_shared(module(zeros()))
    assert scheduled.attributes["shared_bytes"] == 0
    operations: list[Operation] = list(scheduled.kernel.body.walk())
    assert not any("shared_offset" in operation.attributes for operation in operations)
