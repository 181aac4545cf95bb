"""The user's cache: whole files or none, no trust in strangers, no need of a home."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bundles import write_bundle
from helpers.fake_driver import run_program, run_with_fake_driver
from tilewright.abi.arguments import AbiParameter, LaunchAbi
from tilewright.abi.manifest import OWN_SCHEDULE, PTX
from tilewright.abi.target import Target
from tilewright.errors import FormatError
from tilewright.runtime import cache as cache_module
from tilewright.runtime.cache import UserCache, format_cached, parse_cached

_KEY = "ab" * 32
_TARGET = Target(9, 0, "a")
_ABI = LaunchAbi("entry", (AbiParameter("pointer", "x"),), 128, writes=("x",))
_CODES = {"sm_90a": b"\x7fELF" + bytes(range(256)) * 8, PTX: b".version 7.0\n"}


def _put(cache: UserCache, key: str = _KEY, freshness: str = "f1") -> None:
    cache.put(
        key, _TARGET, freshness, kernel="m.k", signature="(x) general", abi=_ABI, codes=_CODES
    )


def test_another_process_finds_what_was_put(tmp_path: Path) -> None:
    _put(UserCache((tmp_path,)))
    other = UserCache((tmp_path,))
    found = other.find(_KEY, _TARGET, "f1")
    assert found is not None
    assert found.entry.abi == _ABI
    assert {name: other.read(_KEY, blob) for name, blob in found.entry.blobs.items()} == _CODES
    assert [stat.S_IMODE(path.stat().st_mode) for path in other.files()] == [0o600]


def test_a_code_keeps_the_launch_abi_that_it_has_of_its_own(tmp_path: Path) -> None:
    own = replace(_ABI, num_threads=384, grid_kind="persistent", tma_ok="n > 0")
    name = f"sm_90a{OWN_SCHEDULE}"
    codes = {**_CODES, name: b"\x7fELF own"}
    UserCache((tmp_path,)).put(
        _KEY,
        _TARGET,
        "f1",
        kernel="m.k",
        signature="(x) general",
        abi=_ABI,
        codes=codes,
        own_abis={name: own},
    )
    found = UserCache((tmp_path,)).find(_KEY, _TARGET, "f1")
    assert found is not None
    abis = {name: found.entry.abi_of(blob) for name, blob in found.entry.blobs.items()}
    assert abis == {"sm_90a": _ABI, PTX: _ABI, name: own}
    assert {blob.target for blob in found.entry.blobs.values()} == {"sm_90a", PTX}


def test_keys_targets_and_compilers_are_kept_apart(tmp_path: Path) -> None:
    _put(UserCache((tmp_path,)))
    cache = UserCache((tmp_path,))
    assert cache.find("cd" * 32, _TARGET, None) is None
    assert cache.find(_KEY, Target(8, 0), None) is None
    assert cache.find(_KEY, _TARGET, "another compiler") is None
    assert cache.find(_KEY, _TARGET, None) is not None


def test_the_folder_may_move(tmp_path: Path) -> None:
    _put(UserCache((tmp_path / "a",)))
    (tmp_path / "a").rename(tmp_path / "b")
    assert UserCache((tmp_path / "b",)).find(_KEY, _TARGET, "f1") is not None


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    cache = UserCache((tmp_path,))
    _put(cache)
    (path,) = cache.files()
    data = path.read_bytes()
    found = cache.find(_KEY, _TARGET, None)
    assert found is not None
    assert parse_cached(data, origin="x") == found
    assert format_cached(found) == data
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x41
        with pytest.raises(FormatError):
            parse_cached(bytes(damaged), origin="x")
    for length in (0, 5, 60, len(data) // 2, len(data) - 1):
        with pytest.raises(FormatError):
            parse_cached(data[:length], origin="x")
    with pytest.raises(FormatError, match="too many"):
        parse_cached(data + b"\0", origin="x")


def test_a_damaged_file_is_set_aside_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = UserCache((tmp_path,))
    _put(first)
    (path,) = first.files()
    path.write_bytes(path.read_bytes()[:-3])
    second = UserCache((tmp_path,))
    assert second.find(_KEY, _TARGET, None) is None
    assert "set aside" in caplog.text
    assert not path.exists()
    assert path.with_suffix(".damaged").exists()
    _put(second)
    assert UserCache((tmp_path,)).find(_KEY, _TARGET, None) is not None


@pytest.mark.parametrize("kind", ["read-only", "missing parent", "a file", "none"])
def test_without_a_usable_folder_results_live_in_memory(tmp_path: Path, kind: str) -> None:
    blocked = tmp_path / "blocked"
    if kind == "a file":
        blocked.write_text("")
    folders = {
        "read-only": (Path("/proc/tilewright"),),
        "missing parent": (Path("/proc/nowhere/deep/tilewright"),),
        "a file": (blocked / "tilewright",),
        "none": (),
    }[kind]
    cache = UserCache(folders)
    with cache.lock(_KEY):
        _put(cache)
    assert cache.find(_KEY, _TARGET, "f1") is not None
    assert cache.folder() is None
    assert cache.files() == ()


def test_the_next_candidate_is_used(tmp_path: Path) -> None:
    cache = UserCache((Path("/proc/tilewright"), tmp_path / "second"))
    _put(cache)
    assert cache.folder() == tmp_path / "second"
    assert len(cache.files()) == 1


def test_a_symlinked_folder_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    _put(UserCache((tmp_path / "link",)))
    assert UserCache((tmp_path / "real",)).find(_KEY, _TARGET, None) is not None


def test_a_folder_that_everyone_may_write_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _put(UserCache((tmp_path / "open",)))
    (tmp_path / "open").chmod(0o777)
    cache = UserCache((tmp_path / "open", tmp_path / "second"))
    assert cache.find(_KEY, _TARGET, None) is None
    _put(cache)
    assert cache.folder() == tmp_path / "second"
    assert cache.refusals() == ((tmp_path / "open", "everyone may write to it"),)
    assert "is not used" in caplog.text


def test_a_folder_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put(UserCache((tmp_path,)))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    if tmp_path.stat().st_uid == 0:  # root's folders are trusted by all
        os.chown(tmp_path, 12345, -1)
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert UserCache((tmp_path,)).find(_KEY, _TARGET, None) is None


def test_a_full_disk_loses_only_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    cache = UserCache((tmp_path,))
    _put(cache)
    assert cache.find(_KEY, _TARGET, "f1") is not None
    assert cache.files() == ()
    assert not list(tmp_path.rglob("*.partial"))
    assert "No space left" in caplog.text


def test_the_oldest_files_go_when_the_cache_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{i:02x}" * 32 for i in range(4)]
    cache = UserCache((tmp_path,))
    for age, key in enumerate(keys[:3]):
        _put(cache, key)
        (path,) = (p for p in cache.files() if p.name.startswith(key))
        os.utime(path, (age, age))
    size = cache.files()[0].stat().st_size
    monkeypatch.setattr(cache_module, "MAX_BYTES", 3 * size)
    _put(cache, keys[3])
    assert [path.name[:2] for path in cache.files()] == ["01", "02", "03"]


def test_a_killed_holder_releases_the_lock(tmp_path: Path) -> None:
    holder = run_program(
        f"""
