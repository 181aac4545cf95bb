"""Keys depend on what a kernel says and on nothing else; golden keys hold in every Python."""

from __future__ import annotations

import ast
import copy
import json
import os
import subprocess
import sys
import tokenize
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import golden_kernels
from helpers.golden import Golden
from helpers.second_python import VARIABLE, other_pythons
from helpers.written_kernel import written_kernel
from tilewright.abi import keys
from tilewright.abi.dtypes import float32
from tilewright.abi.signature import Constexpr, KernelSignature, SpecializationRule, declared
from tilewright.errors import CompileError, KernelSyntaxError, SourceLocation

ROOT = Path(__file__).resolve().parents[3]
GOLDEN_TEXT = Path(golden_kernels.__file__).read_text(encoding="utf-8")

TEXT = '''\
import tilewright.language as tl
from tilewright.language import exp

WIDTH = tl.constexpr(8)


@tl.kernel
def helper(x, scale=2.0):
    return x * scale + WIDTH


@tl.kernel(divisible=("n",), unit=("step",))
def main(x, out, n, step, BLOCK: tl.constexpr, FLAG: tl.constexpr = True):
    """What it is."""
    offsets = tl.arange(0, BLOCK)
    limit: tl.constexpr = WIDTH * 2
    for start in range(0, n, step):
        value = tl.load(x + offsets[:, None], mask=offsets < n, other=0.5)
        if FLAG and start != limit:
            value = helper(exp(value), scale=3)
        elif not FLAG:
            value += -1
        tl.store(out + start, value)
'''
DIGEST = written_kernel(TEXT).digest


def edited(old: str, new: str) -> str:
    assert TEXT.count(old) >= 1, old
    return TEXT.replace(old, new, 1)


# What a key must not see


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("offsets = ", "offsets   =  ", id="spaces"),
        pytest.param("x * scale + WIDTH", "(x * scale) + (WIDTH)", id="parentheses"),
        pytest.param("x * scale + WIDTH", "(\n    x  # why\n    * scale + WIDTH)", id="lines"),
        pytest.param('"""What it is."""', '"""Other words."""', id="docstring"),
        pytest.param('    """What it is."""\n', "", id="no docstring"),
        pytest.param("    limit:", '    "a bare string"\n    limit:', id="bare string"),
        pytest.param("other=0.5", "other=5e-1", id="spelling of a float"),
        pytest.param("* 2\n", "* 0x2\n", id="spelling of an int"),
        pytest.param("elif not FLAG:\n", "else:\n         if not FLAG:\n   ", id="elif"),
        pytest.param("def main(x,", "def main(x: 'a tile',", id="annotation of a parameter"),
        pytest.param("BLOCK: tl.constexpr", "BLOCK: 'tl.constexpr'", id="quoted constexpr"),
        pytest.param("    offsets = ", "    offsets: int = ", id="annotation of a variable"),
        pytest.param("limit: tl.constexpr", 'limit: "tl.constexpr"', id="quoted local constexpr"),
        pytest.param("import", "from __future__ import annotations\nimport", id="future"),
        pytest.param("WIDTH = tl.constexpr(8)", "WIDTH: tl.constexpr = 16 // 2", id="annotated"),
        pytest.param("@tl.kernel\n", "@tl.kernel()\n", id="empty decorator arguments"),
        pytest.param("WIDTH = tl", "UNUSED = 1\ndef other(): ...\nWIDTH = tl", id="neighbours"),
    ],
)  # fmt: skip
def test_what_means_the_same_has_the_same_digest(old: str, new: str) -> None:
    assert written_kernel(edited(old, new)).digest == DIGEST


def test_module_and_file_do_not_enter(tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "renamed.py"
    assert written_kernel("\n\n\n" + TEXT, file=str(moved), module="a.b").digest == DIGEST


@given(st.data())
@settings(max_examples=40)
def test_comments_and_blank_lines_do_not_enter(data: st.DataObject) -> None:
    comment = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12)
    lines: list[str] = []
    for line in TEXT.splitlines():
        for _ in range(data.draw(st.integers(0, 2))):
            indent = " " * data.draw(st.integers(0, 9))
            lines.append(
                data.draw(st.sampled_from(["", f"{indent}# {data.draw(comment)}", indent]))
            )
        trailing = data.draw(st.booleans()) and '"""' not in line
        lines.append(f"{line}  # {data.draw(comment)}" if trailing else line)
    assert written_kernel("\n".join(lines) + "\n").digest == DIGEST


