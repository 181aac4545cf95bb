"""Passes on operations whose region is a function: what lives, what is shared, what stays put."""

from __future__ import annotations

from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize
from tilewright_compiler.passes.cse import cse
from tilewright_compiler.passes.dce import dce
from tilewright_compiler.passes.fold import fold

_HINTS = '{cache = "", eviction = ""}'
TEXT = f"""
signature (x:*i32, out:*i32) general num_warps=4 num_stages=3

kernel @k(%x: ptr<i32>, %out: ptr<i32>) {{
  %two = constant {{value = 2}} : i32
  %i = arange {{start = 0, end = 64}} : tile<64xi32>
  %base = splat %x : tile<64xptr<i32>>
  %places = addptr %base, %i : tile<64xptr<i32>>
  %tile = load %places {_HINTS} : tile<64xi32>
  %dead = scan %tile {{axis = 0, reverse = true}} : tile<64xi32> (%a: i32, %b: i32) {{
    %sum = add %a, %b : i32
    yield %sum
  }}
  %top, %at = reduce_with %tile, %i {{axis = 0}} : i32, i32 (%c: i32, %d: i32, %e: i32, %f: i32) {{
    %again = constant {{value = 2}} : i32
    %double = mul %c, %again : i32
    %unused = mul %d, %two : i32
    %zero = constant {{value = 0}} : i32
    %same = add %e, %zero : i32
    %bound = mul %same, %two : i32
    %other = max %double, %bound : i32
    yield %other, %f
  }}
  store %out, %at {_HINTS}
  return
}}
"""


def _module() -> Module:
    module = parse_module(TEXT)
    verify(module)
    return module


def _named(module: Module, name: str) -> list[Operation]:
    return [operation for operation in module.kernel.body.walk() if operation.name == name]


def test_the_text_is_read_back() -> None:
    text = print_module(_module())
    assert print_module(parse_module(text)) == text


def test_a_dead_scan_goes_and_what_a_live_region_reads_stays() -> None:
    module = dce(_module())
    verify(module)
    assert not _named(module, "scan")
    (reduction,) = _named(module, "reduce_with")
    # One result is not used; both operands, arguments and yielded values stay all the same.
    assert len(reduction.results) == len(reduction.operands) == 2
    (region,) = reduction.regions
    assert [operation.name for operation in region.operations].count("mul") == 2
    assert [o.attributes["value"] for o in _named(module, "constant")] == [2, 2, 0]


def test_a_region_shares_constants_with_what_is_around_it() -> None:
    module = dce(cse(fold(_module())))
    verify(module)
    (reduction,) = _named(module, "reduce_with")
    (region,) = reduction.regions
    assert [operation.name for operation in region.operations] == ["mul", "mul", "max", "yield"]
    (constant,) = _named(module, "constant")
    assert all(constant.result in operation.operands for operation in region.operations[:2])


def test_all_passes_keep_a_region() -> None:
    module = optimize(_module(), verify_each=True)
    assert len(_named(module, "reduce_with")) == 1


def test_a_scan_of_a_tile_that_a_loop_does_not_change_keeps_its_place() -> None:
    text = TEXT.replace(
        f"  store %out, %at {_HINTS}\n",
        "  for %two, %at, %two (%turn: i32) {\n"
        "    %sums = scan %tile {axis = 0, reverse = false} : tile<64xi32> (%g: i32, %h: i32) {\n"
        "      %more = add %g, %h : i32\n"
        "      yield %more\n"
        "    }\n"
        f"    store %places, %sums {_HINTS}\n"
        "    yield\n"
        "  }\n",
    )
    module = parse_module(text)
    verify(module)
    (loop,) = _named(optimize(module, verify_each=True), "for")
    assert [o.name for o in loop.regions[0].operations] == ["scan", "store", "yield"]
