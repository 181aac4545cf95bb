from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import FormatError
from tilewright_release.table import Table, read_table


def _table(tmp_path: Path, text: str) -> Table:
    file = tmp_path / "some.toml"
    file.write_text(text)
    return read_table(file)


def test_reads_each_kind(tmp_path: Path) -> None:
    table = _table(tmp_path, 'a = "x"\nb = 3\nc = ["p", "q"]\n[d]\ne = true\n[[f]]\ng = 1\n')
    assert table.text("a") == "x"
    assert table.integer("b") == 3
    assert table.texts("c") == ("p", "q")
    assert table.scalars("d") == {"e": True}
    assert [item.integer("g") for item in table.tables("f")] == [1]
    table.finish()


def test_defaults_stand_in_for_absent_keys(tmp_path: Path) -> None:
    table = _table(tmp_path, "")
    assert table.text("a", "x") == "x"
    assert table.integer("b", 0) == 0
    assert table.texts("c", ()) == ()
    assert list(table.table("d").names()) == []


@pytest.mark.parametrize(
    ("text", "read", "problem"),
    [
        ("", lambda t: t.text("a"), "a is missing"),
        ("a = 1", lambda t: t.text("a"), "a must be a string, is 1"),
        ("a = -1", lambda t: t.integer("a"), "a must be an integer of at least 0, is -1"),
        ("a = true", lambda t: t.integer("a"), "a must be an integer of at least 0, is True"),
        ("a = [1]", lambda t: t.texts("a"), "a must be a list of strings, is [1]"),
        ("a = []", lambda t: t.tables("a"), "a must be one or more [[a]] tables, is []"),
        ("a = 1", lambda t: t.table("a"), "a must be a table, is 1"),
        ("[a]\nb = []", lambda t: t.scalars("a"), "a.b must be a string, number or boolean, is []"),
        (
            "[a]\nb = []",
            lambda t: t.choices("a"),
            "a.b must be a string, number or boolean, or a list of them, is []",
        ),
        (
            "[a]\nb = [{}]",
            lambda t: t.choices("a"),
            "a.b must be a string, number or boolean, or a list of them, is [{}]",
        ),
        (
            "[[a]]\n[[a]]\nb=1",
            lambda t: t.tables("a")[1].text("b"),
            "a[1].b must be a string, is 1",
        ),
        ("[a]\nb = 1", lambda t: t.table("a").finish(), "a.b is not a key that is known here"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_name_file_and_key(tmp_path: Path, text: str, read: object, problem: str) -> None:
    table = _table(tmp_path, text)
    assert callable(read)
    with pytest.raises(FormatError) as caught:
        read(table)
    assert str(caught.value) == f"{tmp_path / 'some.toml'}: {problem}"


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"absent\.toml does not exist"):
        read_table(tmp_path / "absent.toml")
    with pytest.raises(FormatError, match=r"some\.toml is not valid TOML"):
        _table(tmp_path, "a = ")