def test_reformatting_the_whole_file_does_not_enter() -> None:
    assert written_kernel(ast.unparse(ast.parse(TEXT))).digest == DIGEST


# What a key must see

_OTHER_OPERATOR = {
    "+": "-", "-": "+", "*": "/", "<": "<=", "!=": "==", "+=": "-=", "=": "+=",
    "and": "or", "not": "- ", "True": "False", "None": "0", "if": "while", "elif": "if",
}  # fmt: skip
# Names that exist in their place, so that the changed kernel has a digest at all.
_OTHER_NAME = {
    "x": "WIDTH", "offsets": "x", "value": "x", "start": "n", "n": "x", "out": "x", "step": "n",
    "limit": "n", "BLOCK": "n", "FLAG": "n", "WIDTH": "x", "scale": "x", "mask": "cache_modifier",
    "other": "cache_modifier", "load": "store", "store": "load", "arange": "cdiv", "range": "min",
    "helper": "exp", "exp": "helper", "constexpr": "Tile", "kernel": "Kernel", "divisible": "unit",
}  # fmt: skip
_PUNCTUATION = set("()[]{}:,.")
_STRUCTURE = {"def", "for", "in", "import", "from", "as", "return", "@", "@tl"}


def other_spelling(token: tokenize.TokenInfo) -> str | None:
    """Return a different token for the same place, or None where the grammar allows no other."""
    if token.string in _OTHER_OPERATOR:
        return _OTHER_OPERATOR[token.string]
    if token.string in _STRUCTURE or token.string in _PUNCTUATION:
        return None
    match token.type:
        case tokenize.NAME:
            return _OTHER_NAME.get(token.string, f"{token.string}_other")
        case tokenize.NUMBER:
            return f"{token.string}7"
        case tokenize.STRING if not token.string.startswith('"""'):
            return f"{token.string} 'other'"
        case _:
            return None


def mutations() -> list[tuple[str, str]]:
    """Return (description, text) with one token of either kernel's definition changed."""
    lines = TEXT.splitlines(keepends=True)
    first = TEXT[: TEXT.index("@tl.kernel")].count("\n") + 1
    result = []
    for token in tokenize.generate_tokens(StringIO(TEXT).readline):
        row, begin = token.start
        replacement = other_spelling(token) if row >= first else None
        if replacement is None:
            continue
        line = lines[row - 1]
        changed = [*lines]
        changed[row - 1] = line[:begin] + replacement + line[token.end[1] :]
        result.append((f"{row}:{begin} {token.string} to {replacement}", "".join(changed)))
    return result


def test_every_token_of_the_kernel_and_its_callee_enters() -> None:
    changed, refused = [], []
    for description, text in mutations():
        try:
            digest = written_kernel(text).digest
        except (SyntaxError, NameError, TypeError, AttributeError, CompileError):
            refused.append(description)  # Python or the language says no: no key, no confusion
            continue
        assert digest != DIGEST, description
        changed.append(description)
    assert len(changed) > 50, refused


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("constexpr(8)", "constexpr(9)", id="captured constant"),
        pytest.param("constexpr(8)", "constexpr(8.0)", id="type of a captured constant"),
        pytest.param("scale=2.0", "scale=2.5", id="default"),
        pytest.param("scale=2.0", "scale=2", id="type of a default"),
        pytest.param("scale=2.0", "scale: tl.constexpr = 2.0", id="constexpr parameter"),
        pytest.param("limit: tl.constexpr", "limit", id="local constexpr"),
        pytest.param("import exp", "import exp2 as exp", id="another function by the same name"),
        pytest.param("FLAG: tl.constexpr = True", "FLAG: tl.constexpr = 1", id="True is not 1"),
        pytest.param("x, out, n", "out, x, n", id="order of parameters"),
        pytest.param('divisible=("n",), ', "", id="divisible"),
        pytest.param('("step",)', '("n",)', id="unit"),
        pytest.param("return x * scale + WIDTH", "return x * (scale + WIDTH)", id="grouping"),
        pytest.param("        tl.store(", "    tl.store(", id="statement out of the loop"),
        pytest.param("        tl.store(out + start, value)\n", "", id="statement gone"),
        pytest.param("+ WIDTH", "+ WIDTH\n    return x", id="statement added"),
        pytest.param("0.5", "-0.5", id="sign"),
    ],
)  # fmt: skip
def test_what_means_something_else_has_another_digest(old: str, new: str) -> None:
    assert written_kernel(edited(old, new)).digest != DIGEST


