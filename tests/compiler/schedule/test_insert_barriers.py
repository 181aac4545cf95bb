"""Barriers stand where threads depend on each other, and nowhere else."""

from __future__ import annotations

from random import Random

import pytest

from tilewright.errors import InternalCompilerError
from tilewright_compiler.ir.core import Block, Module, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.schedule.accesses import Access, Accesses
from tilewright_compiler.schedule.insert_barriers import State, _Found, _Walk, insert_barriers

# Two ways to spread 16 x 64 elements over four warps: rows, and columns, to each.
ROWS = "#layout<16x64; r=1,2,4; l=8,16,32,64,128; w=256,512>"
COLUMNS = "#layout<16x64; r=64,128,256; l=512,1,2,4,8; w=16,32>"
TILE = "#shared<16x64; 1,2,4,8,16,32,64,128,256,512>"
TURNED = "#shared<64x16; 64,128,256,512,1,2,4,8,16,32>"
TURNED_ROWS = "#layout<64x16; r=16,32,64; l=128,256,512,1,2; w=4,8>"
# Two warps hold the same rows.
TWICE = "#layout<16x64; r=1,2,4,512; l=8,16,32,64,128; w=256,0>"

_HEAD = """signature (x:*f32, y:*f32, n:i64, c:i1) general num_warps=4 num_stages=3

kernel @k(%x: ptr<f32>, %y: ptr<f32>, %n: i64, %c: i1) {
  %c0 = constant {value = 0} : i64
  %c1 = constant {value = 1} : i64
  %s0 = constant {value = 0} : i32
  %zero = constant {value = 0.0} : f32
"""


def ring(slots: int = 3) -> str:
    return f"%ring = alloc_shared {{shared_offset = 0}} : shared<{slots}*16x64xf32, {TILE}>\n"


def tile(layout: str, name: str = "t") -> str:
    return f"%{name} = splat %zero : tile<16x64xf32, {layout}>\n"


def single(name: str = "a", offset: int = 0) -> str:
    return f"%{name} = alloc_shared {{shared_offset = {offset}}} : shared<16x64xf32, {TILE}>\n"


def slot(name: str, position: int, index: str = "s0") -> str:
    return (
        f"%{name} = shared_slot %ring, %{index} {{position = {position}}} : "
        f"shared<16x64xf32, {TILE}>\n"
    )


def read(name: str, source: str, layout: str) -> str:
    return f"%{name} = shared_load %{source} : tile<16x64xf32, {layout}>\n"


def write(source: str, target: str) -> str:
    return f"shared_store %{source}, %{target}\n"


def branch(then: str, otherwise: str = "", condition: str = "c") -> str:
    return f"if %{condition} {{\n{then}yield\n}} else {{\n{otherwise}yield\n}}\n"


def loop(body: str, counter: str = "i") -> str:
    return f"for %c0, %n, %c1 (%{counter}: i64) {{\n{body}yield\n}}\n"


