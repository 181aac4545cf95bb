"""Settings are read once, say what is wrong with a value, and describe themselves."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
from pathlib import Path

import pytest

import tilewright
from tilewright import settings as module
from tilewright.errors import SettingsError
from tilewright.settings import Settings, describe, read_settings, settings, variable

PACKAGE = Path(tilewright.__file__).parent


def test_nothing_set_gives_the_defaults() -> None:
    found = read_settings({})
    assert (found.jit, found.ptx, found.interpret) == (True, True, False)
    assert found.cache_dir is None
    assert found.bundle_path is None
    assert found.extra_bundles == ()
    assert found.trace == frozenset()


def test_every_setting_can_be_set() -> None:
    found = read_settings(
        {
            "TILEWRIGHT_JIT": "off",
            "TILEWRIGHT_PTX": "off",
            "TILEWRIGHT_INTERPRET": "on",
            "TILEWRIGHT_CACHE_DIR": "/c",
            "TILEWRIGHT_BUNDLE_PATH": "/b",
            "TILEWRIGHT_EXTRA_BUNDLES": "/d:/e",
            "TILEWRIGHT_TRACE": "launch, resolve",
        }
    )
    assert found == Settings(
        jit=False,
        ptx=False,
        interpret=True,
        cache_dir=Path("/c"),
        bundle_path=Path("/b"),
        extra_bundles=(Path("/d"), Path("/e")),
        trace=frozenset({"launch", "resolve"}),
        cache_candidates=(Path("/c"),),
    )


@pytest.mark.parametrize(
    "name", ["JIT", "PTX", "INTERPRET", "CACHE_DIR", "BUNDLE_PATH", "EXTRA_BUNDLES", "TRACE"]
)
def test_empty_means_unset(name: str) -> None:
    assert read_settings({f"TILEWRIGHT_{name}": " "}) == read_settings({})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("JIT", "yes", "on or off"),
        ("JIT", "ON", "on or off"),
        ("PTX", "0", "on or off"),
        ("INTERPRET", "true", "on, off, 1 or 0"),
        ("TRACE", "all", "off, launch or resolve, or both with a comma"),
        ("TRACE", "launch,", "off, launch or resolve"),
        ("CACHE_DIR", "cache", "absolute path"),
        ("CACHE_DIR", "~/cache", "absolute path"),
        ("BUNDLE_PATH", "./bundle", "absolute path"),
        ("EXTRA_BUNDLES", "bundle", "absolute path"),
    ],
)
def test_a_value_that_is_not_allowed_names_those_that_are(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingsError, match=f"TILEWRIGHT_{name}={value!r}.*{allowed}"):
        read_settings({f"TILEWRIGHT_{name}": value})


def test_a_misspelt_variable_is_not_ignored() -> None:
    with pytest.raises(SettingsError, match="TILEWRIGHT_CACHEDIR is no setting; did you mean"):
        read_settings({"TILEWRIGHT_CACHEDIR": "/c"})


def test_variables_of_others_are_ignored() -> None:
    assert read_settings({"TILEWRIGHT_SECOND_PYTHON": "x", "JIT": "?"}) == read_settings({})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["/tmp/tilewright-{uid}"]),
        ({"HOME": "/h"}, ["/h/.cache/tilewright", "/tmp/tilewright-{uid}"]),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, ["/x/tilewright", "/tmp/tilewright-{uid}"]),
        ({"HOME": "/h", "XDG_CACHE_HOME": "x"}, ["/h/.cache/tilewright", "/tmp/tilewright-{uid}"]),
        ({"HOME": "", "TMPDIR": "/t"}, ["/t/tilewright-{uid}"]),
        ({"HOME": "", "TMPDIR": "t"}, ["/tmp/tilewright-{uid}"]),
        ({"HOME": "/h", "TILEWRIGHT_CACHE_DIR": "/c"}, ["/c"]),
        ({"HOME": "/h", "TILEWRIGHT_CACHE_DIR": "off"}, []),
    ],
)
def test_the_cache_has_a_place_with_and_without_a_home(
    environment: dict[str, str], expected: list[str]
) -> None:
    found = read_settings(environment).cache_candidates
    assert found == tuple(Path(path.format(uid=os.getuid())) for path in expected)


def test_settings_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    monkeypatch.setenv("TILEWRIGHT_JIT", "off")
    try:
        assert settings().jit is False
        monkeypatch.setenv("TILEWRIGHT_JIT", "on")
        assert settings().jit is False
    finally:
        settings.cache_clear()


def test_the_table_lists_every_setting_with_its_values() -> None:
    rows = describe().splitlines()[2:]
    declared = [field.name for field in dataclasses.fields(Settings) if field.metadata]
    assert len(declared) >= 6
    assert [row.split("|")[1].strip(" `") for row in rows] == [variable(name) for name in declared]
    for row in rows:
        assert all(len(cell.strip()) > 1 for cell in row.strip("|").split("|")), row


def test_only_settings_reads_the_environment() -> None:
    pattern = re.compile(r"\bos\.(environ|getenv)|\bgetenv\b")
    sources = sorted(PACKAGE.rglob("*.py"))
    assert len(sources) > 10
    readers = [path for path in sources if pattern.search(_code(path))]
    assert readers == [Path(module.__file__)]


def _code(path: Path) -> str:
    """Return a file without its docstrings and comments."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.unparse(tree)


@pytest.mark.parametrize(("text", "is_forced"), [("", False), ("0", False), ("1", True)])
def test_cuda_can_force_ptx(text: str, is_forced: bool) -> None:
    assert read_settings({"CUDA_FORCE_PTX_JIT": text}).force_ptx is is_forced
    assert not read_settings({}).force_ptx


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("on", True), ("0", False)])
def test_interpreting_is_asked_for_by_word_or_digit(text: str, expected: bool) -> None:
    assert read_settings({"TILEWRIGHT_INTERPRET": text}).interpret is expected
