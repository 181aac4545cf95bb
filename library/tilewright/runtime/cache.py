"""The user's cache of kernels compiled on this machine: one file per kernel, signature and text.

A text is what one compilation gives, by its name: for a target the one that a launch tries first,
or the common one for launches that this does not serve; or PTX alone. A file holds what it is for,
the launch ABI, the codes and their sha256s, and appears by one rename, so a reader never sees half
of it; nothing in it depends on where it lies. What is damaged, or is another kernel's under this
name, is set aside and compiled again. The cache needs no HOME: candidates are tried in order, a
folder or file of another user is never trusted, and when none can be written the results live in
memory. Locks are flocks, which die with their holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import tilewright
from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.manifest import Blob, Entry
from tilewright.errors import FormatError
from tilewright.runtime.cache_file import CachedKernel, blob_of, format_cached, read_cached
from tilewright.runtime.file_kinds import is_folder
from tilewright.settings import settings

logger = logging.getLogger(__name__)

_SUFFIX = ".twk"
_DAMAGED, _PARTIAL = ".damaged", ".partial"
_LOCKS = 256
# What else lies in the folder: locks, tables of configurations, the caches of the factory.
_NEIGHBOURS = ("locks", "tuned", "factory")
# A holder that compiles takes seconds. One that hangs must not stop every other process with it.
_LOCK_WARNING_SECONDS, _LOCK_PATIENCE_SECONDS = 20.0, 300.0
_LEFTOVER_SECONDS = 24 * 3600.0
MAX_BYTES = 1 << 30
"""Above this, the files not used for longest are removed."""


class UserCache:
    """Compiled kernels by source key and text, in the first usable folder and in memory."""

    def __init__(self, candidates: tuple[Path, ...]) -> None:
        self._candidates = candidates
        self._memory: dict[str, CachedKernel] = {}

    def find(self, source_key: str, text: str, freshness: str | None) -> CachedKernel | None:
        """Return what `put` kept of a kernel's `text`, in memory or in the first folder with it.

        With `freshness`, what another version of the compiler made is not returned.
        """
        name = _name(source_key, text)
        found = self._memory.get(name)
        if found is None or not _is_fresh(found, freshness):
            found = self._read(name, freshness)
            if found is not None:
                self._memory[name] = found
        return found

    def read(self, source_key: str, blob: Blob) -> bytes:
        """Return the bytes of a blob of an entry that `find` or `put` returned."""
        for name, cached in self._memory.items():
            if name.startswith(source_key) and blob.sha256 in cached.codes:
                return cached.codes[blob.sha256]
        msg = f"the cache lost the blob {blob.sha256} of {source_key}"
        raise FormatError(msg)

    def put(
        self,
        source_key: str,
        text: str,
        freshness: str,
        *,
        kernel: str,
        signature: str,
        abi: LaunchAbi,
        codes: Mapping[str, bytes],
        own_abis: Mapping[str, LaunchAbi] = MappingProxyType({}),
        waiting: Collection[str] = (),
    ) -> CachedKernel:
        """Keep what was compiled of a kernel's `text`, and return it as an entry.

        `own_abis` are those of codes that are not launched by `abi`; `waiting` are codes that wait
        by themselves for the kernels before them. Failing to write is no error.
        """
        blobs = {
            name: blob_of(name, code, freshness, own_abis.get(name), waits=name in waiting)
            for name, code in codes.items()
        }
        entry = Entry(kernel=kernel, family="user", signature=signature, abi=abi, blobs=blobs)
        name = _name(source_key, text)
        contents = {blobs[each].sha256: code for each, code in codes.items()}
        cached = CachedKernel(name, entry, contents)
        self._memory[name] = cached
        folder = self._writable()
        if folder is not None:
            self._write(folder, name, cached)
        return cached

    @contextlib.contextmanager
    def lock(self, source_key: str) -> Iterator[None]:
        """Hold the lock of a source key against other processes.

        Where locks do not work (no folder, a file system without them) the work may be done twice,
        which wastes time and does no harm.
        """
        folder = self._writable()
        handle = None if folder is None else _open_lock(folder, source_key)
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)  # which releases the lock

    def folder(self) -> Path | None:
        """Return the folder in use: the first that exists and may be used; None at first."""
        return next(
            (path for path in self._candidates if is_folder(path) and _is_usable(path)), None
        )

    def refusals(self) -> tuple[tuple[Path, str], ...]:
        """Return the folders that exist and are not used, each with the reason."""
        found = ((path, _refusal(path)) for path in self._candidates if is_folder(path))
        return tuple((path, reason) for path, reason in found if reason is not None)

    def files(self) -> tuple[Path, ...]:
        """Return the files of the cache, in order."""
        folder = self.folder()
        return () if folder is None else tuple(sorted(folder.glob(f"*/*{_SUFFIX}")))

    def strangers(self) -> tuple[Path, ...]:
        """Return what in the folder in use is no file of the cache, nor of those beside it."""
        folder = self.folder()
        if folder is None:
            return ()
        found = [path for path in folder.iterdir() if not path.is_dir()]
        for path in folder.glob("*/*"):
            is_ours = path.suffix in (_SUFFIX, _DAMAGED, _PARTIAL)
            if path.parent.name not in _NEIGHBOURS and not is_ours:
                found.append(path)
        return tuple(sorted(found))

    def is_writable(self) -> bool:
        """Return whether a file can be kept: in a folder that exists, or in one that can be made.

        Looks at permissions and writes nothing.
        """
        for path in self._candidates:
            # A file in the way, or a link that leads nowhere, is as bad as a closed folder.
            nearest = next(filter(os.path.lexists, (path, *path.parents)))
            is_open = is_folder(nearest) and _may(nearest, os.W_OK | os.X_OK)
            if is_open and (nearest != path or _refusal(path) is None):
                return True
        return False

    def _writable(self) -> Path | None:
        for candidate in self._candidates:
            try:
                candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                logger.debug("cache folder %s cannot be made: %s", candidate, error)
                continue
            reason = _refusal(candidate)
            if reason is not None:
                logger.warning("cache folder %s is not used: %s", candidate, reason)
            elif _is_usable(candidate):
                return candidate
        return None

    def _read(self, name: str, freshness: str | None) -> CachedKernel | None:
        for folder in self._candidates:
            path = _path(folder, name)
            if not is_folder(folder) or _refusal(folder) is not None:
                continue
            try:
                cached = read_cached(path)
            except OSError:
                continue
            except FormatError as error:
                logger.warning("%s; it is set aside and compiled again", error)
                with contextlib.suppress(OSError):
                    path.replace(path.with_suffix(_DAMAGED))
                continue
            if not _is_fresh(cached, freshness):
                continue  # one that cannot be written keeps what is old; another may have the new
            with contextlib.suppress(OSError):
                os.utime(path)  # the trimming removes what was not used for longest
            return cached
        return None

    def _write(self, folder: Path, name: str, cached: CachedKernel) -> None:
        path = _path(folder, name)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=path.parent, suffix=_PARTIAL)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(format_cached(cached))
                    file.flush()
                    os.fsync(file.fileno())
                Path(partial).replace(path)
            except OSError:
                Path(partial).unlink(missing_ok=True)
                raise
            self._trim(folder)
        except OSError as error:
            logger.warning("compiled kernel not kept in %s: %s", folder, error)

    def _trim(self, folder: Path) -> None:
        self._remove_leftovers(folder)
        found = []
        for path in folder.glob(f"*/*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # another process trims too
                status = path.stat()
                found.append((status.st_mtime, path, status.st_size))
        total = sum(size for _, _, size in found)
        for _, path, size in sorted(found):
            if total <= MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _remove_leftovers(self, folder: Path) -> None:
        """Remove what killed writers and old damage left behind."""
        oldest = time.time() - _LEFTOVER_SECONDS
        for suffix in (_PARTIAL, _DAMAGED):
            for path in folder.glob(f"*/*{suffix}"):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < oldest:
                        path.unlink(missing_ok=True)


@cache
def user_cache() -> UserCache:
    """Return the cache that the settings name."""
    return UserCache(settings().cache_candidates)


def _name(source_key: str, text: str) -> str:
    # The version is in the name, so that two installed versions do not throw each other's files
    # out.
    return f"{source_key}-{text}-{tilewright.__version__}"


def _is_fresh(cached: CachedKernel, freshness: str | None) -> bool:
    stamps = {blob.build_key for blob in cached.entry.blobs.values()}
    return freshness is None or freshness in stamps


def _path(folder: Path, name: str) -> Path:
    return folder / name[:2] / f"{name}{_SUFFIX}"


def _is_usable(folder: Path) -> bool:
    return _refusal(folder) is None and _may(folder, os.R_OK | os.W_OK | os.X_OK)


def _may(folder: Path, modes: int) -> bool:
    # The user whose files these would be, as everywhere here.
    return os.access(folder, modes, effective_ids=True)


def _refusal(folder: Path) -> str | None:
    """Return why code from a folder must not be run, or None. A link is judged by its end."""
    try:
        status = folder.stat()
    except OSError as error:
        return str(error.strerror)
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}, not to you"
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return "everyone may write to it"
    return None


def _open_lock(folder: Path, source_key: str) -> int | None:
    # A bounded number of lock files, which are never removed: removing one would split its users in
    # two.
    path = folder / "locks" / f"{int(source_key[:8], 16) % _LOCKS:02x}"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        logger.debug("no lock at %s: %s", path, error)
        return None
    if not _wait_for(handle, path):
        os.close(handle)
        return None
    return handle


def _wait_for(handle: int, path: Path) -> bool:
    """Wait until the lock is ours; False where it cannot be had, or its holder does not end."""
    start, pause, is_told = time.monotonic(), 0.01, False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - start
            if waited > _LOCK_PATIENCE_SECONDS:
                logger.warning("lock %s was not released in %.0f s: going on without", path, waited)
                return False
            if waited > _LOCK_WARNING_SECONDS and not is_told:
                is_told = True
                logger.warning("waiting for another process that compiles, at lock %s", path)
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        except OSError as error:
            logger.debug("no lock at %s: %s", path, error)
            return False
        else:
            return True
