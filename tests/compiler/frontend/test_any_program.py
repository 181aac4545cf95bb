"""Whatever stands in a kernel gives verified IR or an error in the user's terms."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernel_source import load_kernel, signature_of
from tilewright.abi.signature import ConstexprValue
from tilewright.errors import CompileError
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.verifier import verify

NAMES = ("x", "h", "n", "f", "c", "B", "t", "w", "pair")
ATOMS = (
    *NAMES, "(0)", "(1)", "(-3)", "2.5", "True", "None", "'a'", "(5000000000)", "tl.float16",
    "tl.int8", "tl.arange(0, 8)", "tl.zeros((8, 4), tl.float32)", "tl.program_id(0)", "tl.exp",
    "()",
)  # fmt: skip
BINARY = (
    "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "@",
    "==", "!=", "<", "<=", ">", ">=", "and", "or", "is", "in",
)  # fmt: skip
CALLS = (
    "tl.load({0})", "tl.load({0}, {1}, {2})", "tl.sum({0}, {1})", "tl.max({0})", "tl.exp({0})",
    "tl.where({0}, {1}, {2})", "tl.cdiv({0}, {1})", "tl.maximum({0}, {1})", "tl.sigmoid({0})",
    "tl.full({0}, {1}, {2})", "tl.reshape({0}, {1})", "tl.trans({0})", "tl.abs({0})",
    "tl.broadcast_to({0}, {1})", "tl.expand_dims({0}, {1})", "tl.fma({0}, {1}, {2})",
    "min({0}, {1})", "abs({0})", "int({0})", "float({0})", "bool({0})", "len({0})", "range({0})",
    "{0}.to({1})", "{0}.dtype", "{0}.shape", "{0}.T", "{0}[:, None]", "{0}[{1}]", "{0}[None]",
    "-{0}", "+{0}", "~{0}", "not {0}", "({0} if {1} else {2})", "({0}, {1})", "[{0}]",
    "{0} < {1} < {2}", "g({0}, {1})", "g({0})", "{0}({1})", "tl.constexpr({0})", "tl.clamp({0}, "
    "{1}, {2})",
)  # fmt: skip


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from(BINARY), inner).map(lambda p: f"({' '.join(p)})")
    call = st.tuples(st.sampled_from(CALLS), inner, inner, inner).map(
        lambda p: "(" + p[0].format(*p[1:]) + ")"
    )
    return binary | call


EXPRESSIONS = st.recursive(st.sampled_from(ATOMS), _combined, max_leaves=6)


PARAMETERS: dict[str, ConstexprValue] = {
    "x": "*f32", "h": "*f16", "n": "i64", "f": "f32", "c": "i1", "B": 8,
}  # fmt: skip


@st.composite
def _statements(draw: st.DrawFn, depth: int = 2) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        expression = draw(EXPRESSIONS)
        name = draw(st.sampled_from(NAMES))
        kinds = ["=", "=", "+=", "tuple", "store"] + (
            ["if", "for", "while", "unroll"] if depth else []
        )
        kind = draw(st.sampled_from(kinds))
        body = [] if kind in ("=", "+=", "tuple", "store") else draw(_statements(depth - 1))
        inner = [f"    {line}" for line in body]
        match kind:
            case "tuple":
                lines.append(f"{name}, w = {expression}, {draw(EXPRESSIONS)}")
            case "store":
                lines.append(f"tl.store({expression}, {draw(EXPRESSIONS)})")
            case "if":
                other = [f"    {line}" for line in draw(_statements(depth - 1))]
                lines += [f"if {expression}:", *inner, "else:", *other]
            case "for":
                lines += [f"for i in range({expression}):", *inner]
            case "unroll":
                lines += ["for i in tl.static_range(2):", *inner]
            case "while":
                lines += [f"while {expression}:", *inner]
            case _:
                lines.append(f"{name} {kind} {expression}")
    return lines


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # Python on `1()` and the like
@settings(max_examples=100)
@given(_statements())
def test_program_is_lowered_or_refused(lines: list[str]) -> None:
    body = "\n".join(f"    {line}" for line in lines)
    text = (
        "@tl.kernel\ndef g(a, b):\n    return a + b, b\n"
        "@tl.kernel\ndef k(x, h, n, f, c, B: tl.constexpr):\n"
        f"    t = tl.arange(0, B)\n    w = 0\n    pair = (n, 1)\n{body}\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        kernel = load_kernel(Path(directory), text)
        try:
            module = lower_kernel(kernel, signature_of(kernel, PARAMETERS))
        except CompileError as error:
            refusal: CompileError | None = error
        else:
            refusal = None
            verify(module)
    assert refusal is None or refusal.locations