def along(layout: str, axis: int, *, kept: bool = False) -> str:
    """Return the layout of one axis of 16 x 64 elements; `kept` leaves the other, of extent 1."""

    def moved(basis: str) -> str:
        numbers = (int(number) for number in basis.split(","))
        return ",".join(str(number % 64 if axis else number // 64) for number in numbers)

    bases = (part.split("=") for part in layout.split("; ", 1)[1].rstrip(">").split("; "))
    shape = ("16", "64")[axis]
    if kept:
        shape = f"1x{shape}" if axis else f"{shape}x1"
    return f"#layout<{shape}; {'; '.join(f'{name}={moved(basis)}' for name, basis in bases)}>"


def pointers(name: str, argument: str, layout: str) -> str:
    """Return pointers to 16 rows of 64 elements, one behind the other."""
    lines = [f"%{name}64 = constant {{value = 64}} : i32"]
    for axis, (extent, one) in enumerate((("16", "16x1"), ("64", "1x64"))):
        flat, kept = along(layout, axis), along(layout, axis, kept=True)
        part = f"{name}{axis}"
        lines += [
            f"%{part}a = arange {{start = 0, end = {extent}}} : tile<{extent}xi32, {flat}>",
            f"%{part}b = expand_dims %{part}a {{axis = {1 - axis}}} : tile<{one}xi32, {kept}>",
            f"%{part} = broadcast %{part}b : tile<16x64xi32, {layout}>",
        ]
    lines += [
        f"%{name}s = splat %{name}64 : tile<16x64xi32, {layout}>",
        f"%{name}r = mul %{name}0, %{name}s : tile<16x64xi32, {layout}>",
        f"%{name}o = add %{name}r, %{name}1 : tile<16x64xi32, {layout}>",
        f"%{name}p = splat %{argument} : tile<16x64xptr<f32>, {layout}>",
        f"%{name} = addptr %{name}p, %{name}o : tile<16x64xptr<f32>, {layout}>",
    ]
    return "\n".join(lines) + "\n"


_HINTS = '{cache = "", eviction = ""}'


def load(name: str, pointer: str, layout: str) -> str:
    return f"%{name} = load %{pointer} {_HINTS} : tile<16x64xf32, {layout}>\n"


def store(pointer: str, value: str) -> str:
    return f"store %{pointer}, %{value} {_HINTS}\n"


def copy(pointer: str, target: str) -> str:
    return f"async_copy %{pointer}, %{target} {_HINTS}\n"


COMMIT = "%token = async_commit : token\n"
WAIT = "async_wait %token {pending = 0}\n"


def inserted(body: str) -> Module:
    module = parse_module(_HEAD + body + "return\n}\n")
    verify(module)
    return insert_barriers(module)


def outline(body: str) -> str:
    """Return what touches memory or meets, in order: S stored, L loaded, | barrier, and blocks."""
    return _outline(inserted(body).kernel.body)


_LETTERS = {
    "barrier": "|",
    "shared_store": "S",
    "shared_load": "L",
    "store": "s",
    "load": "l",
    "async_copy": "C",
    "async_wait": "W",
}


def _outline(block: Block) -> str:
    text = ""
    for operation in block.operations:
        inside = [_outline(region) for region in operation.regions]
        text += _LETTERS.get(operation.name, "")
        text += f"({'/'.join(inside)})" if inside else ""
    return text


def test_a_thread_need_not_wait_for_itself() -> None:
    body = single() + tile(ROWS) + write("t", "a") + read("u", "a", ROWS) + write("u", "a")
    assert outline(body) == "SLS"


def test_a_thread_waits_for_what_others_wrote_and_read() -> None:
    body = single() + tile(ROWS) + write("t", "a") + read("u", "a", COLUMNS) + write("t", "a")
    assert outline(body) == "S|L|S"


def test_readers_need_not_wait_for_readers() -> None:
    body = single() + tile(ROWS) + write("t", "a") + read("u", "a", COLUMNS) + read("v", "a", ROWS)
    assert outline(body) == "S|LL"


def test_one_barrier_serves_all_that_was_written_before() -> None:
    body = single("a") + single("b", 4096) + tile(ROWS)
    body += write("t", "a") + write("t", "b") + read("u", "a", COLUMNS) + read("v", "b", COLUMNS)
    assert outline(body) == "SS|LL"


def test_tiles_in_one_place_are_one_memory() -> None:
    body = single("a") + single("b", 2048) + single("d", 4096) + tile(ROWS)
    body += write("t", "a") + write("t", "d") + write("t", "b")
    assert outline(body) == "SS|S"


def test_elements_held_by_two_warps_are_no_threads_own() -> None:
    body = single() + tile(TWICE) + write("t", "a") + read("u", "a", TWICE)
    assert outline(body) == "S|L"


def test_a_transposed_view_keeps_the_owner_of_each_element() -> None:
    view = f"%v = shared_transpose %a {{order = (1, 0)}} : shared<64x16xf32, {TURNED}>\n"
    body = single() + view + tile(ROWS) + write("t", "a")
    body += f"%u = shared_load %v : tile<64x16xf32, {TURNED_ROWS}>\n"
    assert outline(body) == "SL"


def test_slots_at_different_positions_are_different_memory() -> None:
    body = ring() + slot("p", 0) + slot("q", 1) + tile(ROWS)
    assert outline(body + write("t", "p") + read("u", "q", COLUMNS)) == "SL"
    assert outline(body + write("t", "p") + read("u", "p", COLUMNS)) == "S|L"


def test_a_slot_comes_one_position_closer_with_each_iteration() -> None:
    def pipelined(position: int) -> str:
        body = slot("p", position) + slot("q", 0) + write("t", "p") + read("u", "q", COLUMNS)
        return outline(ring(4) + tile(ROWS) + loop(body))

    # Written for this iteration, and for the next.
    assert pipelined(0) == "(S|L)"
    assert pipelined(1) == "(S|L)"
    # Written where the iteration before last read, and where the last did.
    assert pipelined(2) == "(|SL)"
    assert pipelined(3) == "(|SL)"


def test_behind_the_loop_any_slot_may_be_meant() -> None:
    body = slot("p", 0) + read("u", "p", COLUMNS)
    after = slot("q", 1) + write("t", "q")
    assert outline(ring() + tile(ROWS) + loop(body) + after) == "(L)|S"


def test_a_barrier_before_a_branch_serves_both_ways() -> None:
    body = single() + tile(ROWS) + write("t", "a")
    assert outline(body + branch(read("u", "a", COLUMNS)) + read("v", "a", COLUMNS)) == "S|(L/)L"


def test_a_barrier_that_only_the_first_iteration_needs_stands_before_the_loop() -> None:
    body = single() + tile(ROWS) + write("t", "a") + loop(read("u", "a", COLUMNS))
    assert outline(body) == "S|(L)"


def test_a_copy_belongs_to_its_thread_once_it_waited() -> None:
    body = single() + pointers("p", "x", ROWS) + copy("p", "a") + COMMIT + WAIT
    assert outline(body + read("u", "a", ROWS)) == "CWL"
    assert outline(body + read("u", "a", COLUMNS)) == "CW|L"


def test_a_barrier_before_the_wait_is_not_enough() -> None:
    body = single() + pointers("p", "x", ROWS) + copy("p", "a") + COMMIT + "barrier\n" + WAIT
    assert outline(body + read("u", "a", COLUMNS)) == "C|W|L"


@pytest.mark.parametrize("group", ["", COMMIT, COMMIT + WAIT.replace("0", "1")])
def test_touching_what_is_still_being_copied_is_an_error(group: str) -> None:
    body = single() + pointers("p", "x", ROWS) + copy("p", "a") + group
    with pytest.raises(InternalCompilerError, match="nobody has waited"):
        inserted(body + read("u", "a", COLUMNS))


def test_a_load_waits_for_a_store_to_the_same_argument_in_another_layout() -> None:
    body = pointers("p", "x", ROWS) + pointers("q", "x", COLUMNS) + tile(ROWS)
    assert outline(body + store("p", "t") + load("u", "q", COLUMNS)) == "s|l"
    assert outline(body + load("u", "q", COLUMNS) + store("p", "t")) == "l|s"
    assert outline(body + store("p", "t") + load("u", "p", ROWS)) == "sl"


def test_arguments_are_taken_to_be_different_memory() -> None:
    body = pointers("p", "x", ROWS) + pointers("q", "y", COLUMNS) + tile(ROWS)
    assert outline(body + store("p", "t") + load("u", "q", COLUMNS)) == "sl"


def test_what_one_branch_did_the_other_need_not_wait_for() -> None:
    stores = store("p", "t"), store("q", "u")
    body = pointers("p", "x", ROWS) + pointers("q", "x", COLUMNS) + tile(ROWS) + tile(COLUMNS, "u")
    one = branch(stores[0]) + branch("", stores[1])
    assert outline(body + one) == "(s/)(/s)"
    assert outline(body + loop(one)) == "((s/)(/s))"
    inside = '%d = cmp %i, %c0 {predicate = "eq"} : i1\n'
    one = branch(stores[0], condition="d") + branch("", stores[1], condition="d")
    assert outline(body + loop(inside + one)) == "(|(s/)(/s))"
    assert outline(body + stores[0] + branch("", stores[1])) == "s|(/s)"


def test_stores_by_the_same_lanes_do_not_wait_for_each_other() -> None:
    body = pointers("p", "x", ROWS) + pointers("q", "x", ROWS) + tile(ROWS)
    assert outline(body + store("p", "t") + loop(store("q", "t"))) == "s(s)"


def test_an_address_of_another_iteration_may_be_anothers() -> None:
    moving = (
        f"%is = splat %i : tile<16x64xi64, {ROWS}>\n"
        f"%m = addptr %p, %is : tile<16x64xptr<f32>, {ROWS}>\n"
    )
    body = pointers("p", "x", ROWS) + tile(ROWS)
    inside = moving + load("u", "m", ROWS) + store("m", "u")
    assert outline(body + loop(inside)) == "(|ls)"
    assert outline(body + loop(load("u", "p", ROWS) + store("p", "u"))) == "(ls)"


def test_all_threads_have_read_a_scalar_before_one_writes_it() -> None:
    body = f"%u = load %x {_HINTS} : f32\nstore %x, %u {_HINTS}\n"
    assert outline(body) == "l|s"


def test_barriers_that_stand_are_enough() -> None:
    once = inserted(single() + tile(ROWS) + write("t", "a") + read("u", "a", COLUMNS))
    assert _outline(insert_barriers(once).kernel.body) == "S|L"


_IN_PLACE = pointers("p", "x", ROWS) + pointers("q", "x", COLUMNS) + tile(ROWS)


def update(name: str) -> str:
    """Update a tile in place: others have read what a thread writes."""
    return load(name, "q", COLUMNS) + store("p", "t")


def chain(cases: int) -> str:
    """Return `if ... elif ...`, with two updates in each case."""
    case = update(f"a{cases}") + update(f"b{cases}")
    condition = f'%d{cases} = cmp %n, %c0 {{predicate = "eq"}} : i1\n'
    return condition + branch(case, chain(cases - 1), f"d{cases}") if cases else ""


def nest(levels: int) -> str:
    """Return a loop in a branch in a loop ..., with an update in each."""
    inside = branch(update(f"b{levels}") + nest(levels - 1)) if levels else ""
    return loop(update(f"a{levels}") + inside + store("p", "t"), f"i{levels}")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (chain(1), "(l|s|l|s/)"),
        (chain(2), "(l|s|l|s/(l|s|l|s/))"),
        (nest(0), "(|l|ss)"),
        (nest(1), "(|l|s|(l|s(|l|ss)/)s)"),
    ],
    ids=["one case", "two cases", "a loop", "a loop in a branch in a loop"],
)
def test_each_branch_and_loop_has_barriers_of_its_own(body: str, expected: str) -> None:
    assert outline(_IN_PLACE + body) == expected


