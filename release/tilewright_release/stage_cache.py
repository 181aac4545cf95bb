"""A content-addressed cache on disk, outside the checkout: what a stage made, by its input's key.

Every file is complete or absent: it is written beside its place, synced and renamed, so a kill at
any instant loses at most the work in hand, and any number of processes may share the folder without
a lock. A file starts with the sha256 of its contents; what does not match is removed, then made
again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.errors import ReleaseError
from tilewright.settings import settings

logger = logging.getLogger(__name__)

_DIGEST_BYTES = 32
_KEY = re.compile("[0-9a-f]+")
_PARTIAL = ".writing-"


class StageCache:
    """One namespace of the cache; `get` and `put` are what the compiler's pipeline calls.

    `stored` counts what this object put, which is how often a stage had to run.
    """

    def __init__(self, root: Path, namespace: str) -> None:
        self._folder = root / namespace
        self.stored = 0

    def get(self, key: str) -> bytes | None:
        """Return what is stored under `key`, or None."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        digest, payload = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            logger.warning("cache file %s is damaged; it is made again", path)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        # The newest reads survive `prune`. Another process may have pruned it meanwhile, and nobody
        # prunes a folder that may only be read.
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, value: bytes) -> None:
        """Store `value` under `key`."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(value).digest() + value)
        self.stored += 1

    def _path(self, key: str) -> Path:
        # Two characters of the key as folder: a flat one with 10^5 files is slow on network disks.
        return self._folder / key[:2] / key


def default_cache() -> Path:
    """Return the folder of the build caches: outside the checkout, so that clones share it."""
    candidates = settings().cache_candidates
    if not candidates:
        msg = "TILEWRIGHT_CACHE_DIR=off leaves no place for the build caches; name one with --cache"
        raise ReleaseError(msg)
    return candidates[0] / "factory"


def file_digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file in a folder by its name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def write_atomically(path: Path, payload: bytes) -> None:
    """Write a file that appears complete or not at all, also when the machine loses power."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp gives 0600, which would follow the file into the wheel.
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def prune(root: Path, *, max_bytes: int) -> int:
    """Remove the files unused for longest until at most `max_bytes` are left; return bytes removed.

    Only what is laid out as a cache lays it out, leftovers of killed writers with it: a folder that
    was named by mistake keeps its own.
    """
    files = sorted(_files(root))
    total = sum(size for _, size, _ in files)
    removed = 0
    for _, size, path in files:
        if total - removed <= max_bytes:
            break
        path.unlink(missing_ok=True)
        removed += size
    return removed


def _files(root: Path) -> Iterator[tuple[float, int, Path]]:
    for path in root.glob("*/??/*"):
        is_kept = _KEY.fullmatch(path.name) and path.name.startswith(path.parent.name)
        if not is_kept and not path.name.startswith(_PARTIAL):
            continue
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield status.st_mtime, status.st_size, path
