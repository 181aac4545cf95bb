from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright_release.stage_cache import StageCache, prune, write_atomically


def test_gives_back_what_was_put(tmp_path: Path) -> None:
    cache = StageCache(tmp_path, "stages")
    assert cache.get("ab12") is None
    cache.put("ab12", b"value")
    assert cache.get("ab12") == b"value"
    assert cache.stored == 1
    assert StageCache(tmp_path, "other").get("ab12") is None


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[:-1], lambda raw: raw[:-1] + b"X", lambda raw: raw[:0], lambda raw: raw[:10]],
    ids=["cut", "flipped", "emptied", "cut in the digest"],
)
def test_damage_is_a_miss_and_is_removed(tmp_path: Path, damage: object) -> None:
    cache = StageCache(tmp_path, "stages")
    cache.put("ab12", b"value")
    path = tmp_path / "stages" / "ab" / "ab12"
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("ab12") is None
    assert not path.exists()
    cache.put("ab12", b"value")
    assert cache.get("ab12") == b"value"


def test_a_folder_of_somebody_else_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = StageCache(tmp_path, "stages")
    cache.put("ab12", b"value")
    cache.put("ab34", b"value")
    (tmp_path / "stages" / "ab" / "ab34").write_bytes(b"damaged")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert cache.get("ab12") == b"value"
    assert cache.get("ab34") is None


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "file", b"value")
    assert list(tmp_path.iterdir()) == []


def test_readers_see_the_old_value_or_the_new(tmp_path: Path) -> None:
    cache = StageCache(tmp_path, "stages")
    values = [bytes([n]) * 100_000 for n in range(8)]
    cache.put("ab12", values[0])

    def write(value: bytes) -> None:
        for _ in range(10):
            StageCache(tmp_path, "stages").put("ab12", value)

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(write, value) for value in values]
        while not all(future.done() for future in futures):
            assert cache.get("ab12") in values


def test_files_can_be_read_by_others(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"value")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_prune_removes_what_was_unused_for_longest(tmp_path: Path) -> None:
    cache = StageCache(tmp_path, "stages")
    for age, key in enumerate(["aa", "bb", "cc"]):
        cache.put(key, b"x" * 68)  # with the digest 100 bytes
        os.utime(tmp_path / "stages" / key / key, (1000 + age, 1000 + age))
    assert cache.get("aa") is not None  # a read makes it the newest
    assert prune(tmp_path, max_bytes=250) == 100
    assert [key for key in ("aa", "bb", "cc") if cache.get(key)] == ["aa", "cc"]
    assert prune(tmp_path, max_bytes=250) == 0


def test_files_that_no_cache_wrote_are_kept(tmp_path: Path) -> None:
    cache = StageCache(tmp_path, "stages")
    cache.put("ab12", b"value")
    others = ["thesis.txt", "stages/notes", "stages/ab/notes.md", "stages/ab/cd12", "x/y/zz/zz12"]
    for name in others:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path, (0, 0))
    (tmp_path / "stages" / "ab" / "ab34").symlink_to(tmp_path / "thesis.txt")
    prune(tmp_path, max_bytes=0)
    assert all((tmp_path / name).read_text() == "mine" for name in others)
    assert cache.get("ab12") is None
