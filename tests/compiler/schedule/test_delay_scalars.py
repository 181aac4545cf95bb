"""Scalars that a loop of dots does not need are computed while its last dots run."""

from __future__ import annotations

from helpers.descriptor_kernels import Product
from tilewright_compiler.ir.core import Block, Operation
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify
from tilewright_compiler.passes import optimize
from tilewright_compiler.schedule.delay_scalars import delay_scalars
from tilewright_compiler.schedule.hopper import schedule_hopper

# The program's place by a division, as grouped orders have it, and a loop that does not start at 0.
_ROW = "  %r0 = mul %row, %bm : i64\n"
_DIVIDED = (
    "  %half = div %row, %two : i64\n  %first = rem %row, %two : i64\n"
    "  %twice = mul %half, %two : i64\n  %place = add %twice, %first : i64\n"
    "  %r0 = mul %place, %bm : i64\n"
)


def consumer_program(text: str) -> Block:
    module = schedule_hopper(optimize(parse_module(text)))
    assert module is not None
    verify(module)
    (roles,) = (o for o in module.kernel.body.operations if o.name == "roles")
    (walk,) = (o for o in roles.regions[1].operations if o.name == "for")
    return walk.regions[0]


def divided(product: Product) -> str:
    text = product.text()
    assert text.count(_ROW) == 1
    return text.replace(_ROW, "  %two = constant {value = 2} : i64\n" + _DIVIDED)


def test_where_a_program_is_comes_behind_its_loop_and_before_the_wait() -> None:
    body = consumer_program(divided(Product()))
    names = [operation.name for operation in body.operations]
    loop = names.index("for")
    wait = names.index("dot_wait", loop)
    assert "div" not in names[:loop]
    assert "div" in names[loop:wait]
    assert "div" not in names[wait:]


def test_what_the_loop_needs_stays_before_it() -> None:
    text = divided(Product()).replace("for %zero, %k, %bk", "for %first, %k, %bk")
    body = consumer_program(text)
    names = [operation.name for operation in body.operations]
    loop = names.index("for")
    assert names[:loop].count("rem") == 2  # the program's row, and its half
    assert "div" in names[loop:]


def test_tiles_and_loads_stay_where_they_are() -> None:
    module = parse_module(divided(Product()))
    (loop,) = (o for o in module.kernel.body.operations if o.name == "for")
    index = module.kernel.body.operations.index(loop)
    wait = Operation("dot_wait", (loop.result,), (), {"pending": 0})
    module.kernel.body.operations.insert(index + 1, wait)
    before = [o.name for o in module.kernel.body.operations[:index]]
    after = delay_scalars(module).kernel.body.operations
    moved = [o.name for o in after[[o.name for o in after].index("for") + 1 :]]
    assert "splat" in before
    assert "make_descriptor" in before
    assert "splat" not in moved
    assert "make_descriptor" not in moved


def test_a_module_without_dots_is_as_it_was() -> None:
    module = parse_module(
        "signature (n:i64) fast num_warps=4 num_stages=1\n\n"
        "kernel @one(%n: i64) {\n  %a = add %n, %n : i64\n  return\n}\n"
    )
    assert print_module(delay_scalars(module)) == print_module(module)
