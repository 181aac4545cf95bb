"""Changelog fragments: one line of user-visible change a file, of a known kind."""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDER = Path(__file__).resolve().parents[2] / "release" / "changelog.d"
_KINDS = ("added", "changed", "fixed", "removed")
_FRAGMENTS = sorted(path for path in _FOLDER.iterdir() if path.name != "README.md")


def test_there_are_fragments_and_their_rules() -> None:
    assert _FRAGMENTS
    rules = (_FOLDER / "README.md").read_text(encoding="utf-8")
    for kind in _KINDS:
        assert f"`{kind}`" in rules


@pytest.mark.parametrize("path", _FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_one_sentence_of_a_known_kind(path: Path) -> None:
    name, kind, ending = path.name.split(".")
    assert name
    assert kind in _KINDS
    assert ending == "md"
    text = path.read_text(encoding="utf-8")
    assert text.endswith(".\n")
    assert len(text.splitlines()) == 1
