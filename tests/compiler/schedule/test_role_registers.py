"""Which accumulators of a loop need registers at the same time."""

from __future__ import annotations

import pytest

from helpers.mutations import find
from tilewright_compiler.ir.core import Module, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.schedule.role_registers import check_accumulators
from tilewright_compiler.schedule.unsuited import Unsuited

# 64 x 256 sums are 128 registers of each of 128 threads, which may have 240.
_DOT = '%{name} = dot %a, %b, %{start} {{precision = "ieee"}} : tile<64x256xf32>'
_FOR = "%{0} = for %zero, %n, %step, %{1} : tile<64x256xf32> (%j{0}: i64, %c{0}: tile<64x256xf32>)"
_LOOP = """
    {head} {{
      {dots}
      yield %{last}
    }}"""


def loop(name: str, start: str, dots: int) -> str:
    """Return a loop over so many products, each of which adds to the one before."""
    lines, last = [], f"c{name}"
    for number in range(dots):
        lines.append(_DOT.format(name=f"d{name}{number}", start=last))
        last = f"d{name}{number}"
    return _LOOP.format(head=_FOR.format(name, start), dots="\n      ".join(lines), last=last)


def module_of(inner: str, last: str) -> tuple[Module, list[Operation]]:
    """Return a kernel of these loops inside one loop, and its products."""
    module = parse_module(f"""signature (n:i64:s) fast num_warps=4 num_stages=2

kernel @loops(%n: i64) {{
  %zero = constant {{value = 0}} : i64
  %step = constant {{value = 1}} : i64
  %f = constant {{value = 0.0}} : f32
  %h = constant {{value = 0.0}} : bf16
  %a = splat %h : tile<64x16xbf16>
  %b = splat %h : tile<16x256xbf16>
  %start = splat %f : tile<64x256xf32>
  {_FOR.format("sum", "start")} {{{inner}
    yield %{last}
  }}
  return
}}
""")
    verify(module)
    return module, find(module, "dot")


def test_loops_in_a_row_do_not_meet() -> None:
    module, dots = module_of(loop("x", "csum", 1) + loop("y", "x", 1), "y")
    assert len(dots) == 2
    check_accumulators(module, dict.fromkeys(dots, 1))


def test_products_of_one_loop_meet() -> None:
    module, dots = module_of(loop("x", "csum", 2), "x")
    with pytest.raises(Unsuited, match="take 256 registers of each thread, of 240"):
        check_accumulators(module, dict.fromkeys(dots, 1))


def test_a_product_meets_those_of_a_loop_beside_it() -> None:
    outside = "\n    " + _DOT.format(name="own", start="csum")
    module, dots = module_of(outside + loop("x", "own", 1), "x")
    with pytest.raises(Unsuited, match="take 256 registers"):
        check_accumulators(module, dict.fromkeys(dots, 1))


_OWN = """
    %first = dot %a, %b, %start {{precision = "ieee"}} : tile<64x256xf32>
    %scaled = add %first, %start : tile<64x256xf32>
    {between}
    %second = dot %a, %b, %start {{precision = "ieee"}} : tile<64x256xf32>
    %both = add %{left}, %second : tile<64x256xf32>"""


def test_products_of_an_iteration_meet_only_while_something_reads_them() -> None:
    between = "%narrow = cast %scaled : tile<64x256xbf16>\n    %wide = cast %narrow"
    between += " : tile<64x256xf32>"
    module, dots = module_of(_OWN.format(between=between, left="start"), "both")
    check_accumulators(module, dict.fromkeys(dots, 1))
    module, dots = module_of(_OWN.format(between=between, left="scaled"), "both")
    with pytest.raises(Unsuited, match="take 256 registers"):
        check_accumulators(module, dict.fromkeys(dots, 1))


def test_a_sum_that_is_scaled_before_it_is_added_to_is_held_all_along() -> None:
    between = "%narrow = cast %scaled : tile<64x256xbf16>\n    %wide = cast %narrow"
    between += " : tile<64x256xf32>\n    %before = mul %csum, %start : tile<64x256xf32>"
    text = _OWN.format(between=between, left="start").replace("%a, %b, %start", "%a, %b, %before")
    module, dots = module_of(text.replace("%a, %b, %before", "%a, %b, %start", 1), "both")
    with pytest.raises(Unsuited, match="take 256 registers"):
        check_accumulators(module, dict.fromkeys(dots, 1))


def test_what_a_product_needs_besides_is_counted_once() -> None:
    module, dots = module_of(loop("x", "csum", 1) + loop("y", "x", 1), "y")
    with pytest.raises(Unsuited, match="take 256 registers"):
        check_accumulators(module, dict.fromkeys(dots, 2))
