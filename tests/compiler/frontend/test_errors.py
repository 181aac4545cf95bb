"""What a wrong kernel says: the class, the words, the line and the caret."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from helpers import (
    wrong_arrangements,
    wrong_atomics,
    wrong_descriptors,
    wrong_joins,
    wrong_reductions,
    wrong_triton,
    wrong_windows,
)
from helpers.kernel_source import load_kernel, signature_of
from helpers.wrong_programs import PROGRAMS, WrongProgram
from tilewright.abi.signature import ConstexprValue
from tilewright.errors import (
    CompileError,
    InternalCompilerError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
)
from tilewright_compiler import driver, pipeline
from tilewright_compiler.frontend import operators
from tilewright_compiler.frontend.lower import lower_kernel
from tilewright_compiler.ir.core import Module
from tilewright_compiler.passes import optimize

PARAMETERS: dict[str, ConstexprValue] = {"x": "*f32", "h": "*f16", "n": "i64", "f": "f32", "B": 64}
# Names of our classes and of Python's syntax tree, which mean nothing to a kernel's author.
INTERNAL = re.compile(r"Value|Operand|Constant\b|TileType|ScalarType|PointerType|ast\.|<.*object")


def _error_of(directory: Path, text: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        _lower(directory, text)
    return caught.value


def _lower(directory: Path, text: str) -> None:
    kernel = load_kernel(directory, text)
    lower_kernel(kernel, signature_of(kernel, PARAMETERS))


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # Python's own word on `n is 3`
@pytest.mark.parametrize(
    "program",
    [
        *PROGRAMS,
        *wrong_arrangements.PROGRAMS,
        *wrong_atomics.PROGRAMS,
        *wrong_descriptors.PROGRAMS,
        *wrong_joins.PROGRAMS,
        *wrong_reductions.PROGRAMS,
        *wrong_triton.PROGRAMS,
        *wrong_windows.PROGRAMS,
    ],
    ids=lambda program: program.name.replace(" ", "-"),
)
def test_wrong_program_is_told_in_the_users_terms(program: WrongProgram, tmp_path: Path) -> None:
    error = _error_of(tmp_path, program.text)
    assert type(error) is program.error
    for part in program.says:
        assert part in error.message
    assert not INTERNAL.search(error.message)
    lines = program.text.split("\n")
    (expected,) = [number for number, line in enumerate(lines, 1) if "# here" in line]
    location = error.locations[0]
    assert (location.file, location.line) == (str(tmp_path / "kernels.py"), expected)
    span = lines[expected - 1][location.column : location.end_column]
    assert span == program.caret if program.caret else span.strip()


def test_text_shows_line_and_caret(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef wrong(x, f):\n    offset = 1 + f\n    y = tl.load(x + offset)\n"
    assert str(_error_of(tmp_path, text)) == (
        "a pointer moves by integers, got f32 scalar; cast with .to(tl.int64) first\n"
        f"  at {tmp_path / 'kernels.py'}:4:17: in wrong\n"
        "        y = tl.load(x + offset)\n"
        "                    ^^^^^^^^^^"
    )


def test_caret_counts_characters_not_bytes(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef wrong(x, f):\n    größe = 1; y = x + f\n"
    location = _error_of(tmp_path, text).locations[0]
    assert text.split("\n")[2][location.column : location.end_column] == "x + f"


def test_deep_nesting_is_told_without_a_traceback(tmp_path: Path) -> None:
    text = f"@tl.kernel\ndef wrong(n):\n    a = 1\n    b = {'- ' * 950}n\n"
    error = _error_of(tmp_path, text)
    assert isinstance(error, KernelSyntaxError)
    assert "nested too deeply" in error.message
    assert error.locations[0].line == 4
    assert error.__suppress_context__
    with pytest.raises(KernelSyntaxError, match="nested too deeply"):
        _ = load_kernel(tmp_path, text).digest


@pytest.mark.parametrize("operator", [" + ", " and "])
def test_sum_of_any_length_is_lowered(operator: str, tmp_path: Path) -> None:
    text = f"@tl.kernel\ndef good(n):\n    a = {operator.join(['n'] * 2500)}\n"
    kernel = load_kernel(tmp_path, text)
    assert len(kernel.digest) == 64
    module = lower_kernel(kernel, signature_of(kernel, PARAMETERS))
    assert len(module.kernel.body.operations) >= 2500


def test_calls_are_listed_from_the_inside_out(tmp_path: Path) -> None:
    text = """
@tl.kernel
def inner(p, q):
    return p * q

