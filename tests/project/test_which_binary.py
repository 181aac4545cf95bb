"""The page on binaries and faults says what is so: settings, exit codes, commands, names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright
from helpers.fake_driver import run_program
from tilewright import errors
from tilewright.settings import describe

_PAGE = (Path(__file__).parents[2] / "docs" / "which-binary.md").read_text()


def test_the_table_of_settings_is_the_librarys() -> None:
    assert describe() in _PAGE


def test_exit_codes_are_those_of_the_errors() -> None:
    told = dict(re.findall(r"^\| (\d+) \| (.*) \|$", _PAGE, re.MULTILINE))
    assert set(told) == {
        "0",
        *(
            str(kind.exit_code)
            for kind in (
                errors.FormatError,
                errors.DriverError,
                errors.ResolveError,
                errors.SettingsError,
            )
        ),
    }


def test_names_of_the_page_exist() -> None:
    for name in re.findall(r"tw\.(\w+)", _PAGE):
        assert hasattr(tilewright, name)
    for name in re.findall(r"`(\w+Error)`", _PAGE):
        assert hasattr(errors, name)


@pytest.mark.parametrize(
    "words", re.findall(r"^tilewright (explain softmax.*?)(?: *#.*)?$", _PAGE, re.MULTILINE)
)
def test_commands_of_the_page_are_understood(tmp_path: Path, words: str) -> None:
    program = f"from tilewright.cli.main import _parser; _parser().parse_args({words.split()!r})"
    assert run_program(program, tmp_path).code == 0
