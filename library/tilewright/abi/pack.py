"""The pack: a file of blobs (cubins and PTX texts) with random access, each checked when read.

    header   magic, version, size of the file, numbers of frames and blobs, sha256 of it all and the
    index index    sizes of each frame, stored and expanded; then sha256, place and size of each
    blob, sorted frames   zstd, each at most 128 KiB expanded, of blobs one after the other

Neighbouring blobs share frames, so a writer that puts similar ones next to each other gets the
ratio of a solid archive, while a reader expands one or two frames to get at a cubin. The file is no
ELF, so tools that look for binaries in a wheel leave it alone. Every size is checked against the
file before anything is expanded, and bytes leave `read` only if their sha256 is the one that was
asked for.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from tilewright.errors import CorruptBlobError, FormatError

MAGIC = b"\x93TWPACK\n"
VERSION = 1
FRAME_BYTES = 128 * 1024

_LEVEL = 19
_HEADER = struct.Struct("<8sIIQII32s")  # magic, version, reserved, file size, frames, blobs, sha256
_CHECKED = struct.Struct("<8sIIQII")  # the header without its sha256
_FRAME = struct.Struct("<II")  # stored and expanded size
_BLOB = struct.Struct("<32sIIQ")  # sha256, first frame, offset in its expansion, size
_CACHED_FRAMES = 4


@dataclass(frozen=True, slots=True)
class _Frame:
    position: int
    stored: int
    expanded: int


@dataclass(frozen=True, slots=True)
class _Place:
    frame: int
    offset: int
    size: int


def write_pack(path: Path, blobs: Iterable[bytes]) -> tuple[str, ...]:
    """Write the blobs to `path` in the order given and return their sha256s.

    Equal blobs are stored once. Pass blobs that resemble each other one after the other: they are
    compressed together. The bytes written depend on the blobs, their order and the version of
    zstandard alone. The file appears whole or not at all.
    """
    import zstandard

    digests: list[str] = []
    places: dict[bytes, tuple[int, int, int]] = {}
    expanded: list[bytearray] = [bytearray()]
    for blob in blobs:
        digest = hashlib.sha256(blob)
        digests.append(digest.hexdigest())
        if digest.digest() not in places:
            places[digest.digest()] = _append(expanded, blob)
    if not expanded[-1]:
        expanded.pop()
    compressor = zstandard.ZstdCompressor(
        level=_LEVEL, write_content_size=True, write_checksum=False, threads=0
    )
    stored = [compressor.compress(bytes(frame)) for frame in expanded]
    index = b"".join(
        _FRAME.pack(len(small), len(large)) for small, large in zip(stored, expanded, strict=True)
    ) + b"".join(_BLOB.pack(digest, *place) for digest, place in sorted(places.items()))
    file_size = _HEADER.size + len(index) + sum(map(len, stored))
    checked = _CHECKED.pack(MAGIC, VERSION, 0, file_size, len(stored), len(places))
    header = checked + hashlib.sha256(checked + index).digest()
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            for part in (header, index, *stored):
                file.write(part)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return tuple(digests)


class PackReader:
    """Reads blobs from a pack. Threads may share one; it holds the file open until `close`.

    Opening reads the index alone and raises FormatError if the file is not a whole pack of this
    version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            msg = f"pack {path} cannot be opened: {error.strerror}; install tilewright again"
            raise FormatError(msg) from error
        self._lock = Lock()
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        try:
            self._frames, self._places = self._read_index()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._places

    def __iter__(self) -> Iterator[str]:
        """Yield the sha256 of every blob, in order."""
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def size(self, sha256: str) -> int:
        """Return the size of a blob in bytes; raises FormatError if the pack does not hold it."""
        return self._place(sha256).size

    def read(self, sha256: str) -> bytes:
        """Return the blob with that sha256.

        Raises FormatError if the pack does not hold it, CorruptBlobError if its bytes are not
        those.
        """
        place = self._place(sha256)
        parts: list[bytes] = []
        missing, index, offset = place.size, place.frame, place.offset
        while missing:
            part = self._expand(index, sha256)[offset : offset + missing]
            parts.append(part)
            missing -= len(part)
            index, offset = index + 1, 0
        data = b"".join(parts)
        found = hashlib.sha256(data).hexdigest()
        self._require_intact(sha256, found == sha256, f"its bytes have sha256 {found}")
        return data

    def close(self) -> None:
        """Close the file; reading afterwards raises ValueError."""
        self._file.close()

    def _place(self, sha256: str) -> _Place:
        place = self._places.get(sha256)
        if place is None:
            msg = (
                f"pack {self._path} holds no blob {sha256} (it holds {len(self._places)} others): "
                "manifest and pack are of two bundles; install tilewright again"
            )
            raise FormatError(msg)
        return place

    def _read_index(self) -> tuple[tuple[_Frame, ...], dict[str, _Place]]:
        header = self._file.read(_HEADER.size)
        whole = len(header) == _HEADER.size and header.startswith(MAGIC)
        self._require(whole, f"it begins with {header[:8]!r}, not with a pack's header")
        _, version, _, file_size, frame_count, blob_count, digest = _HEADER.unpack(header)
        self._require(
            version == VERSION, f"it is of version {version}, this library reads {VERSION}"
        )
        actual = os.fstat(self._file.fileno()).st_size
        self._require(actual == file_size, f"it has {actual} bytes instead of {file_size}")
        index_size = frame_count * _FRAME.size + blob_count * _BLOB.size
        self._require(
            index_size <= file_size - _HEADER.size, "its index does not fit into the file"
        )
        index = self._read_at(_HEADER.size, index_size)
        intact = hashlib.sha256(header[: _CHECKED.size] + index).digest() == digest
        self._require(intact, "its index has another sha256 than its header says")
        split = frame_count * _FRAME.size
        frames = self._frames_of(index[:split], _HEADER.size + index_size, file_size)
        return frames, self._places_of(index[split:], frames)

    def _frames_of(self, index: bytes, position: int, file_size: int) -> tuple[_Frame, ...]:
        frames: list[_Frame] = []
        for stored, expanded in _FRAME.iter_unpack(index):
            allowed = 0 < expanded <= FRAME_BYTES
            self._require(allowed, f"a frame claims to expand to {expanded} bytes")
            frames.append(_Frame(position, stored, expanded))
            position += stored
        ends = f"its frames end at byte {position} of {file_size}"
        self._require(position == file_size, ends)
        return tuple(frames)

    def _places_of(self, index: bytes, frames: tuple[_Frame, ...]) -> dict[str, _Place]:
        # room[i]: what frame i and all after it expand to
        room = [0]
        for frame in reversed(frames):
            room.append(room[-1] + frame.expanded)
        room.reverse()
        places: dict[str, _Place] = {}
        for digest, frame_index, offset, size in _BLOB.iter_unpack(index):
            inside = frame_index < len(room) and offset + size <= room[frame_index]
            self._require(inside, f"blob {digest.hex()} lies outside the frames")
            places[digest.hex()] = _Place(frame_index, offset, size)
        return places

    def _expand(self, index: int, sha256: str) -> bytes:
        import zstandard

        with self._lock:
            cached = self._cache.get(index)
            if cached is not None:
                self._cache.move_to_end(index)
                return cached
        frame = self._frames[index]
        stored = self._read_at(frame.position, frame.stored)
        try:
            # zstandard trusts the size that the frame itself gives, so that is compared first.
            claimed = zstandard.frame_content_size(stored)
            same = f"frame {index} claims {claimed} bytes, the index says {frame.expanded}"
            self._require_intact(sha256, claimed == frame.expanded, same)
            data = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
        except zstandard.ZstdError as error:
            msg = f"frame {index} cannot be expanded ({error})"
            raise self._corrupt(sha256, msg) from error
        with self._lock:
            self._cache[index] = data
            while len(self._cache) > _CACHED_FRAMES:
                self._cache.popitem(last=False)
        return data

    def _read_at(self, position: int, size: int) -> bytes:
        # pread keeps no position, so threads and forked processes do not disturb each other.
        parts: list[bytes] = []
        while size:
            part = os.pread(self._file.fileno(), size, position)
            self._require(bool(part), f"it ends at byte {position}")
            parts.append(part)
            position += len(part)
            size -= len(part)
        return b"".join(parts)

    def _require(self, holds: bool, reason: str) -> None:
        if not holds:
            msg = f"{self._path} is not a usable pack: {reason}; install tilewright again"
            raise FormatError(msg)

    def _require_intact(self, sha256: str, holds: bool, reason: str) -> None:
        if not holds:
            raise self._corrupt(sha256, reason)

    def _corrupt(self, sha256: str, reason: str) -> CorruptBlobError:
        return CorruptBlobError(
            f"blob {sha256} in pack {self._path} is damaged: {reason}; install tilewright again"
        )


def _append(expanded: list[bytearray], blob: bytes) -> tuple[int, int, int]:
    """Add a blob to the open frame, or to a new one if it would be cut only to fill this one up."""
    if expanded[-1] and len(expanded[-1]) + len(blob) > FRAME_BYTES:
        expanded.append(bytearray())
    place = (len(expanded) - 1, len(expanded[-1]), len(blob))
    rest = memoryview(blob)
    while rest:
        space = FRAME_BYTES - len(expanded[-1])
        expanded[-1] += rest[:space]
        rest = rest[space:]
        if len(expanded[-1]) == FRAME_BYTES and rest:
            expanded.append(bytearray())
    return place
