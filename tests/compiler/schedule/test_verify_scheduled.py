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


# An m16n8k16 of one warp of four; the others repeat it.
DOT = {
    "a": "tile<16x16xf16, #layout<16x16; r=1,128,8; l=2,4,16,32,64; w=0,0>>",
    "b": "tile<16x8xf16, #layout<16x8; r=8,64; l=16,32,1,2,4; w=0,0>>",
    "acc": "tile<16x8xf32, #layout<16x8; r=1,64; l=2,4,8,16,32; w=0,0>>",
    "attributes": ', atom = "mma.m16n8k16", warps = (1, 1)',
}
IN_SHARED = "shared<16x8xf16, #shared<16x8; 1,2,4,8,16,32,64>>"


def dot(**changes: str) -> str:
    """Return a dot of zeros, with parts of DOT replaced."""
    parts = {**DOT, **changes}
    b = f"splat %h : {parts['b']}"
    if parts["b"].startswith("shared"):
        b = f"alloc_shared {parts.get('place', '{shared_offset = 0}')} : {parts['b']}"
    return f"""  %h = constant {{value = 0.0}} : f16
  %a = splat %h : {parts["a"]}
  %b = {b}
  %c = splat %zero : {parts["acc"]}
  %d = dot %a, %b, %c {{precision = "ieee"{parts["attributes"]}}} : {parts["acc"]}
"""


def test_a_dot_takes_operands_from_registers_and_shared_memory() -> None:
    check(dot())
    check(dot(b=IN_SHARED), attributes="attributes {shared_bytes = 256}")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"attributes": ""}, "has no atom and warps"),
        (
            {"a": "tile<16x16xf16, #layout<16x16; r=1,128,16; l=2,4,8,32,64; w=0,0>>"},
            "a has layout",
        ),
        ({"b": "tile<16x8xf16, #layout<16x8; r=1,64; l=16,32,8,2,4; w=0,0>>"}, "b has layout"),
        ({"acc": "tile<16x8xf32, #layout<16x8; r=1,8; l=2,4,64,16,32; w=0,0>>"}, "acc has layout"),
        ({"b": IN_SHARED.replace("<16", "<2*16", 1)}, "b is a ring"),
        ({"b": IN_SHARED, "place": ""}, "has no shared_offset"),
        (
            {"b": IN_SHARED, "place": "{shared_offset = 400}"},
            "beyond the module's 512 shared bytes",
        ),
    ],
    ids=["no atom", "a", "b", "acc", "ring", "no offset", "no bytes"],
)
def test_violations_of_a_dot_are_named(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(InternalCompilerError, match=complaint):
        check(dot(**changes), attributes="attributes {shared_bytes = 512}")


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


_TILE = "shared<32x4xf32, #shared<32x4; 1,2,4,8,16,32,64>>"


def _single(name: str, offset: int) -> str:
    return f"  %{name} = alloc_shared {{shared_offset = {offset}}} : {_TILE}\n"


def test_tiles_that_do_not_live_at_once_may_share_memory() -> None:
    body = tile("t", ROWS)
    for name in ("a", "b"):
        body += _single(name, 0) + f"  shared_store %t, %{name}\n"
    check(body, "attributes {shared_bytes = 512}")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (
            tile("t", ROWS)
            + _single("a", 0)
            + _single("b", 256)
            + "  shared_store %t, %b\n  shared_store %t, %a\n",
            "shares memory with alloc_shared",
        ),
        (
            _single("a", 0) + "  %c = constant {value = true} : i1\n"
            f"  %b = if %c : {_TILE} {{\n  yield %a\n  }} else {{\n  yield %a\n  }}\n",
            "is carried",
        ),
        (
            "  %g = async_commit : token\n  %c = constant {value = true} : i1\n"
            "  %0 = if %c : token {\n  yield %g\n  } else {\n  yield %g\n  }\n"
            "  async_wait %0 {pending = 0}\n  %d = convert_layout %g : token\n",
            "a token is waited for",
        ),
    ],
    ids=["overlap", "carried tile", "token elsewhere"],
)
def test_memory_and_tokens_that_are_not_plain_are_refused(body: str, complaint: str) -> None:
    with pytest.raises(InternalCompilerError, match=complaint):
        check(body, "attributes {shared_bytes = 1024}")


ATOMIC_HEAD = """signature (x:*i32) general num_warps=4 num_stages=3
attributes {{shared_bytes = {bytes}}}
kernel @k(%x: ptr<i32>) {{
  %one = constant {{value = 1}} : i32
  %many = splat %x : tile<32xptr<i32>, {layout}>
  %ones = splat %one : tile<32xi32, {other}>
"""
HOW = 'kind = "add", sem = "relaxed", scope = "gpu"'
SPREAD = "#layout<32; r=; l=0,0,1,2,4; w=8,16>"


@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        ("%0 = atomic_rmw %x, %one {HOW} : i32", "needs 4 bytes of shared memory"),
        ("%0 = atomic_rmw %x, %one {HOW, shared_offset = 128} : i32", "ends beyond"),
        ("atomic_rmw %x, %one {HOW, shared_offset = 0}", "needs no shared memory"),
        ("%0 = atomic_rmw %many, %ones {HOW} : tile<32xi32, L>", "needs 128 bytes of shared"),
        ("atomic_rmw %many, %ones {HOW, shared_offset = 0}", "needs no shared memory"),
        ("%0 = atomic_rmw %many, %ones {HOW, shared_offset = 0} : tile<32xi32, L>", None),
        ("%0 = atomic_rmw %x, %one {HOW, shared_offset = 0} : i32", None),
        ("atomic_rmw %many, %ones {HOW}", None),
    ],
)
def test_what_tells_threads_of_a_result_has_its_place(
    operation: str, complaint: str | None
) -> None:
    text = ATOMIC_HEAD.format(bytes=128, layout=ACROSS, other=ACROSS)
    text += operation.replace("HOW", HOW).replace("L>", f"{ACROSS}>") + "\n  return\n}\n"
    if complaint is None:
        verify_scheduled(parse_module(text))
        return
    with pytest.raises(InternalCompilerError, match=complaint):
        verify_scheduled(parse_module(text))


def test_tiles_of_an_atomic_operation_have_one_layout() -> None:
    text = ATOMIC_HEAD.format(bytes=0, layout=ACROSS, other=SPREAD)
    text += f"  atomic_rmw %many, %ones {{{HOW}}}\n  return\n}}\n"
    with pytest.raises(InternalCompilerError, match="tiles of one operation have one layout"):
        verify_scheduled(parse_module(text))
