"""Scratch of neighbouring exchanges lies apart while there is room, and never exceeds 99 KiB."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tilewright.errors import KernelValueError
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.types import SharedType
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


def test_a_tile_beyond_what_every_gpu_has_moves_in_rounds() -> None:
    scheduled = allocate_shared(module(conversion(512)))
    assert scheduled.attributes["shared_bytes"] == 64 * 1024


def test_a_tile_beyond_the_limit_says_by_how_much() -> None:
    bits = tuple(1 << bit for bit in range(15))
    layout = LinearLayout((32768,), bits[7:], bits[:5], bits[5:7])
    looked_up = (
        "  %zero = constant {value = 0.0} : f32\n"
        f"  %a = splat %zero : tile<32768xf32, {layout}>\n"
        f"  %i = arange {{start = 0, end = 32768}} : tile<32768xi32, {layout}>\n"
        f"  %b = gather %a, %i {{axis = 0}} : tile<32768xf32, {layout}>\n"
    )
    with pytest.raises(KernelValueError, match=r"needs 131072 bytes.*29696 more than the 101376"):
        allocate_shared(module(looked_up))


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


SHARED = "#shared<16x64; 1,2,4,8,16,32,64,128,256,512>"
TILE_BYTES = 16 * 64 * 4


def alloc(name: str, slots: int | None = None, indent: str = "  ") -> str:
    ring = "" if slots is None else f"{slots}*"
    return f"{indent}%{name} = alloc_shared : shared<{ring}16x64xf32, {SHARED}>\n"


def use(name: str, indent: str = "  ") -> str:
    """A use that reads, as of a tile that is no slot."""
    layout = "#layout<16x64; r=1,2,4; l=8,16,32,64,128; w=256,512>"
    return f"{indent}%{name}_read = shared_load %{name} : tile<16x64xf32, {layout}>\n"


def loop(body: str) -> str:
    constants = "  %c0 = constant {value = 0} : i64\n  %c1 = constant {value = 1} : i64\n"
    return constants + f"  for %c0, %n, %c1 (%i: i64) {{\n{body}    yield\n  }}\n"


def places(body: str) -> dict[str, tuple[int, int]]:
    """Return the bytes of each tile and each exchange by the name of its result."""
    return {
        operation.results[0].name: (start, start + _bytes(operation))
        for operation in allocate_shared(module(body)).kernel.body.walk()
        if (start := operation.attributes.get("shared_offset")) is not None
    }


def _bytes(operation: Operation) -> int:
    type_ = operation.results[0].type
    return type_.size_bytes if isinstance(type_, SharedType) else scratch_bytes(operation)


def test_tiles_that_live_at_once_lie_apart_and_others_share() -> None:
    found = places(alloc("a") + alloc("b") + use("a") + use("b") + alloc("d") + use("d"))
    assert found == {"a": (0, TILE_BYTES), "b": (TILE_BYTES, 2 * TILE_BYTES), "d": found["a"]}


def test_what_a_loop_uses_lives_to_its_end() -> None:
    found = places(alloc("a") + loop(use("a", "    ") + alloc("b", indent="    ") + use("b")))
    assert not overlap(found["a"], found["b"])


def test_an_exchange_behind_the_last_use_takes_the_place_of_the_ring() -> None:
    slot = f"    %s = shared_slot %a, %z {{position = 0}} : shared<16x64xf32, {SHARED}>\n"
    body = "  %z = constant {value = 0} : i32\n" + zeros() + alloc("a", 3)
    found = places(body + loop(slot + use("s", "    ") + reduce("r", "    ")) + reduce("e"))
    assert found["a"] == (0, 3 * TILE_BYTES)
    assert found["r"][0] == found["a"][1]
    assert found["e"][1] <= found["r"][0]


def test_a_ring_beyond_the_limit_says_by_how_much() -> None:
    text = alloc("a", 20) + alloc("b", 6)
    uses = "".join(
        f"  %s{name} = shared_slot %{name}, %z {{position = 0}} : shared<16x64xf32, {SHARED}>\n"
        for name in "ab"
    )
    body = "  %z = constant {value = 0} : i32\n" + text + uses
    message = (
        r"a ring of 6 stages of a tile of shape \(16, 64\) of f32 needs 24576 bytes of shared "
        r"memory beside 81920 in use, 5120 more than the 101376 that every GPU has"
    )
    with pytest.raises(KernelValueError, match=message):
        allocate_shared(module(body))


def test_tiles_begin_where_the_banks_do() -> None:
    small = (
        alloc("s")
        .replace("16x64xf32", "16xf32")
        .replace("16x64; 1,2,4,8,16,32,64,128,256,512", "16; 1,2,4,8")
    )
    layout = "#layout<16; r=; l=1,2,4,8,0; w=0,0>"
    read = f"  %s_read = shared_load %s : tile<16xf32, {layout}>\n"
    found = places(small + small.replace("%s", "%t") + read + read.replace("%s", "%t"))
    assert [start for start, _ in found.values()] == [0, 128]
