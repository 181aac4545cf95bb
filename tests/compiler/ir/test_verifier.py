"""What the verifier refuses, and that it shows the operation in the printed module."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings

from strategies import Program, programs
from tilewright.errors import InternalCompilerError
from tilewright_compiler.ir.core import Block, Module, Operation, Value
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.types import TileType
from tilewright_compiler.ir.verifier import verify

_ARGUMENTS = "%x: ptr<f32>, %n: i64, %c: i1, %f: f32"
_SIGNATURE = "signature (x:*f32, n:i64, c:i1, f:f32) general num_warps=4 num_stages=3"
_HINTS = '{cache = "", eviction = ""}'


def module_of(body: str, functions: str = "") -> Module:
    return parse_module(
        f"{_SIGNATURE}\nkernel @k({_ARGUMENTS}) {{\n{body}\nreturn\n}}\n{functions}\n"
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs())
def test_random_programs_pass(program: Program) -> None:
    verify(program.module)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%0 = frobnicate %n : i64", "no operation has this name"),
        ("%0 = add %n : i64", "takes 2 to 2 operands, got 1"),
        ("%0, %1 = add %n, %n : i64, i64", "has 1 results, got 2"),
        ("%0 = program_id : i64", "lacks the attribute axis"),
        ("%0 = add %n, %n {fast = true} : i64", "has no attribute fast"),
        ("%0 = program_id {axis = 3} : i64", "axis is 0, 1 or 2"),
        ("%0 = add %n, %f : i64", "operands and result have one type"),
        ("%0 = splat %n : tile<3xi64>", "extents are powers of two"),
        ("%0 = splat %n : tile<i64>", "a tile has at least one axis"),
        ("%0 = constant {value = 1} : f32", "1 is no value of f32"),
        ("%0 = constant {value = 128} : i8", "128 is no value of i8"),
        ("%0 = constant {value = true} : i32", "True is no value of i32"),
        (f"%0 = load %n {_HINTS} : i64", "first operand is a pointer"),
        (f"store %x, %n {_HINTS}", "value i64 does not fit pointer"),
        ("return", "only the last operation ends a block"),
        ("if %n {\nyield\n} else {\nyield\n}", "the condition is an i1 scalar"),
        ("if %c {\nyield\n}", "has 2 regions, got 1"),
        ("if %c {\nreturn\n} else {\nyield\n}", "this block ends in yield"),
        ("if %c {\n} else {\nyield\n}", "a block is empty"),
        ("%0 = if %c : i64 {\nyield %n\n} else {\nyield\n}", "both branches yield"),
        ("for %n, %n, %n (%i: i32) {\nyield\n}", "first argument is the induction value"),
        ("for %n, %n, %n {\nyield\n}", "first argument is the induction value"),
        ("for %f, %f, %f (%i: f32) {\nyield\n}", "bounds are integer scalars"),
        ("while {\ncondition %n\n} do {\nyield\n}", "the condition is an i1 scalar"),
        ("while %n (%a: i64) {\ncondition %c\n} do {\nyield\n}", "carried types agree"),
        ('call {callee = "k"}', "no function @k to call"),
        ('%0 = call %n {callee = "f"} : i64', "passes (i64) to @f, which takes (f32)"),
        ('call %f {callee = "f"}', "expects () of @f, which returns (f32)"),
    ],
)
def test_violation_is_named(body: str, message: str) -> None:
    functions = "func @f(%a: f32) -> f32 {\nreturn %a\n}"
    with pytest.raises(InternalCompilerError, match=re.escape(message)) as caught:
        verify(module_of(body, functions))
    (note,) = caught.value.__notes__
    assert re.search(rf"// \^ .*{re.escape(message)}", note)


_TILE = "%t = splat %n : tile<8xi64>\n"
_COMBINE = "(%a: i64, %b: i64) {\nyield %a\n}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"%0 = reduce_with %n {{axis = 0}} : i64 {_COMBINE}", "operands are tiles of one shape"),
        (f"%0 = reduce_with %t {{axis = 1}} : i64 {_COMBINE}", "axis 1 is not in a tile"),
        (
            f"%0 = reduce_with %t {{axis = 0}} : f32 {_COMBINE}",
            "the operands' elements and shape ()",
        ),
        (
            f"%0, %1 = reduce_with %t {{axis = 0}} : i64, i64 {_COMBINE}",
            "a result for each operand",
        ),
        ("%0 = reduce_with %t {axis = 0} : i64", "has 1 regions, got 0"),
        (
            "%0 = reduce_with %t {axis = 0} : i64 (%a: i64) {\nyield %a\n}",
            "the region takes two scalars for each operand",
        ),
        (
            "%0 = reduce_with %t {axis = 0} : i64 (%a: i64, %b: i64) {\nyield\n}",
            "the region yields one scalar for each operand",
        ),
        (
            "%0 = reduce_with %t {axis = 0} : i64 (%a: i64, %b: i64) {\n"
            "%s = splat %a : tile<8xi64>\nyield %a\n}",
            "the region computes with scalars, splat has a tile",
        ),
        (
            f"%0 = scan %t {{axis = 0, reverse = false}} : tile<4xi64> {_COMBINE}",
            "results have the operands' types",
        ),
        ('%0 = reduce %t {axis = 0, kind = "product"} : i64', "kind is one of"),
        ("%0 = gather %t, %t {axis = 1} : tile<8xi64>", "axis 1 of tiles of one rank"),
        (
            "%0 = gather %t, %t {axis = 0} : tile<4xi64>",
            "the source's elements and the index' shape",
        ),
        ("%0 = histogram %n : tile<8xi32>", "counts a tile of integers"),
        ("%0 = histogram %t, %t : tile<8xi32>", "the mask is a tile of bools"),
        ("%0 = histogram %t : tile<8xi64>", "the result is a tile of i32 of rank 1"),
    ],
)
def test_wrong_reduction_or_look_up_is_named(body: str, message: str) -> None:
    with pytest.raises(InternalCompilerError, match=re.escape(message)):
        verify(module_of(_TILE + body))


def test_bits_of_floats_are_not_reduced() -> None:
    body = '%t = splat %f : tile<8xf32>\n%0 = reduce %t {axis = 0, kind = "xor"} : f32'
    with pytest.raises(InternalCompilerError, match="xor is of integers"):
        verify(module_of(body))


def test_note_points_at_the_guilty_operation() -> None:
    with pytest.raises(InternalCompilerError) as caught:
        verify(module_of("%good = add %n, %n : i64\n%bad = neg %c : i64"))
    (note,) = caught.value.__notes__
    lines = [line.strip() for line in note.splitlines()]
    assert lines[lines.index("%bad = neg %c : i64") + 1].startswith("// ^ operand and result have")


def test_value_of_an_inner_block_is_not_visible_outside() -> None:
    module = module_of("if %c {\n%a = add %n, %n : i64\nyield\n} else {\nyield\n}")
    branch = module.kernel.body.operations[0]
    hidden = branch.regions[0].operations[0].result
    module.kernel.body.operations.insert(1, Operation("neg", (hidden,), (Value(hidden.type),)))
    with pytest.raises(InternalCompilerError, match="operand 0 is not visible here"):
        verify(module)


def test_operation_that_stands_twice_is_refused() -> None:
    module = module_of(f"store %x, %f {_HINTS}")
    module.kernel.body.operations.insert(0, module.kernel.body.operations[0])
    with pytest.raises(InternalCompilerError, match="stands in the module twice"):
        verify(module)


def test_attribute_without_a_text_form_is_refused() -> None:
    module = module_of("%0 = program_id {axis = 0} : i64")
    module.kernel.body.operations[0].attributes["axis"] = [0]
    with pytest.raises(InternalCompilerError, match="attribute axis is a list") as caught:
        verify(module)
    assert "<unprintable [0]>" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func @f() {\nreturn\n}", "exactly one kernel, found 0"),
        ("kernel @k(%n: i32) {\nreturn\n}", "arguments (i32) are not the signature's (i64)"),
        ("kernel @k(%n: i64) -> i64 {\nreturn %n\n}", "a kernel returns nothing"),
        ("kernel @k(%n: i64) {\nreturn %n\n}", "returns (i64), the function ()"),
        (
            'kernel @k(%n: i64) {\nreturn\n}\nfunc @f() {\ncall {callee = "g"}\nreturn\n}\n'
            'func @g() {\ncall {callee = "f"}\nreturn\n}',
            "calls are recursive: f -> g -> f",
        ),
    ],
    ids=["no-kernel", "arguments", "results", "return", "recursion"],
)
def test_module_violation_is_named(text: str, message: str) -> None:
    module = parse_module(f"signature (n:i64) general num_warps=4 num_stages=3\n{text}\n")
    with pytest.raises(InternalCompilerError, match=re.escape(message)):
        verify(module)


def test_layout_of_another_shape_is_refused() -> None:
    layout = "#layout<8; r=; l=1,2,4,0,0; w=0,0>"
    module = module_of(f"%0 = splat %n : tile<4xi64, {layout}>")
    assert isinstance(module.kernel.body.operations[0].result.type, TileType)
    with pytest.raises(InternalCompilerError, match=r"the layout is of shape \(8,\)"):
        verify(module)


def test_function_without_terminator_is_refused() -> None:
    module = module_of("")
    module.kernel.body = Block(module.kernel.body.arguments)
    with pytest.raises(InternalCompilerError, match="a block is empty, it ends in return"):
        verify(module)
