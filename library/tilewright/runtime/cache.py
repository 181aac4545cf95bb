"""The user's cache of kernels compiled on this machine: one file per kernel, signature and target.

A file holds the launch ABI, the codes and their sha256s, and appears by one rename, so a reader
never sees half of it; nothing in it depends on where it lies. What is damaged is set aside and
compiled again. The cache needs no HOME: candidates are tried in order, a folder of another user is
never trusted, and when none can be written the results live in memory. Locks are flocks, which die
with their holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import tilewright
from tilewright.abi.arguments import ABI_VERSION, LaunchAbi
from tilewright.abi.manifest import PTX, Blob, Entry, blob_target
from tilewright.abi.target import Target
from tilewright.errors import CorruptBlobError, FormatError
from tilewright.settings import settings

logger = logging.getLogger(__name__)

_MAGIC = b"TWCACHE1"
_SUFFIX = ".twk"
_LOCKS = 256
# CUDA 12.0 loads every cubin of ptxas 12.9 for chips it knows, 11.0 is where PTX 7.0 began.
_MIN_DRIVER = {PTX: 11000}
_DEFAULT_MIN_DRIVER = 12000
MAX_BYTES = 1 << 30
"""Above this, the files not used for longest are removed."""


@dataclass(frozen=True, slots=True)
class CachedKernel:
    """An entry of the cache with its codes by sha256."""

    entry: Entry
    codes: Mapping[str, bytes]


class UserCache:
    """Compiled kernels by source key and target, in the first usable folder and in memory."""

    def __init__(self, candidates: tuple[Path, ...]) -> None:
        self._candidates = candidates
        self._memory: dict[str, CachedKernel] = {}

    def find(
        self, source_key: str, target: Target | None, freshness: str | None
    ) -> CachedKernel | None:
        """Return the entry for a target (None: PTX alone), or None.

        With `freshness`, an entry that another version of the compiler made is not returned.
        """
        name = _name(source_key, target)
        found = self._memory.get(name)
        if found is None:
            found = self._read(name)
            if found is not None:
                self._memory[name] = found
        if found is None:
            return None
        stamps = {blob.build_key for blob in found.entry.blobs.values()}
        return found if freshness is None or freshness in stamps else None

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
        target: Target | None,
        freshness: str,
        *,
        kernel: str,
        signature: str,
        abi: LaunchAbi,
        codes: Mapping[str, bytes],
        own_abis: Mapping[str, LaunchAbi] = MappingProxyType({}),
    ) -> CachedKernel:
        """Keep what was compiled and return it as an entry; failing to write is no error.

        `own_abis` are those of codes that are not launched by `abi`.
        """
        blobs = {
            name: _blob(name, code, freshness, own_abis.get(name)) for name, code in codes.items()
        }
        entry = Entry(kernel=kernel, family="user", signature=signature, abi=abi, blobs=blobs)
        cached = CachedKernel(entry, {blobs[name].sha256: code for name, code in codes.items()})
        name = _name(source_key, target)
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
        return next((path for path in self._candidates if path.is_dir() and _is_usable(path)), None)

    def refusals(self) -> tuple[tuple[Path, str], ...]:
        """Return the folders that exist and are not used, each with the reason."""
        found = ((path, _refusal(path)) for path in self._candidates if path.is_dir())
        return tuple((path, reason) for path, reason in found if reason is not None)

    def files(self) -> tuple[Path, ...]:
        """Return the files of the cache, in order."""
        folder = self.folder()
        return () if folder is None else tuple(sorted(folder.glob(f"*/*{_SUFFIX}")))

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

    def _read(self, name: str) -> CachedKernel | None:
        for folder in self._candidates:
            path = _path(folder, name)
            if not folder.is_dir() or _refusal(folder) is not None:
                continue
            try:
                data = path.read_bytes()
            except OSError:
                continue
            try:
                cached = parse_cached(data, origin=str(path))
            except FormatError as error:
                logger.warning("%s; it is set aside and compiled again", error)
                with contextlib.suppress(OSError):
                    path.replace(path.with_suffix(".damaged"))
                continue
            with contextlib.suppress(OSError):
                os.utime(path)  # the trimming removes what was not used for longest
            return cached
        return None

    def _write(self, folder: Path, name: str, cached: CachedKernel) -> None:
        path = _path(folder, name)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
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


@cache
def user_cache() -> UserCache:
    """Return the cache that the settings name."""
    return UserCache(settings().cache_candidates)


def format_cached(cached: CachedKernel) -> bytes:
    """Return the file of an entry: magic, sha256 and length of the head, its JSON, the codes."""
    blobs = cached.entry.blobs
    head = {
        "version": tilewright.__version__,
        "abi_version": ABI_VERSION,
        "kernel": cached.entry.kernel,
        "signature": cached.entry.signature,
        "abi": cached.entry.abi.to_json(),
        "codes": [
            {"name": name, "sha256": blob.sha256, "size": blob.size, "build_key": blob.build_key}
            | ({} if blob.abi is None else {"abi": blob.abi.to_json()})
            for name, blob in sorted(blobs.items())
        ],
    }
    text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    codes = b"".join(cached.codes[blob.sha256] for _, blob in sorted(blobs.items()))
    return b"".join(
        (_MAGIC, hashlib.sha256(text).digest(), len(text).to_bytes(8, "little"), text, codes)
    )


def parse_cached(data: bytes, *, origin: str) -> CachedKernel:
    """Read what `format_cached` wrote; raises FormatError when a byte or the version differs."""
    start = len(_MAGIC) + 32 + 8
    length = int.from_bytes(data[start - 8 : start], "little")
    text = data[start : start + length]
    is_whole = data.startswith(_MAGIC) and len(text) == length
    if not is_whole or hashlib.sha256(text).digest() != data[len(_MAGIC) : len(_MAGIC) + 32]:
        msg = f"cached kernel {origin} is damaged"
        raise FormatError(msg)
    head = json.loads(text)
    if (head["version"], head["abi_version"]) != (tilewright.__version__, ABI_VERSION):
        msg = f"cached kernel {origin} was made by tilewright {head['version']}"
        raise FormatError(msg)
    codes: dict[str, bytes] = {}
    blobs: dict[str, Blob] = {}
    place = start + length
    for item in head["codes"]:
        code = data[place : place + item["size"]]
        place += item["size"]
        if hashlib.sha256(code).hexdigest() != item["sha256"]:
            msg = f"cached kernel {origin}: the code for {item['name']} differs from its sha256"
            raise CorruptBlobError(msg)
        codes[item["sha256"]] = code
        abi = LaunchAbi.from_json(item["abi"]) if "abi" in item else None
        blobs[item["name"]] = _blob(item["name"], code, item["build_key"], abi)
    if place != len(data):
        msg = f"cached kernel {origin} has {len(data) - place} bytes too many"
        raise FormatError(msg)
    entry = Entry(
        kernel=head["kernel"],
        family="user",
        signature=head["signature"],
        abi=LaunchAbi.from_json(head["abi"]),
        blobs=blobs,
    )
    return CachedKernel(entry, codes)


def _blob(name: str, code: bytes, build_key: str, abi: LaunchAbi | None) -> Blob:
    return Blob(
        sha256=hashlib.sha256(code).hexdigest(),
        pack="",
        size=len(code),
        kind="ptx" if name == PTX else "cubin",
        target=blob_target(name),
        min_driver=_MIN_DRIVER.get(name, _DEFAULT_MIN_DRIVER),
        registers=0,
        spill_bytes=0,
        shared_bytes=0,
        toolchain="",
        build_key=build_key,
        abi=abi,
    )


def _name(source_key: str, target: Target | None) -> str:
    # The version is in the name, so that two installed versions do not throw each other's files
    # out.
    return f"{source_key}-{target or PTX}-{tilewright.__version__}"


def _path(folder: Path, name: str) -> Path:
    return folder / name[:2] / f"{name}{_SUFFIX}"


def _is_usable(folder: Path) -> bool:
    return _refusal(folder) is None and os.access(folder, os.W_OK | os.X_OK)


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
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        logger.debug("no lock at %s: %s", path, error)
        os.close(handle)
        return None
    return handle
