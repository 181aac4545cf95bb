"""Rules about every source file: how long, how named, and what may not stand in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_TOPS = (
    *(".ci", "benchmarks", "compiler", "docs", "examples", "library", "prebuilt", "release"),
    *("tests", "wheels"),
)
_MAX_LINES = 800

# A file may be longer for a reason that stands here.
_LONGER: dict[str, str] = {}

_VAGUE_NAMES = {
    *("utils", "util", "helpers", "common", "misc", "manager", "handler", "engine", "core"),
}
# Mathematics has a core; a tests' folder may help.
_NAMED_SO = {"compiler/tilewright_compiler/ir/core.py", "tests/helpers/__init__.py"}

_FORBIDDEN = {
    "a note without an issue": re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))"),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|Users)/\w"),
    "a registry's host": re.compile(r"(?:pypi\.org|files\.pythonhosted|registry\.npmjs)"),
    "who or what wrote it": re.compile(
        r"\b(?:LLM|chatbot|co-authored-by|generated (?:by|with) (?:an? )?AI)\b", re.IGNORECASE
    ),
}


def _files(*endings: str) -> Iterator[Path]:
    for top in _TOPS:
        for path in sorted((_ROOT / top).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix in endings:
                yield path
    yield from sorted(
        path
        for path in _ROOT.glob("*")
        if path.suffix in endings and path.is_file() and not path.name.startswith(".")
    )


def _name(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix()


def test_files_are_short_enough() -> None:
    lengths = {
        _name(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in _files(".py", ".pyi", ".c", ".h", ".cmake", ".sh")
    }
    assert len(lengths) > 200
    long = {name for name, lines in lengths.items() if lines > _MAX_LINES}
    assert long == set(_LONGER), "split the file, or give the reason in _LONGER"


def test_modules_are_named_by_what_they_hold() -> None:
    vague = {
        _name(path)
        for path in _files(".py")
        if (path.parent.name if path.name == "__init__.py" else path.stem) in _VAGUE_NAMES
    }
    assert vague == _NAMED_SO


def test_no_test_file_has_an_init() -> None:
    # With --import-mode=importlib a package in tests/ would shadow the one it tests.
    inits = {_name(path) for path in _files(".py") if path.name == "__init__.py"}
    assert {name for name in inits if name.startswith("tests/")} == {"tests/helpers/__init__.py"}


def test_nothing_forbidden_stands_in_a_file() -> None:
    found = [
        f"{_name(path)}:{number}: {what}: {line.strip()}"
        for path in _files(".py", ".pyi", ".c", ".h", ".md", ".toml", ".cmake", ".txt", ".json", "")
        if path != Path(__file__) and _name(path) != "LICENSE"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for what, pattern in _FORBIDDEN.items()
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_every_module_says_what_it_is() -> None:
    missing = [
        _name(path)
        for path in _files(".py")
        if _name(path).startswith(("library/", "compiler/", "release/", "benchmarks/", "examples/"))
        and not path.read_text(encoding="utf-8").startswith(('"""', 'r"""'))
    ]
    assert missing == []
