"""A file of the user's cache: what one compilation gave, with its launch ABI.

    magic, sha256 and length of the head, the head as JSON, the codes one after the other

The head says what the file is for, which its name must repeat, and the sha256 of each code: a byte
that differs, or a file under another's name, is an error and never a kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tilewright
from tilewright.abi.arguments import ABI_VERSION, LaunchAbi
from tilewright.abi.manifest import PTX, Blob, Entry, blob_target
from tilewright.errors import CorruptBlobError, FormatError
from tilewright.lazy_dataclass import dataclass

_MAGIC = b"TWCACHE1"
# CUDA 12.0 loads every cubin of ptxas 12.9 for chips it knows, 11.0 is where PTX 7.0 began.
_MIN_DRIVER = {PTX: 11000}
_DEFAULT_MIN_DRIVER = 12000


@dataclass(frozen=True, slots=True)
class CachedKernel:
    """An entry of the cache with its codes by sha256.

    `name` is that of its file: source key, text and version.
    """

    name: str
    entry: Entry
    codes: Mapping[str, bytes]


def read_cached(path: Path) -> CachedKernel:
    """Read a file of the cache; raises OSError when it cannot be read.

    Raises FormatError when a byte or the version differs, when it belongs to another user or may be
    written by one, or when it is another kernel's file under this name.
    """
    # What is no file, a pipe say, might keep its reader waiting for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_own_file(path, os.fstat(handle))
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read()
    finally:
        os.close(handle)
    cached = parse_cached(data, origin=str(path))
    if cached.name != path.stem:
        msg = f"cached kernel {path} was made as {cached.name}"
        raise FormatError(msg)
    return cached


def format_cached(cached: CachedKernel) -> bytes:
    """Return the file of an entry: magic, sha256 and length of the head, its JSON, the codes."""
    blobs = cached.entry.blobs
    head = {
        "name": cached.name,
        "version": tilewright.__version__,
        "abi_version": ABI_VERSION,
        "kernel": cached.entry.kernel,
        "signature": cached.entry.signature,
        "abi": cached.entry.abi.to_json(),
        "codes": [
            {"name": name, "sha256": blob.sha256, "size": blob.size, "build_key": blob.build_key}
            | ({} if blob.abi is None else {"abi": blob.abi.to_json()})
            | ({"waits": True} if blob.waits else {})
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
    try:
        return _parse(json.loads(text), data[start + length :], origin)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"cached kernel {origin} lacks a field or has a wrong one: {error!r}"
        raise FormatError(msg) from error


def _parse(head: dict[str, Any], payload: bytes, origin: str) -> CachedKernel:
    if (head["version"], head["abi_version"]) != (tilewright.__version__, ABI_VERSION):
        msg = f"cached kernel {origin} was made by tilewright {head['version']}"
        raise FormatError(msg)
    codes: dict[str, bytes] = {}
    blobs: dict[str, Blob] = {}
    place = 0
    for item in head["codes"]:
        code = payload[place : place + item["size"]]
        place += item["size"]
        if hashlib.sha256(code).hexdigest() != item["sha256"]:
            msg = f"cached kernel {origin}: the code for {item['name']} differs from its sha256"
            raise CorruptBlobError(msg)
        codes[item["sha256"]] = code
        abi = LaunchAbi.from_json(item["abi"]) if "abi" in item else None
        waits = item.get("waits", False) is True
        blobs[item["name"]] = blob_of(item["name"], code, item["build_key"], abi, waits=waits)
    if place != len(payload):
        msg = f"cached kernel {origin} has {len(payload) - place} bytes too many"
        raise FormatError(msg)
    entry = Entry(
        kernel=head["kernel"],
        family="user",
        signature=head["signature"],
        abi=LaunchAbi.from_json(head["abi"]),
        blobs=blobs,
    )
    return CachedKernel(head["name"], entry, codes)


def blob_of(name: str, code: bytes, build_key: str, abi: LaunchAbi | None, *, waits: bool) -> Blob:
    """Return the record of a code that was compiled on this machine."""
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
        waits=waits,
    )


def _require_own_file(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        msg = f"cached kernel {path} is no file"
        raise FormatError(msg)
    if status.st_uid not in (os.geteuid(), 0):
        msg = f"cached kernel {path} belongs to user {status.st_uid}, not to you"
        raise FormatError(msg)
    if status.st_mode & stat.S_IWOTH:
        msg = f"cached kernel {path} may be written by everyone"
        raise FormatError(msg)