def test_order_of_names_in_a_rule_does_not_enter() -> None:
    one = edited('divisible=("n",)', 'divisible=("n", "step")')
    other = edited('divisible=("n",)', 'divisible=("step", "n")')
    assert written_kernel(one).digest == written_kernel(other).digest != DIGEST


def test_recursion_has_a_digest() -> None:
    # The compiler refuses it with a message; the key must not hang before it can.
    text = "import tilewright.language as tl\n\n@tl.kernel\ndef f(x):\n    return f(x)\n"
    assert len(written_kernel(text).digest) == 64


# Trees of other versions of Python


def source_of(
    body: list[ast.stmt], *, captures: tuple[tuple[str, str], ...] = ()
) -> keys.KernelSource:
    return keys.KernelSource(
        name="k",
        body=tuple(body),
        parameters=(),
        rule=SpecializationRule(),
        captures=captures,
        locate=lambda node: SourceLocation("k.py", getattr(node, "lineno", 1), 0, 1, "k"),
    )


def digest_of(body: list[ast.stmt]) -> str:
    return keys.kernel_digest(keys.kernel_fields([source_of(body)]))


@given(st.data())
@settings(max_examples=20)
def test_absent_equals_empty_and_other_fields_do_not_enter(data: st.DataObject) -> None:
    tree = copy.deepcopy(ast.parse(GOLDEN_TEXT))  # Python shares the nodes of operators
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)][:2]
    before = [digest_of(function.body) for function in functions]
    for node in ast.walk(tree):
        for name in node._fields:
            is_empty = hasattr(node, name) and getattr(node, name) in (None, [])
            if is_empty and not isinstance(node, ast.Constant) and data.draw(st.booleans()):
                delattr(node, name)
        extra = data.draw(st.sampled_from(["", "kind", "type_params", "type_comment", "ctx"]))
        if extra and not hasattr(node, extra):
            setattr(node, extra, data.draw(st.sampled_from([None, [], "u", 7])))
    assert [digest_of(function.body) for function in functions] == before


EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "ab", "1", "1.0", "True", "None", "'a'", "'1'", "'a, b'"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "and", "<", "in"]), inner),
        st.builds("f({}, {})".format, inner, inner),
        st.builds("f({}, a={})".format, inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("({}).a".format, inner),
        st.builds("({})[{}:{}]".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("({},)".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, EXPRESSIONS)
def test_digests_are_equal_exactly_when_trees_are(left: str, right: str) -> None:
    trees = ast.parse(left), ast.parse(right)
    same = ast.dump(trees[0]) == ast.dump(trees[1])
    assert (digest_of(trees[0].body) == digest_of(trees[1].body)) is same


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=4),
       st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=4))  # fmt: skip
def test_fields_are_kept_apart(left: list[keys.Field], right: list[keys.Field]) -> None:
    assert (keys.kernel_digest(left) == keys.kernel_digest(right)) is (left == right)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("try:\n        pass\n    finally:\n        pass", "`Try`; nothing in a kernel raises"),
        ("y = lambda: x", "`Lambda`; write a second kernel"),
        ("y = [i for i in x]", "`ListComp`; use a loop"),
        ("assert x", "`Assert`; use tl.static_assert"),
        ("y = x[...]", "constant Ellipsis"),
        ("y = 1j", "constant 1j"),
        ("y = b'x'", "constant b'x'"),
        ("del x", "`Delete`"),
        ("global x", "`Global`"),
        ("with x:\n        pass", "`With`"),
        ("y: int", "`AnnAssign`"),
    ],
)
def test_syntax_outside_the_language_is_refused_at_its_line(statement: str, what: str) -> None:
    body = statement.replace("x", "value") if statement == "global x" else statement
    text = f"import tilewright.language as tl\n\n@tl.kernel\ndef f(x):\n    z = x\n    {body}\n"
    kernel = written_kernel(text)
    with pytest.raises(KernelSyntaxError) as caught:
        _ = kernel.digest
    assert what in caught.value.message
    assert caught.value.locations[0].line == 6
    assert "\n    " in str(caught.value)  # the user's line is shown