import os
from pathlib import Path
from tilewright.runtime.cache import UserCache
with UserCache((Path({str(tmp_path / "cache")!r}),)).lock({_KEY!r}):
    os.kill(os.getpid(), 9)
""",
        tmp_path,
    )
    assert holder.code == -9
    assert (tmp_path / "cache" / "locks").is_dir()
    with UserCache((tmp_path / "cache",)).lock(_KEY):
        pass


_MISS = """
import sys, time
import numpy as np
from helpers.sample_kernels import add
from tilewright.abi import dtypes
from tilewright.runtime import jit, launch, memory

compile_kernel = jit.compile_kernel
def counted(*arguments):
    print("compiled")
    time.sleep(0.2)
    return compile_kernel(*arguments)
jit.compile_kernel = counted
x, y, out = (memory.empty(64, dtypes.float32) for _ in range(3))
add[1](x, y, out, 64, BLOCK=64)
(loaded,) = launch._loaded.values()
print(loaded.candidate)
"""


def _miss(folder: Path, cache: Path) -> str:
    folder.mkdir()
    return run_with_fake_driver(
        _MISS,
        folder,
        TILEWRIGHT_CACHE_DIR=str(cache),
        TILEWRIGHT_BUNDLE_PATH=str(_empty_bundle(folder)),
    ).output


def _empty_bundle(folder: Path) -> Path:
    write_bundle(folder / "bundle", {})
    return folder / "bundle"


def test_of_many_processes_one_compiles_and_all_load(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = [tmp_path / str(i) for i in range(4)]
        outputs = list(pool.map(_miss, folders, [tmp_path / "cache"] * 4))
    assert sum("compiled" in output for output in outputs) == 1
    assert len(UserCache((tmp_path / "cache",)).files()) == 1
    # And a process that comes later takes it from the cache.
    assert _miss(tmp_path / "later", tmp_path / "cache").strip() == "cached sm_90a"
