"""The pack: a file of blobs (cubins and PTX texts) with random access, each checked when read.

    header   magic, version, size of the file, numbers of frames and blobs, sha256 of it all and the
             index
    index    stored and expanded size and base of each frame; then sha256, first frame and size of
             each blob, sorted
    frames   zstd, each at most 256 KiB expanded: a blob, or a piece of one

A frame may be compressed against another, its base, and whatever that one is compressed against:
cubins of a kernel's other dtypes and configurations are mostly the same instructions. Chosen well,
bases give the ratio of a solid archive, while a reader expands a handful of frames to get at a
cubin; `tilewright_release.similar` chooses. Rejected: LZMA, a tenth smaller and ten times slower
to expand; planes of every 16th byte, which break the repetitions that zstd finds. The file is no
ELF, so tools that look for binaries in a wheel leave it alone. Every size is checked against the
file before anything is expanded, and bytes leave `read` only if their sha256 is the one that was
asked for. The index of a pack of hundreds of blobs is checked as a whole when it is opened, and
objects are made only of what is asked for: a process opens packs to read one blob from each.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tilewright.errors import CorruptBlobError, FormatError
from tilewright.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from zstandard import ZstdCompressionDict

MAGIC = b"\x93TWPACK\n"
VERSION = 2
FRAME_BYTES = 256 * 1024
CHAIN_FRAMES = 4
"""A frame, its base, the base's base and so on are at most so many."""

_LEVEL = 19
_WINDOW_LOG = 21  # a frame and all that it may be compressed against
_HEADER = struct.Struct("<8sIIQII32s")  # magic, version, reserved, file size, frames, blobs, sha256
_CHECKED = struct.Struct("<8sIIQII")  # the header without its sha256
_FRAME = struct.Struct("<III")  # stored and expanded size, base
_BLOB = struct.Struct("<32sIQ")  # sha256, first frame, size
_NO_BASE = 2**32 - 1


@dataclass(frozen=True, slots=True)
class _Frame:
    position: int
    stored: int
    expanded: int
    base: int


@dataclass(frozen=True, slots=True)
class _Place:
    frame: int
    size: int