# Source and build keys


def signature(**changes: object) -> KernelSignature:
    values = {"specialization": "fast", "num_warps": 4, "num_stages": 3, "BLOCK": 64, **changes}
    return declared(
        {"x": (float32,), "BLOCK": Constexpr(values["BLOCK"])},  # type: ignore[arg-type]  # test data
        rule=SpecializationRule(),
        specialization=values["specialization"],  # type: ignore[arg-type]  # test data
        num_warps=values["num_warps"],  # type: ignore[arg-type]  # test data
        num_stages=values["num_stages"],  # type: ignore[arg-type]  # test data
    )


def test_source_key_sees_every_part_of_the_signature() -> None:
    signatures = [
        signature(),
        signature(specialization="general"),
        signature(num_warps=8),
        signature(num_stages=2),
        signature(BLOCK=128),
        signature(BLOCK="64"),
        signature(BLOCK=float32),
        signature(BLOCK="f32"),
        signature(BLOCK=True),
        signature(BLOCK=1),
        signature(BLOCK=1.0),
    ]
    assert len({keys.source_key("0" * 64, s) for s in signatures}) == len(signatures)


def test_build_key_sees_every_part() -> None:
    parts = ("source", "sm_90a", "toolchain", "fingerprint")
    built = {keys.build_key(*parts)}
    for index in range(len(parts)):
        built.add(keys.build_key(*(p + "x" * (i == index) for i, p in enumerate(parts))))
    assert len(built) == 5


def test_keys_of_different_kinds_never_meet() -> None:
    assert keys.kernel_digest([("schema", str(keys.SCHEMA))]) not in (
        keys.source_key("", signature()),
        keys.build_key("", "", "", ""),
    )


# Explanations


def explanation(text: str) -> str | None:
    return keys.explain_difference(written_kernel(TEXT).fields, written_kernel(text).fields)


def test_equal_kernels_have_no_difference() -> None:
    assert explanation(TEXT) is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("(8)", "(9)", "kernel 0 main: WIDTH means: was constexpr int 8, is constexpr int 9"),
        ("scale=2.0", "scale=2.5", "kernel 1 helper: parameter scale: was runtime default float "),
        ("+= -1", "-= -1", "kernel 0 main: statement 2 body 1 orelse 0 body 0: was AugAssign("),
        ("        tl.store(out + start, value)\n", "", "statement 2 body 2: gone, was Expr("),
        ("return x", "x = x\n    return x", "kernel 1 helper: statement 0: was Return("),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(old: str, new: str, expected: str) -> None:
    found = explanation(edited(old, new))
    assert found is not None
    assert expected in found


def test_a_difference_is_found_from_recorded_digests_alone() -> None:
    recorded = keys.field_digests(written_kernel(TEXT).fields)
    running = keys.field_digests(written_kernel(edited("0.5", "0.25")).fields)
    found = keys.explain_difference(recorded, running)
    assert found is not None
    assert found.startswith("kernel 0 main: statement 2 body 0: was ")
    assert all(len(text) == 16 for _, text in recorded)


# Golden keys


def test_keys_are_the_golden_ones(golden: Golden) -> None:
    golden(json.dumps(golden_kernels.golden_keys(), indent=2, sort_keys=True) + "\n")


def test_golden_kernels_use_every_kind_of_syntax() -> None:
    texts = [text for kernel in golden_kernels.KERNELS for _, text in kernel.fields]
    everything = " ".join(texts)
    kinds = [*keys._EXPRESSIONS, *keys._STATEMENTS, "Constexpr"]
    assert [kind for kind in kinds if f"{kind}(" not in everything] == []


def keys_by(python: str) -> object:
    result = subprocess.run(
        [python, golden_kernels.__file__],
        env={"PYTHONPATH": str(ROOT / "library"), "PYTHONHASHSEED": "1", "PATH": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_another_process_gives_the_golden_keys() -> None:
    assert keys_by(sys.executable) == golden_kernels.golden_keys()


def test_other_pythons_give_the_golden_keys() -> None:
    found = other_pythons()
    if not found:
        pytest.skip(f"no second Python >= 3.11 found; name one in {VARIABLE}")
    for version, python in found:
        assert keys_by(python) == golden_kernels.golden_keys(), version
