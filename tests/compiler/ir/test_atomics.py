"""What the verifier says of atomic operations, and what effects they have."""

from __future__ import annotations

import re

import pytest

from tilewright.errors import InternalCompilerError
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.effects import is_pure, is_read, may_wait, may_write
from tilewright_compiler.ir.parser import parse_module
from tilewright_compiler.ir.printer import print_module
from tilewright_compiler.ir.verifier import verify

HOW = 'sem = "relaxed", scope = "gpu"'


def _module(body: str) -> Module:
    return parse_module(
        "signature (x:*i32, f:*f32, b:*i8, n:i32, c:i1) general num_warps=4 num_stages=3\n"
        "kernel @k(%x: ptr<i32>, %f: ptr<f32>, %b: ptr<i8>, %n: i32, %c: i1) {\n"
        f"{body}\nreturn\n}}\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        f'%0 = atomic_rmw %x, %n {{kind = "add", {HOW}}} : i32',
        f'atomic_rmw %x, %n, %c {{kind = "xchg", {HOW}}}',
        f"%0 = atomic_cas %x, %n, %n, %c {{{HOW}, shared_offset = 16}} : i32",
        f"%0 = atomic_load %b, %c {{{HOW}}} : i8",
    ],
)
def test_what_is_right_passes_and_prints_as_it_was(body: str) -> None:
    module = _module(body)
    verify(module)
    assert body in print_module(module)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f'atomic_rmw %n, %n {{kind = "add", {HOW}}}', "first operand is a pointer"),
        (f'atomic_rmw %f, %n {{kind = "add", {HOW}}}', "value i32 does not fit pointer"),
        (f'%0 = atomic_rmw %x, %n {{kind = "add", {HOW}}} : i1', "value i1 does not fit pointer"),
        (f'atomic_rmw %x, %n, %n {{kind = "add", {HOW}}}', "mask is i1"),
        (f"atomic_cas %x, %n, %n, %n {{{HOW}}}", "mask is i1"),
        (f'atomic_rmw %x, %n {{kind = "mul", {HOW}}}', "kind is one of add, max"),
        (f"atomic_rmw %x, %n {{{HOW}}}", "lacks the attribute kind"),
        ('atomic_cas %x, %n, %n {sem = "seq", scope = "gpu"}', "sem is one of relaxed, acquire"),
        ('atomic_cas %x, %n, %n {sem = "relaxed", scope = "cluster"}', "scope is one of cta, gpu"),
        (f"atomic_load %x {{{HOW}}}", "has 1 results, got 0"),
        ('%0 = atomic_load %x {sem = "release", scope = "gpu"} : i32', "releases nothing"),
        (
            f'%v = load %f {{cache = "", eviction = ""}} : f32\n'
            f'atomic_rmw %f, %v {{kind = "or", {HOW}}}',
            "or takes integers, got f32",
        ),
        (
            f'%v = load %b {{cache = "", eviction = ""}} : i8\n'
            f'atomic_rmw %b, %v {{kind = "or", {HOW}}}',
            "elements have at least 16 bits, got i8",
        ),
        (
            f'%0, %1 = atomic_rmw %x, %n {{kind = "add", {HOW}}} : i32, i32',
            "has one result or none, got 2",
        ),
    ],
)
def test_violation_is_named(body: str, message: str) -> None:
    with pytest.raises(InternalCompilerError, match=re.escape(message)):
        verify(_module(body))


def test_they_stay_and_may_be_waited_for() -> None:
    loop = f"""while {{
        %0 = atomic_load %x {{{HOW}}} : i32
        %1 = cmp %0, %n {{predicate = "eq"}} : i1
        condition %1
    }} do {{
        yield
    }}"""
    (waiting, _) = _module(loop).kernel.body.operations
    assert may_wait(waiting)
    load = waiting.regions[0].operations[0]
    assert may_write(load)
    assert not is_pure(load)
    assert not is_read(load)
