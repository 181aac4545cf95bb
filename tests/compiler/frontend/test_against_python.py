"""Control flow on integers means what Python means: one text, run by Python and as a kernel."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.kernel_source import run_text
from tilewright.errors import KernelTypeError

# Values stay below 2**12, so that no width wraps and Python's integers agree with the kernel's.
MASK = 4095
NAMES = ("a", "b", "c", "d")
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")


@st.composite
def _integer(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["name", "number", "sum", "product", "choice", "call"]))
    if depth == 0 or kind == "name":
        return draw(st.sampled_from(NAMES))
    if kind == "number":
        return f"({draw(st.integers(-9, 9))})"
    left, right = draw(_integer(depth - 1)), draw(_integer(depth - 1))
    match kind:
        case "sum":
            return f"({left} {draw(st.sampled_from('+-&|^'))} {right})"
        case "product":
            return f"({left} * {right} & 1023)"
        case "choice":
            return f"({left} if {draw(_condition(depth - 1))} else {right})"
        case _:
            return f"{draw(st.sampled_from(['min', 'max', 'mix']))}({left}, abs({right}))"


@st.composite
def _condition(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["compare", "chain", "number", "and", "or", "not"]))
    if depth > 0 and kind in ("and", "or"):
        return f"({draw(_condition(depth - 1))} {kind} {draw(_condition(depth - 1))})"
    if depth > 0 and kind == "not":
        return f"(not {draw(_condition(depth - 1))})"
    terms = [draw(_integer(max(depth - 1, 0))) for _ in range(3)]
    first, second = draw(st.sampled_from(COMPARISONS)), draw(st.sampled_from(COMPARISONS))
    match kind:
        case "number":
            return f"({terms[0]})"
        case "chain":
            return f"({terms[0]} {first} {terms[1]} {second} {terms[2]})"
        case _:
            return f"({terms[0]} {first} {terms[1]})"


@st.composite
def _statements(draw: st.DrawFn, depth: int = 2) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        simple = ["assign", "assign", "constant", "swap", "augment"]
        nested = ["if", "for", "down", "unroll", "while"] if depth else []
        name, expression = draw(st.sampled_from(NAMES)), draw(_integer())
        kind = draw(st.sampled_from(simple + nested))
        body = [f"    {line}" for line in draw(_statements(depth - 1))] if kind in nested else []
        match kind:
            case "assign":
                lines.append(f"{name} = {expression} & {MASK}")
            case "constant":
                lines.append(f"{name} = {draw(st.integers(0, 9))}")
            case "augment":
                lines += [f"{name} += {expression}", f"{name} &= {MASK}"]
            case "swap":
                other = draw(st.sampled_from(NAMES))
                lines.append(f"{name}, {other} = {other}, {name}")
            case "if":
                other_body = [f"    {line}" for line in draw(_statements(depth - 1))]
                lines += [f"if {draw(_condition())}:", *body, "else:", *other_body]
            case "for":
                lines += [f"for i{depth} in range({expression} & 3):", *body]
            case "down":
                step = draw(st.sampled_from([-1, -2]))
                lines += [f"for i{depth} in range(3, {expression} & 3, {step}):"]
                lines += [f"    {name} = {name} + i{depth} & {MASK}", *body]
            case "unroll":
                lines += [f"for i{depth} in tl.static_range(2):"]
                lines += [f"    {name} = {name} + i{depth} & {MASK}", *body]
            case _:
                counter = f"left{depth}"
                lines += [
                    f"{counter} = {expression} & 3",
                    f"while {counter} > 0 and {draw(_condition())}:",
                ]
                lines += [*body, f"    {counter} = {counter} - 1"]
    return lines


def _python(text: str) -> Callable[..., tuple[int, ...]]:
    namespace: dict[str, Callable[..., tuple[int, ...]]] = {}
    exec(text, namespace)
    return namespace["run"]


@settings(max_examples=80)
@given(_statements(), st.tuples(*[st.integers(0, 9)] * 4))
def test_program_computes_what_python_computes(
    lines: list[str], arguments: tuple[int, int, int, int]
) -> None:
    body = "".join(f"    {line}\n" for line in lines)
    mix = (
        f"def mix(p, q):\n    r = p\n    if q > p:\n        r = q - p\n    return r * 3 & {MASK}\n"
    )
    python = f"{mix}def run(a, b, c, d):\n{body}    return a, b, c, d\n"
    expected = _python(python.replace("tl.static_range", "range"))(*arguments)
    stores = "".join(f"    tl.store(out + {i}, {name})\n" for i, name in enumerate(NAMES))
    kernel = f"@tl.kernel\n{mix}@tl.kernel\ndef run(out, a, b, c, d):\n{body}{stores}"
    out = np.zeros(4, np.int64)
    with tempfile.TemporaryDirectory() as directory:
        try:
            named = dict(zip(NAMES, arguments, strict=True))
            run_text(Path(directory), kernel, {"out": out, **named})
        except KernelTypeError as error:
            # Two branches of constants make an i32, which may then not become an i64.
            assume("one type" not in error.message)
            raise
    assert tuple(out) == expected
