"""Scheduled IR whose layouts would make emission move data in silence is refused."""

from __future__ import annotations

import pytest

from tilewright.errors import InternalCompilerError
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.schedule.verify_scheduled import verify_scheduled

ROWS = "#layout<32x4; r=; l=4,8,16,32,64; w=1,2>"
COLUMNS = "#layout<32x4; r=; l=1,2,4,8,16; w=32,64>"
ACROSS = "#layout<32; r=; l=1,2,4,8,16; w=0,0>"

HEAD = """signature (x:*f32) general num_warps=4 num_stages=3
{attributes}
kernel @k(%x: ptr<f32>) {{
  %zero = constant {{value = 0.0}} : f32
"""


def check(body: str, attributes: str = "") -> None:
    text = HEAD.format(attributes=attributes) + body + "  return\n}\n"
    verify_scheduled(parse_module(text))


def tile(name: str, layout: str | None, shape: str = "32x4") -> str:
    suffix = "" if layout is None else f", {layout}"
    return f"  %{name} = splat %zero : tile<{shape}xf32{suffix}>\n"


REDUCE = '  %s = reduce %a {{axis = {axis}, kind = "sum"{more}}} : tile<{extent}xf32, {layout}>\n'


def test_a_consistent_kernel_passes() -> None:
    layout = "#layout<32; r=; l=1,2,4,8,16; w=0,0>"
    check(
        tile("a", ROWS)
        + REDUCE.format(axis=1, more=", shared_offset = 0", extent=32, layout=layout),
        attributes="attributes {shared_bytes = 512}",
    )


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (tile("a", None), "has no layout"),
        (tile("a", "#layout<32x4; r=1,2; l=4,8,16,32,64; w=>"), "is for 1 warps"),
        (tile("a", "#layout<32x4; r=; l=4,8,16,32,64; w=1,0>"), "does not hold every element"),
        (
            tile("a", ROWS)
            + f'  %m = cmp %a, %a {{predicate = "lt"}} : tile<32x4xi1, {COLUMNS}>\n',
            "one layout",
        ),
        (
            tile("a", ACROSS, "32") + "  %b = expand_dims %a {axis = 1} : "
            "tile<32x1xf32, #layout<32x1; r=; l=0,1,2,4,8; w=16,0>>\n",
            "would move data between threads",
        ),
        (
            tile("a", "#layout<32x1; r=; l=1,2,4,8,16; w=0,0>", "32x1")
            + f"  %b = broadcast %a : tile<32x4xf32, {COLUMNS}>\n",
            "would move data between threads",
        ),
        (
            tile("a", ROWS)
            + REDUCE.format(
                axis=0, more="", extent=4, layout="#layout<4; r=1,2; l=0,0,0,0,0; w=0,0>"
            ),
            "the result has layout",
        ),
        (
            tile("a", "#layout<32x4; r=; l=5,8,16,32,64; w=1,2>")
            + REDUCE.format(axis=1, more="", extent=32, layout=ACROSS),
            "cannot be reduced",
        ),
        (
            tile("a", ROWS) + REDUCE.format(axis=1, more="", extent=32, layout=ACROSS),
            "has no shared_offset",
        ),
        (
            tile("a", ROWS)
            + REDUCE.format(axis=1, more=", shared_offset = 0", extent=32, layout=ACROSS),
            "beyond the module's 0 shared bytes",
        ),
    ],
    ids=[
        "no layout",
        "warps",
        "holes",
        "comparison",
        "expand_dims",
        "broadcast",
        "reduce result",
        "mixed basis",
        "no offset",
        "no bytes",
    ],
)
def test_violations_are_named(body: str, complaint: str) -> None:
    with pytest.raises(InternalCompilerError, match=complaint):
        check(body)
