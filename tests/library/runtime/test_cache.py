"""The user's cache: whole files or none, no trust in strangers, no need of a home."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bundles import write_bundle
from helpers.fake_driver import run_program, run_with_fake_driver
from tilewright.abi.arguments import AbiParameter, LaunchAbi
from tilewright.abi.manifest import OWN_SCHEDULE, PTX
from tilewright.errors import FormatError
from tilewright.runtime import cache as cache_module
from tilewright.runtime.cache import UserCache
from tilewright.runtime.cache_file import format_cached, parse_cached, read_cached

_KEY = "ab" * 32
_TEXT = "sm_90a"
_ABI = LaunchAbi("entry", (AbiParameter("pointer", "x"),), 128, writes=("x",))
_CODES = {"sm_90a": b"\x7fELF" + bytes(range(256)) * 8, PTX: b".version 7.0\n"}


def _put(cache: UserCache, key: str = _KEY, freshness: str = "f1") -> None:
    cache.put(key, _TEXT, freshness, kernel="m.k", signature="(x) general", abi=_ABI, codes=_CODES)


def test_another_process_finds_what_was_put(tmp_path: Path) -> None:
    _put(UserCache((tmp_path,)))
    other = UserCache((tmp_path,))
    found = other.find(_KEY, _TEXT, "f1")
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
        _TEXT,
        "f1",
        kernel="m.k",
        signature="(x) general",
        abi=_ABI,
        codes=codes,
        own_abis={name: own},
        waiting={name},
    )
    found = UserCache((tmp_path,)).find(_KEY, _TEXT, "f1")
    assert found is not None
    abis = {name: found.entry.abi_of(blob) for name, blob in found.entry.blobs.items()}
    assert abis == {"sm_90a": _ABI, PTX: _ABI, name: replace(own, waits=True)}
    assert {blob.target for blob in found.entry.blobs.values()} == {"sm_90a", PTX}


def test_keys_targets_and_compilers_are_kept_apart(tmp_path: Path) -> None:
    _put(UserCache((tmp_path,)))
    cache = UserCache((tmp_path,))
    assert cache.find("cd" * 32, _TEXT, None) is None
    assert cache.find(_KEY, "sm_80", None) is None
    assert cache.find(_KEY, _TEXT, "another compiler") is None
    assert cache.find(_KEY, _TEXT, None) is not None


def test_what_another_process_made_meanwhile_is_found(tmp_path: Path) -> None:
    old = UserCache((tmp_path,))
    _put(old)
    assert old.find(_KEY, _TEXT, "f2") is None
    _put(UserCache((tmp_path,)), freshness="f2")
    assert old.find(_KEY, _TEXT, "f2") is not None


def test_what_is_old_in_one_folder_may_be_new_in_the_next(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _put(UserCache((first,)))
    _put(UserCache((second,)), freshness="f2")
    both = UserCache((first, second))
    assert both.find(_KEY, _TEXT, "f3") is None
    assert both.find(_KEY, _TEXT, "f2") is not None


def test_the_folder_may_move(tmp_path: Path) -> None:
    _put(UserCache((tmp_path / "a",)))
    (tmp_path / "a").rename(tmp_path / "b")
    assert UserCache((tmp_path / "b",)).find(_KEY, _TEXT, "f1") is not None


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    cache = UserCache((tmp_path,))
    _put(cache)
    (path,) = cache.files()
    data = path.read_bytes()
    found = cache.find(_KEY, _TEXT, None)
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
    assert second.find(_KEY, _TEXT, None) is None
    assert "set aside" in caplog.text
    assert not path.exists()
    assert path.with_suffix(".damaged").exists()
    _put(second)
    assert UserCache((tmp_path,)).find(_KEY, _TEXT, None) is not None


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
    assert cache.find(_KEY, _TEXT, "f1") is not None
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
    assert UserCache((tmp_path / "real",)).find(_KEY, _TEXT, None) is not None


def test_a_folder_that_everyone_may_write_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _put(UserCache((tmp_path / "open",)))
    (tmp_path / "open").chmod(0o777)
    cache = UserCache((tmp_path / "open", tmp_path / "second"))
    assert cache.find(_KEY, _TEXT, None) is None
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
    assert UserCache((tmp_path,)).find(_KEY, _TEXT, None) is None


def test_a_file_of_another_user_is_not_trusted_in_a_folder_that_many_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _put(UserCache((tmp_path,)))
    tmp_path.chmod(0o1777)
    (path,) = UserCache((tmp_path,)).files()
    mine = path.stat().st_uid
    if mine == 0:  # root's files are trusted by all
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
        monkeypatch.setattr(cache_module, "_refusal", lambda _: None)
    assert UserCache((tmp_path,)).find(_KEY, _TEXT, None) is None
    assert "not to you; it is set aside" in caplog.text


def test_the_file_of_another_kernel_is_not_taken(tmp_path: Path) -> None:
    """Each file is whole, so only what it says it is for can tell."""
    other = "cd" * 32
    _put(UserCache((tmp_path,)))
    _put(UserCache((tmp_path,)), other)
    one, two = UserCache((tmp_path,)).files()
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    cache = UserCache((tmp_path,))
    assert cache.find(_KEY, _TEXT, None) is None
    assert cache.find(other, _TEXT, None) is None
    with pytest.raises(FormatError, match="was made as"):
        read_cached(one.with_suffix(".damaged").rename(one))


@pytest.mark.parametrize("kind", ["pipe", "folder", "dangling link", "link to itself"])
def test_what_is_no_file_is_no_kernel_and_keeps_nobody_waiting(tmp_path: Path, kind: str) -> None:
    _put(UserCache((tmp_path,)))
    (path,) = UserCache((tmp_path,)).files()
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "dangling link":
            path.symlink_to(tmp_path / "nowhere")
        case _:
            path.symlink_to(path)
    cache = UserCache((tmp_path,))
    assert cache.find(_KEY, _TEXT, None) is None
    _put(cache)
    assert UserCache((tmp_path,)).find(_KEY, _TEXT, None) is not None


def test_a_head_that_lacks_a_field_is_a_format_error(tmp_path: Path) -> None:
    cache = UserCache((tmp_path,))
    _put(cache)
    (path,) = cache.files()
    data = path.read_bytes()
    length = int.from_bytes(data[40:48], "little")
    text = data[48 : 48 + length].replace(b'"kernel"', b'"colonel"')
    head = b"TWCACHE1" + hashlib.sha256(text).digest() + len(text).to_bytes(8, "little")
    with pytest.raises(FormatError, match="lacks a field or has a wrong one: KeyError"):
        parse_cached(head + text + data[48 + length :], origin="x")


@pytest.mark.parametrize("call", ["mkdir", "mkstemp", "fdopen", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EBUSY, errno.EIO])
def test_a_full_or_failing_disk_loses_only_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    code: int,
) -> None:
    (tmp_path / "locks").mkdir()

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    cache = UserCache((tmp_path,))
    with monkeypatch.context() as patch, cache.lock(_KEY):
        owner = {"mkdir": Path, "mkstemp": tempfile, "replace": Path}.get(call, os)
        patch.setattr(owner, call, fail)
        _put(cache)
    assert cache.find(_KEY, _TEXT, "f1") is not None
    assert cache.files() == ()
    assert not list(tmp_path.rglob("*.partial"))
    assert os.strerror(code) in caplog.text or call == "mkdir"


def test_a_cleaner_that_runs_at_the_same_time_costs_at_most_the_file(tmp_path: Path) -> None:
    folder, stop = tmp_path / "cache", threading.Event()

    def clean() -> None:
        while not stop.is_set():
            shutil.rmtree(folder, ignore_errors=True)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        for i in range(60):
            cache = UserCache((folder,))
            key = f"{i:02x}" * 32
            with cache.lock(key):
                _put(cache, key)
            assert cache.find(key, _TEXT, "f1") is not None
            UserCache((folder,)).find(key, _TEXT, None)
    finally:
        stop.set()
        cleaner.join()


def test_what_killed_writers_left_is_removed_after_a_day(tmp_path: Path) -> None:
    folder = tmp_path / _KEY[:2]
    folder.mkdir()
    names = ("old.partial", "new.partial", "old.damaged", "old.else")
    for name in names:
        (folder / name).write_bytes(b"half")
        if name.startswith("old"):
            os.utime(folder / name, (1, 1))
    _put(UserCache((tmp_path,)))
    assert {path.name for path in folder.iterdir()} & set(names) == {"new.partial", "old.else"}


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


def test_who_waits_for_a_killed_holder_goes_on(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from tilewright.runtime.cache import UserCache
with UserCache((Path({str(tmp_path / "cache")!r}),)).lock({_KEY!r}):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder, ThreadPoolExecutor(1) as pool:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        def take() -> None:
            with UserCache((tmp_path / "cache",)).lock(_KEY):
                pass

        waiting = pool.submit(take)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.2)
        holder.kill()
        waiting.result(timeout=30)


def test_a_holder_that_never_ends_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module, "_LOCK_WARNING_SECONDS", 0.02)
    monkeypatch.setattr(cache_module, "_LOCK_PATIENCE_SECONDS", 0.1)
    with UserCache((tmp_path,)).lock(_KEY), UserCache((tmp_path,)).lock(_KEY):
        pass
    assert "waiting for another process" in caplog.text
    assert "going on without" in caplog.text


_MISS = """
import sys, time
import numpy as np
from helpers.sample_kernels import add
from tilewright.abi import dtypes
from tilewright.runtime import jit, launch, memory

compile_kernel = jit.compile_kernel
def counted(*arguments, texts):
    print("compiled")
    time.sleep(0.2)
    return compile_kernel(*arguments, texts=texts)
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