@pytest.mark.parametrize(
    "body", [chain(40), nest(8)], ids=["a chain of forty cases", "nested loops and branches"]
)
def test_deep_nesting_is_walked_few_times(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[Operation] = []
    before = Accesses.before

    def counted(accesses: Accesses, operation: Operation) -> tuple[Access, ...]:
        visited.append(operation)
        return before(accesses, operation)

    monkeypatch.setattr(Accesses, "before", counted)
    inserted(_IN_PLACE + update("u") + body)
    assert len(visited) <= 4 * len(set(visited))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_remembered_is_what_a_walk_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = single() + ring() + _IN_PLACE + random_body(Random(seed), depth=3)
    remembered = print_module(inserted(body))

    def walked(walk: _Walk, block: Block, state: State) -> _Found:
        return walk._walked(block, state)

    monkeypatch.setattr(_Walk, "block", walked)
    assert remembered == print_module(inserted(body))


def random_body(random: Random, *, depth: int) -> str:
    """Return a few accesses of a tile, of a ring and of an argument, in loops and branches."""
    body = ""
    for _ in range(random.randint(1, 4)):
        name, layout = f"v{random.getrandbits(48)}", random.choice([ROWS, COLUMNS])
        kinds = ["load", "store", "read", "write", "slot", "copy"]
        match random.choice([*kinds, "if", "for", "if", "for"] if depth else kinds):
            case "load":
                body += load(name, "q", COLUMNS)
            case "store":
                body += store("p", "t")
            case "read":
                body += read(name, "a", layout)
            case "write":
                body += write("t", "a")
            case "slot":
                body += slot(name, random.randrange(3))
                body += random.choice([read(f"{name}r", name, layout), write("t", name)])
            case "copy":
                body += copy("p", "a") + COMMIT.replace("%token", f"%{name}")
                body += WAIT.replace("%token", f"%{name}")
            case "if":
                sides = [random_body(random, depth=depth - 1) for _ in range(2)]
                body += branch(sides[0], random.choice([sides[1], ""]))
            case "for":
                body += loop(random_body(random, depth=depth - 1), name)
    return body