@tl.kernel
def middle(p):
    return inner(p, 2) + 1

@tl.kernel
def outer(x):
    y = middle(x)
"""
    error = _error_of(tmp_path, text)
    assert isinstance(error, KernelTypeError)
    assert [(location.function, location.line) for location in error.locations] == [
        ("inner", 3),
        ("middle", 7),
        ("outer", 11),
    ]


def test_name_missing_in_a_called_kernel_lists_the_calls(tmp_path: Path) -> None:
    text = """
@tl.kernel
def inner(p):
    return p + missing

@tl.kernel
def outer(n):
    y = inner(n)
"""
    error = _error_of(tmp_path, text)
    assert [location.function for location in error.locations] == ["inner", "outer"]


def test_syntax_is_checked_in_branches_not_taken(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef wrong(n, B: tl.constexpr):\n    if B > 100:\n        assert n\n"
    assert _error_of(tmp_path, text).locations[0].line == 4


def test_types_are_not_checked_in_branches_not_taken(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef good(x, f, B: tl.constexpr):\n    if B > 100:\n        a = x + f\n"
    kernel = load_kernel(tmp_path, text)
    lower_kernel(kernel, signature_of(kernel, PARAMETERS))


def test_signature_of_another_kernel_is_refused(tmp_path: Path) -> None:
    first = load_kernel(tmp_path, "@tl.kernel\ndef first(n):\n    pass\n")
    second = load_kernel(tmp_path, "@tl.kernel\ndef second(m, n):\n    pass\n")
    with pytest.raises(KernelTypeError, match=r"second.*\('m', 'n'\).*\('n',\)"):
        lower_kernel(second, signature_of(first, PARAMETERS))


def test_our_own_failure_is_an_internal_error_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise LookupError("planted")  # noqa: EM101

    monkeypatch.setattr(operators, "binary", broken)
    kernel = load_kernel(tmp_path, "@tl.kernel\ndef good(n):\n    a = (n +\n        1)\n")
    with pytest.raises(InternalCompilerError, match=r"(?s)planted.*kernels.py:3:10") as caught:
        lower_kernel(kernel, signature_of(kernel, PARAMETERS))
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize("parameter", ["grid0", "grid2: tl.constexpr = 1"])
def test_no_parameter_has_the_name_of_the_grids_extent(parameter: str, tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, f"@tl.kernel\ndef wrong({parameter}):\n    pass\n")
    with pytest.raises(KernelNameError, match=r"`grid.`: that is the grid's extent") as caught:
        lower_kernel(kernel, signature_of(kernel, {"grid0": "i64"}))
    assert caught.value.locations[0].file == str(tmp_path / "kernels.py")


def _branches(count: int) -> str:
    """Return a kernel that is a chain of so many `if` and `elif`."""
    lines = ["@tl.kernel", "def wrong(x, n):", "    a = n * 1.0"]
    for index in range(count):
        lines += [f"    {'elif' if index else 'if'} n == {index}:", f"        a = a * {index}.5"]
    return "\n".join([*lines, "    tl.store(x, a)", ""])


def _returns(count: int) -> str:
    """Return a kernel with so many early returns, each of which is a level more."""
    lines = ["@tl.kernel", "def wrong(x, n):"]
    for index in range(count):
        lines += [f"    if n == {index}:", "        return"]
    return "\n".join([*lines, "    tl.store(x, 1.0)", ""])


@pytest.mark.parametrize("text", [_branches(110), _returns(110)], ids=["elif", "return"])
def test_a_hundred_branches_are_compiled(text: str, tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, text)
    signature = signature_of(kernel, PARAMETERS)
    assert driver.show(kernel, signature, "scheduled").count("if ") == 110


def test_branches_that_are_too_deep_for_a_pass_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load_kernel(tmp_path, _branches(40))
    signature = signature_of(kernel, PARAMETERS)

    def with_little_left(module: Module) -> Module:
        # What lowering needs is above; so many frames are enough for it, and too few for passes.
        frames = len(inspect.stack(0))
        sys.setrecursionlimit(frames + 60)
        return optimize(module)

    monkeypatch.setattr(pipeline, "optimize", with_little_left)
    before = sys.getrecursionlimit()
    try:
        with pytest.raises(KernelSyntaxError, match="nested too deeply") as caught:
            driver.show(kernel, signature, "scheduled")
    finally:
        sys.setrecursionlimit(before)
    assert caught.value.locations[0].file == str(tmp_path / "kernels.py")
    assert caught.value.__cause__ is None
