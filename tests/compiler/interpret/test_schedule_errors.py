"""Each way in which a schedule can be wrong is found, and the message says what meets what."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.mutations import find, with_attributes, with_type, without
from helpers.staged_kernels import KERNELS, arguments, optimized, types_of
from tilewright.errors import ScheduleError
from tilewright_compiler.interpret import proof, scheduled
from tilewright_compiler.interpret.warp.state import Warp
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.types import SharedType
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.layout.swizzle import SharedLayout
from tilewright_compiler.schedule.plan import schedule_module


class Case:
    """A kernel with its schedule and a launch whose loops run five times."""

    def __init__(self, directory: Path, name: str, *, dtype: str = "bfloat16") -> None:
        values = arguments(name, trips=5, dtype=dtype)
        self.module = optimized(directory, KERNELS[name], types_of(values))
        self.schedule = schedule_module(self.module)
        self.launch = proof.Launch((1, 1, 1), values)

    def prove(self, schedule: Module, *, seed: int = 0) -> None:
        proof.prove(self.module, schedule, [self.launch], seeds=(seed,))


@pytest.fixture
def product(tmp_path: Path) -> Case:
    return Case(tmp_path, "product")


@pytest.mark.parametrize("name", ["product", "two_loops", "attention"])
def test_no_barrier_and_no_wait_can_be_spared(name: str, tmp_path: Path) -> None:
    case = Case(tmp_path, name)
    case.prove(case.schedule)
    barriers, waits = find(case.schedule, "barrier"), find(case.schedule, "async_wait")
    assert waits
    for barrier in barriers:
        with pytest.raises(ScheduleError, match=r"no barrier between|nothing wrote"):
            case.prove(without(case.schedule, barrier))
    for wait in waits:
        after_a_loop = wait in case.schedule.kernel.body.operations
        if after_a_loop:  # says what is true already
            continue
        with pytest.raises(ScheduleError, match="still under way: no wait covers it"):
            case.prove(without(case.schedule, wait))


def test_a_wait_that_leaves_its_group_under_way(product: Case) -> None:
    (wait, *_) = find(product.schedule, "async_wait")
    pending = wait.attributes["pending"]
    weaker = with_attributes(product.schedule, wait, pending=pending + 1)
    with pytest.raises(ScheduleError, match=rf"pending = {pending + 1} leaves the token's group"):
        product.prove(weaker)


def test_a_race_names_both_operations_with_their_lines(product: Case) -> None:
    (barrier, *_) = find(product.schedule, "barrier")
    with pytest.raises(ScheduleError) as caught:
        product.prove(without(product.schedule, barrier))
    text = str(caught.value)
    assert text.startswith("kernel 'product', program (0, 0, 0): dot %acc (turn 0)")
    assert "bytes" in text
    assert "lane" in text
    assert "acc = tl.dot(a, b, acc)" in text
    assert "= tl.load(" in text


def test_bytes_are_read_as_they_were_swizzled(product: Case) -> None:
    slot = next(
        operation
        for operation in find(product.schedule, "shared_slot")
        if operation.attributes["position"] == 0
        and any(dot.operands[0] is operation.result for dot in find(product.schedule, "dot"))
    )
    type_ = slot.result.type
    assert isinstance(type_, SharedType)
    plain = SharedLayout(type_.shape, tuple(1 << bit for bit in range(len(type_.layout.offsets))))
    assert plain != type_.layout
    with pytest.raises(ScheduleError, match="elements of 'out' are wrong"):
        product.prove(with_type(product.schedule, slot, replace(type_, layout=plain)))


def test_positions_are_held_against_the_slots(product: Case) -> None:
    for slot in find(product.schedule, "shared_slot"):
        ring = slot.operands[0].type
        assert isinstance(ring, SharedType)
        assert ring.slots is not None
        position = (slot.attributes["position"] + 1) % ring.slots
        with pytest.raises(ScheduleError, match=r"position \d says that this iteration consumes"):
            product.prove(with_attributes(product.schedule, slot, position=position))


def test_a_ring_with_a_slot_too_few(product: Case) -> None:
    (ring, *_) = find(product.schedule, "alloc_shared")
    type_ = ring.result.type
    assert isinstance(type_, SharedType)
    assert type_.slots == 3
    with pytest.raises(ScheduleError, match="index 2 of a ring of 2 slots"):
        product.prove(with_type(product.schedule, ring, replace(type_, slots=2)))


@pytest.mark.parametrize("name", ["product", "persistent", "two_loops", "attention"])
def test_allocations_may_not_share_bytes(name: str, tmp_path: Path) -> None:
    case = Case(tmp_path, name)
    first, second, *_ = find(case.schedule, "alloc_shared")
    there = with_attributes(case.schedule, second, shared_offset=first.attributes["shared_offset"])
    with pytest.raises(ScheduleError, match=r"under way|another allocation|no barrier"):
        case.prove(there)


def test_shared_memory_has_an_end(product: Case) -> None:
    ring = find(product.schedule, "alloc_shared")[-1]
    total = product.schedule.attributes["shared_bytes"]
    moved = with_attributes(product.schedule, ring, shared_offset=total - 64)
    with pytest.raises(ScheduleError, match=f"reaches beyond the {total} bytes"):
        product.prove(moved)


def test_a_fragment_must_be_the_instructions_own(tmp_path: Path) -> None:
    case = Case(tmp_path, "product")
    (dot,) = find(case.schedule, "dot")
    m, n = dot.attributes["warps"]
    assert (m, n) == (2, 2)
    with pytest.raises(ScheduleError, match=r"an operand is .* the dot takes"):
        case.prove(with_attributes(case.schedule, dot, warps=(1, 4)))


# Two warps on 128 elements: two neighbours a lane, the same with warps in between, one word a lane.
LAYOUTS = {
    "PAIRS": "#layout<128; r=1; l=2,4,8,16,32; w=64>",
    "TURNED": "#layout<128; r=1; l=4,8,16,32,64; w=2>",
    "WORDS": "#layout<128; r=64; l=1,2,4,8,16; w=32>",
}
SHARED = "shared<128xi32, #shared<128; 1,2,4,8,16,32,64>>"
HEAD = """signature (x:*i32, out:*i32) general num_warps=2 num_stages=1
attributes {shared_bytes = 512}
kernel @k(%x: ptr<i32>, %out: ptr<i32>) {
  %lanes = arange {start = 0, end = 128} : i32 PAIRS
  %one = constant {value = 1} : i32
  %zero = constant {value = 0} : i32
  %place = alloc_shared {shared_offset = 0} : SHARED
"""
HINTS = '{cache = "", eviction = ""}'


def parse(body: str, head: str = HEAD) -> Module:
    """Return the kernel of these lines; `i32 PAIRS` is a tile of that layout."""
    text = (head + body + "  return\n}\n").replace("SHARED", SHARED)
    for name, layout in LAYOUTS.items():
        text = re.sub(rf"(\S+) {name}\b", rf"tile<128x\1, {layout}>", text)
    return parse_module(text)


def run(body: str, *, verified: bool = True) -> list[int]:
    """Run a kernel of these lines and return what it stores to `out`."""
    module = parse(body)
    if verified:
        verify(module)
    out, x = np.zeros(128, np.int32), np.arange(128, dtype=np.int32)
    scheduled.run(module, grid=(1, 1, 1), arguments={"x": x, "out": out})
    return [int(value) for value in out]


def at(name: str, layout: str) -> str:
    """Return lines that make `%{name}_at`, pointers to an argument in a layout."""
    return (
        f"  %{name}_index = arange {{start = 0, end = 128}} : i32 {layout}\n"
        f"  %{name}_base = splat %{name} : ptr<i32> {layout}\n"
        f"  %{name}_at = addptr %{name}_base, %{name}_index : ptr<i32> {layout}\n"
    )


STORE = at("out", "PAIRS") + f"  store %out_at, %back {HINTS}\n"


def test_threads_may_read_back_what_they_wrote() -> None:
    body = "  shared_store %lanes, %place\n  %back = shared_load %place : i32 PAIRS\n" + STORE
    assert run(body) == list(range(128))


def test_what_ldmatrix_reads_belongs_to_other_lanes() -> None:
    body = (
        "  %words = arange {start = 0, end = 128} : i32 WORDS\n  shared_store %words, %place\n"
        "BARRIER  %other = shared_load %place : i32 WORDS\n"
    )
    run(body.replace("BARRIER", "  barrier\n"))
    with pytest.raises(ScheduleError, match=r"shared_load %other .* by several threads"):
        run(body.replace("BARRIER", ""))


def test_reading_what_others_wrote_needs_a_barrier() -> None:
    body = "  shared_store %lanes, %place\nBARRIER  %other = shared_load %place : i32 TURNED\n"
    run(body.replace("BARRIER", "  barrier\n"))
    with pytest.raises(ScheduleError, match=r"shared_load %other .* races with the write of share"):
        run(body.replace("BARRIER", ""))


def test_writing_what_others_read_needs_a_barrier() -> None:
    body = (
        "  shared_store %lanes, %place\n  barrier\n  %other = shared_load %place : i32 TURNED\n"
        "BARRIER  shared_store %lanes, %place\n"
    )
    run(body.replace("BARRIER", "  barrier\n"))
    with pytest.raises(ScheduleError, match="races with the read of shared_load"):
        run(body.replace("BARRIER", ""))


def test_memory_that_nothing_wrote_may_not_be_read() -> None:
    with pytest.raises(ScheduleError, match="reads what nothing wrote"):
        run("  %back = shared_load %place : i32 PAIRS\n")


def test_copies_must_end_before_the_kernel_does() -> None:
    body = at("x", "WORDS") + (
        f"  async_copy %x_at, %place {HINTS}\n  %token = async_commit : token\nWAIT"
    )
    run(body.replace("WAIT", "  async_wait %token {pending = 0}\n"))
    with pytest.raises(ScheduleError, match="the kernel ends while the copy is under way"):
        run(body.replace("WAIT", ""))


def test_threads_meet_in_global_memory_only_across_barriers() -> None:
    body = (
        "  %back = add %lanes, %lanes : i32 PAIRS\n" + STORE + "BARRIER"
        "  %turned = arange {start = 0, end = 128} : i32 TURNED\n"
        "  %base = splat %out : ptr<i32> TURNED\n"
        "  %turned_at = addptr %base, %turned : ptr<i32> TURNED\n"
        f"  %read = load %turned_at {HINTS} : i32 TURNED\n"
    )
    run(body.replace("BARRIER", "  barrier\n"))
    with pytest.raises(ScheduleError, match=r"load %read .*byte \d+ of 'out': races with the wri"):
        run(body.replace("BARRIER", ""))


def test_a_copy_reads_its_source_until_it_is_waited_for() -> None:
    body = at("x", "WORDS") + (
        f"  async_copy %x_at, %place {HINTS}\n  %token = async_commit : token\n"
        "EARLY"
        f"  %changed = add %x_index, %x_index : i32 WORDS\n  store %x_at, %changed {HINTS}\n"
        "LATE"
    )
    wait = "  async_wait %token {pending = 0}\n"
    run(body.replace("EARLY", wait).replace("LATE", ""))
    with pytest.raises(ScheduleError, match="writes what a copy under way reads"):
        run(body.replace("EARLY", "").replace("LATE", wait))


def test_scalars_are_read_by_every_warp() -> None:
    body = f"  store %out, %one {HINTS}\n  %seen = load %out {HINTS} : i32\n"
    with pytest.raises(ScheduleError, match="races with the "):
        run(body)


def test_warps_that_part_at_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scalars agree in all warps, or the checker has complained before: here it may not, and
    # each warp's scalar is its number.
    monkeypatch.setattr(Warp, "agree", lambda *_: None)
    monkeypatch.setitem(
        scheduled._COMPUTE, "program_id", lambda warp, _operation: np.array([warp.index])
    )
    body = """  %number = program_id {axis = 0} : i64
  %nought = constant {value = 0} : i64
  %first = cmp %number, %nought {predicate = "eq"} : i1
  if %first {
    barrier
    yield
  } else {
    yield
  }
"""
    stops = r"warp 0 waits at barrier \(turn 0\)\n  warp 1 has ended"
    with pytest.raises(ScheduleError, match=rf"part at a barrier\n  {stops}"):
        run(body)


def test_tiles_of_one_operation_have_one_layout() -> None:
    body = (
        "  %turned = arange {start = 0, end = 128} : i32 TURNED\n"
        "  %sum = add %lanes, %turned : i32 PAIRS\n"
    )
    with pytest.raises(ScheduleError, match="its tiles do not have one layout"):
        run(body, verified=False)


def test_moves_rename_registers_only() -> None:
    body = (
        "  %wide = expand_dims %lanes {axis = 0} : "
        "tile<1x128xi32, #layout<1x128; r=1; l=4,8,16,32,64; w=2>>\n"
    )
    with pytest.raises(ScheduleError, match="these layouts would move data between threads"):
        run(body)


def test_vectors_lie_together_as_the_signature_promised() -> None:
    # The signature says that x is aligned to 16 bytes; the argument is not.
    head = HEAD.replace("x:*i32", "x:*i32:16")
    module = parse(at("x", "PAIRS") + f"  %v = load %x_at {HINTS} : i32 PAIRS\n", head)
    x = np.arange(132, dtype=np.int32)
    shifted = x[1:] if x.ctypes.data % 8 == 0 else x[2:]
    with pytest.raises(ScheduleError, match="2 elements do not lie together, or are not aligned"):
        scheduled.run(module, grid=(1, 1, 1), arguments={"x": shifted, "out": x})