class _Frames:
    """The frames of a pack in order: columns of the index, which become a frame when asked for."""

    def __init__(self, index: bytes, start: int) -> None:
        words = struct.unpack(f"<{len(index) // 4}I", index)
        self.stored, self.expanded, self.bases = words[0::3], words[1::3], words[2::3]
        self.positions = tuple(accumulate(self.stored, initial=start))

    def __len__(self) -> int:
        return len(self.stored)

    def __iter__(self) -> Iterator[_Frame]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> _Frame:
        return _Frame(
            self.positions[index], self.stored[index], self.expanded[index], self.bases[index]
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """What becomes a frame: a piece of a blob, the index of its base, and the length of its chain.

    `context` is what its bases expand to, the farthest first.
    """

    data: bytes
    base: int | None
    chain: int
    context: bytes


def write_pack(
    path: Path, blobs: Iterable[bytes], *, bases: Sequence[int | None] = ()
) -> tuple[str, ...]:
    """Write the blobs to `path` in the order given and return their sha256s.

    `bases` gives for each blob the index of an earlier one that it is compressed against, or None;
    a base that would make a chain longer than `CHAIN_FRAMES` is left out. Equal blobs are stored
    once. The bytes written depend on the blobs, their order, their bases and the version of
    zstandard alone. The file appears whole or not at all.
    """
    digests: list[str] = []
    places: dict[bytes, tuple[int, int]] = {}
    pieces: list[_Piece] = []
    for index, blob in enumerate(blobs):
        digest = hashlib.sha256(blob).digest()
        digests.append(digest.hex())
        if digest not in places:
            base = bases[index] if bases else None
            base_place = None if base is None else places[bytes.fromhex(digests[base])]
            places[digest] = (len(pieces), len(blob))
            _append(pieces, blob, base_place)
    stored = [_compress(piece) for piece in pieces]
    index_bytes = b"".join(
        _FRAME.pack(len(small), len(piece.data), _NO_BASE if piece.base is None else piece.base)
        for small, piece in zip(stored, pieces, strict=True)
    ) + b"".join(_BLOB.pack(digest, *place) for digest, place in sorted(places.items()))
    file_size = _HEADER.size + len(index_bytes) + sum(map(len, stored))
    checked = _CHECKED.pack(MAGIC, VERSION, 0, file_size, len(stored), len(places))
    header = checked + hashlib.sha256(checked + index_bytes).digest()
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            for part in (header, index_bytes, *stored):
                file.write(part)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return tuple(digests)


class PackReader:
    """Reads blobs from a pack. Threads may share one; it holds the file open until `close`.

    Opening reads the index alone and raises FormatError if the file is not a whole pack of this
    version. Where a blob lies and what it is compressed against is judged when it is read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # What is no file, a pipe say, might keep its reader waiting for ever.
            if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # half of what a Path takes
                msg = f"pack {path} cannot be opened: it is no file; install tilewright again"
                raise FormatError(msg)
            self._file = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115  # closed by `close`
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
        return self._find(sha256) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield the sha256 of every blob, in order."""
        return (digest.hex() for digest, _, _ in _BLOB.iter_unpack(self._places))

    def __len__(self) -> int:
        return len(self._places) // _BLOB.size

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
        missing, index = place.size, place.frame
        while missing:
            parts.append(self._expand(index, sha256))
            missing -= len(parts[-1])
            index += 1
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        found = hashlib.sha256(data).hexdigest()
        self._require_intact(sha256, found == sha256, f"its bytes have sha256 {found}")
        return data

    def close(self) -> None:
        """Close the file; reading afterwards raises ValueError."""
        self._file.close()

    def _find(self, sha256: str) -> _Place | None:
        try:
            digest = bytes.fromhex(sha256)
        except ValueError:
            return None
        # Also of a digest only one spelling is its name.
        if digest.hex() != sha256 or len(digest) != hashlib.sha256().digest_size:
            return None
        position = self._places.find(digest)
        # Bytes that look like the digest may also lie across two blobs.
        while position > 0 and position % _BLOB.size:
            position = self._places.find(digest, position + 1)
        return None if position < 0 else _Place(*_BLOB.unpack_from(self._places, position)[1:])

    def _place(self, sha256: str) -> _Place:
        place = self._find(sha256)
        if place is None:
            msg = (
                f"pack {self._path} holds no blob {sha256} (it holds {len(self)} others): "
                "manifest and pack are of two bundles; install tilewright again"
            )
            raise FormatError(msg)
        missing = place.size
        for expanded in self._frames.expanded[place.frame :]:
            if missing <= 0:
                break
            missing -= expanded
        is_inside = missing == 0 and place.frame <= len(self._frames)
        self._require(is_inside, f"blob {sha256} lies outside the frames")
        return place

    def _read_index(self) -> tuple[_Frames, bytes]:
        try:
            header = self._file.read(_HEADER.size)
        except OSError as error:
            msg = f"pack {self._path} cannot be read: {error.strerror}"
            raise FormatError(msg) from error
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
        frames, places = _Frames(index[:split], _HEADER.size + index_size), index[split:]
        self._check_frames(frames, file_size)
        return frames, places

    def _check_frames(self, frames: _Frames, file_size: int) -> None:
        for size in (min(frames.expanded, default=1), max(frames.expanded, default=1)):
            self._require(0 < size <= FRAME_BYTES, f"a frame claims to expand to {size} bytes")
        end = frames.positions[-1]
        self._require(end == file_size, f"its frames end at byte {end} of {file_size}")

    def _chain(self, index: int) -> list[int]:
        """Return a frame, its base, the base's base and so on."""
        chain = [index]
        while (base := self._frames.bases[chain[-1]]) != _NO_BASE:
            # A base stands before what is compressed against it, so that no chain is a ring.
            self._require(base < chain[-1], f"frame {chain[-1]} has the base {base}")
            chain.append(base)
            needs = f"frame {index} needs {len(chain)} frames"
            self._require(len(chain) <= CHAIN_FRAMES, needs)
        return chain

    def _expand(self, index: int, sha256: str) -> bytes:
        """Return what a frame expands to, with the frames that it is compressed against."""
        context = data = b""
        for step in reversed(self._chain(index)):
            context = context + data if context else data
            data = self._expand_one(step, context, sha256)
        return data

    def _expand_one(self, index: int, context: bytes, sha256: str) -> bytes:
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
            decompressor = zstandard.ZstdDecompressor(dict_data=_dictionary(context))
            data = decompressor.decompress(stored, allow_extra_data=False)
        except zstandard.ZstdError as error:
            msg = f"frame {index} cannot be expanded ({error})"
            raise self._corrupt(sha256, msg) from error
        with self._lock:
            self._cache[index] = data
            while len(self._cache) > CHAIN_FRAMES:
                self._cache.popitem(last=False)
        return data

    def _read_at(self, position: int, size: int) -> bytes:
        # pread keeps no position, so threads and forked processes do not disturb each other.
        parts: list[bytes] = []
        while size:
            try:
                part = os.pread(self._file.fileno(), size, position)
            except OSError as error:
                msg = f"pack {self._path} cannot be read at byte {position}: {error.strerror}"
                raise FormatError(msg) from error
            self._require(bool(part), f"it ends at byte {position}")
            parts.append(part)
            position += len(part)
            size -= len(part)
        return b"".join(parts)

    def _require(self, holds: bool, reason: str) -> None:
        if not holds:
            raise self._unusable(reason)

    def _require_intact(self, sha256: str, holds: bool, reason: str) -> None:
        if not holds:
            raise self._corrupt(sha256, reason)

    def _unusable(self, reason: str) -> FormatError:
        return FormatError(f"{self._path} is not a usable pack: {reason}; install tilewright again")

    def _corrupt(self, sha256: str, reason: str) -> CorruptBlobError:
        return CorruptBlobError(
            f"blob {sha256} in pack {self._path} is damaged: {reason}; install tilewright again"
        )


def _append(pieces: list[_Piece], blob: bytes, base_place: tuple[int, int] | None) -> None:
    """Cut a blob into pieces, each with the base's piece of the same place, or the one before."""
    for start in range(0, len(blob), FRAME_BYTES):
        number = start // FRAME_BYTES
        base = len(pieces) - 1 if number else None
        if base_place is not None and start < base_place[1]:
            base = base_place[0] + number
        if base is not None and pieces[base].chain == CHAIN_FRAMES:
            base = None
        chain, context = 1, b""
        if base is not None:
            chain, context = pieces[base].chain + 1, pieces[base].context + pieces[base].data
        pieces.append(_Piece(blob[start : start + FRAME_BYTES], base, chain, context))


def _compress(piece: _Piece) -> bytes:
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, write_content_size=True, write_checksum=False, threads=0
    )
    return zstandard.ZstdCompressor(
        compression_params=parameters, dict_data=_dictionary(piece.context)
    ).compress(piece.data)


def _dictionary(context: bytes) -> ZstdCompressionDict | None:
    import zstandard

    if not context:
        return None
    return zstandard.ZstdCompressionDict(context, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
