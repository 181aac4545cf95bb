"""What lies below a folder that is closed to this user is nothing, and no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.closed_folder import closed_folder
from tilewright.abi.arguments import LaunchAbi
from tilewright.runtime.cache import UserCache
from tilewright.runtime.file_kinds import is_file, is_folder
from tilewright.runtime.packages import PREBUILT, holds_bundle, installed_folders

_KEY = "ab" * 32


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("folder", (True, False)),
        ("file", (False, True)),
        ("link", (False, True)),
        ("dangling", (False, False)),
        ("loop", (False, False)),
        ("missing", (False, False)),
        ("file/below", (False, False)),
        ("nul\0", (False, False)),
    ],
)
def test_kinds(tmp_path: Path, name: str, expected: tuple[bool, bool]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name
    assert (is_folder(path), is_file(path)) == expected


def test_below_a_closed_folder_is_nothing(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "folder").mkdir(parents=True)
    (closed / "file").write_text("")
    with closed_folder(closed):
        found = is_folder(closed / "folder"), is_file(closed / "file")
    assert found == (False, False)


def test_a_home_of_another_user_costs_the_cache_nothing_but_the_place(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".cache" / "tilewright").mkdir(parents=True)
    cache = UserCache((home / ".cache" / "tilewright",))
    abi = LaunchAbi("entry", (), 128)
    with closed_folder(home):
        report = cache.folder(), cache.refusals(), cache.files(), cache.strangers()
        is_writable = cache.is_writable()
        before = cache.find(_KEY, "ptx", None)
        with cache.lock(_KEY):
            cache.put(
                _KEY, "ptx", "f", kernel="m.k", signature="() general", abi=abi, codes={"ptx": b"."}
            )
        after = cache.find(_KEY, "ptx", None)
    assert report == (None, (), (), ())
    assert not is_writable
    assert before is None
    assert after is not None


@pytest.mark.parametrize("kind", ["a file", "a file above", "a dangling link"])
def test_what_is_in_the_way_of_the_cache_is_not_called_writable(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    place = {"a file": "file", "a file above": "file/deep/cache", "a dangling link": "link"}[kind]
    assert not UserCache((tmp_path / place,)).is_writable()
    assert UserCache((tmp_path / place, tmp_path / "second")).is_writable()


def test_a_bundle_that_may_not_be_looked_into_is_a_damaged_one(tmp_path: Path) -> None:
    prebuilt = tmp_path / "acme" / PREBUILT
    prebuilt.mkdir(parents=True)
    assert not holds_bundle(prebuilt)
    with closed_folder(prebuilt):
        assert holds_bundle(prebuilt)


def test_reports_pass_over_a_closed_folder_of_the_path(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "site" / "acme" / PREBUILT).mkdir(parents=True)
    with closed_folder(closed):
        assert installed_folders([str(closed / "site"), str(closed)]) == ()
