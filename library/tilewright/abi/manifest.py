"""The manifest: what a bundle holds, as JSON that is read one record at a time.

The file is one JSON document laid out in lines: a header, then one line for each kernel and each
entry, sorted by key. The header says how long the sections are, so opening a manifest parses one
line, and a lookup finds its line by bisection and parses that: a bundle of thousands of entries
opens in the time it takes to read the file. Each line carries a check of its own text, because a
flipped digit in a launch ABI would otherwise reach the driver, and the header one of itself and the
sha256 of all records: a damaged key is found by nobody, so who misses a record asks for that too.

    {"abi":1,"check":"...","entries":N,...,"schema":2,"version":"0.1.0","kernel_records":{
    "tilewright.kernels.softmax.softmax":["check",{...}],
    ...
    },"entry_records":{
    "<source key>":["check",{...}],
    ...
    }}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

from tilewright.abi.arguments import ABI_VERSION, LaunchAbi
from tilewright.abi.keys import Field
from tilewright.errors import FormatError
from tilewright.lazy_dataclass import dataclass

SCHEMA = 3
FILE_NAME = "manifest.json"
PTX = "ptx"
"""The key of the portable PTX among the blobs of an entry; the others are keyed by their target."""

OWN_SCHEDULE = "+tma"
"""Follows the target in the key of a cubin whose schedule is that target's own: it copies blocks in
bulk and has its own launch ABI. Where its condition fails, the cubin of the plain key serves."""


def blob_target(key: str) -> str:
    """Return the target in the key of a cubin."""
    return key.removesuffix(OWN_SCHEDULE)


BlobKind = Literal["cubin", "ptx"]
T = TypeVar("T")

# After a key. A quote inside a key is escaped, so past the key's first quote this finds its end.
_OPENING = b'":["'
_HEADER_END = b',"kernel_records":{\n'
_BETWEEN = b'},"entry_records":{\n'
_END = b"}}\n"
_OUTLINE = b',"outline":'
_CHECK_DIGITS = 16
_BEFORE_TEXT = len(_OPENING) + _CHECK_DIGITS + len(b'",')  # from the key's last quote on
_NOT_CHECKED = ("check", "kernel_records")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One cubin or PTX text in a pack.

    `target` is what it was made for (`sm_90a`; of a PTX text its `.target`), `min_driver` the
    lowest CUDA version of a driver that loads it, as cuDriverGetVersion counts (12000 is 12.0).
    `shared_bytes` is static shared memory. `validated` names the GPUs on which it ran and gave the
    right result. `abi` is how this blob is launched, None if as its entry says; with `waits` it
    waits by itself for the kernels before it.
    """

    sha256: str
    pack: str
    size: int
    kind: BlobKind
    target: str
    min_driver: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    toolchain: str
    build_key: str
    validated: tuple[str, ...] = ()
    abi: LaunchAbi | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A kernel for one signature: how it is launched, and its blobs by target."""

    kernel: str
    family: str
    signature: str
    abi: LaunchAbi
    blobs: Mapping[str, Blob]

    def abi_of(self, blob: Blob) -> LaunchAbi:
        """Return how a blob of this entry is launched."""
        abi = self.abi if blob.abi is None else blob.abi
        return replace(abi, waits=True) if blob.waits else abi


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """A kernel of the bundle and what its digest was computed from.

    `files` gives the sha256 of each source file by its path under the import root, `captures` the
    text of each object that the closure names: while both still hold, the digest is known without
    parsing. `outline` is `keys.field_digests`, to say what changed when it does not.
    """

    digest: str
    files: Mapping[str, str]
    captures: Mapping[str, str]
    outline: Sequence[Field] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A bundle's content. `kernels` is keyed by qualified name, `entries` by source key."""

    version: str
    kernels: Mapping[str, KernelRecord]
    entries: Mapping[str, Entry]
    abi_version: int = ABI_VERSION
    schema: int = SCHEMA

    def to_bytes(self) -> bytes:
        """Return the file's content; equal manifests give equal bytes, whatever their order."""
        toolchains = sorted(
            {blob.toolchain for entry in self.entries.values() for blob in entry.blobs.values()}
        )
        kernels = _section({name: _kernel_to_json(record) for name, record in self.kernels.items()})
        entries = _section(
            {key: _entry_to_json(entry, toolchains) for key, entry in self.entries.items()}
        )
        header = {
            "abi": self.abi_version,
            "entries": len(self.entries),
            "entry_bytes": len(entries),
            "kernel_bytes": len(kernels),
            "kernels": len(self.kernels),
            "records_sha256": hashlib.sha256(kernels + _BETWEEN + entries + _END).hexdigest(),
            "schema": self.schema,
            "toolchains": toolchains,
            "version": self.version,
        }
        return _first_line(header) + kernels + _BETWEEN + entries + _END

    @staticmethod
    def from_bytes(data: bytes, *, origin: str = "manifest") -> Manifest:
        """Read what `to_bytes` wrote; `origin` names the file in errors.

        Raises FormatError if this is not a whole manifest of this schema and launch ABI. Records
        are checked when they are read.
        """
        header, start = _read_header(data, origin)
        kernel_end = start + _size(header, "kernel_bytes", origin)
        entry_start = kernel_end + len(_BETWEEN)
        entry_end = entry_start + _size(header, "entry_bytes", origin)
        whole = (
            data[kernel_end:entry_start] == _BETWEEN
            and data[entry_end:] == _END
            and isinstance(header.get("toolchains"), list)
        )
        if not whole:
            msg = f"{origin} is not whole ({len(data)} bytes); install tilewright again"
            raise FormatError(msg)
        toolchains = tuple(map(str, header["toolchains"]))
        return Manifest(
            version=str(header.get("version")),
            kernels=_Records(
                data, start, kernel_end, _size(header, "kernels", origin), _kernel_from_text, origin
            ),
            entries=_Records(
                data,
                entry_start,
                entry_end,
                _size(header, "entries", origin),
                lambda text: _entry_from_json(json.loads(text), toolchains),
                origin,
            ),
        )


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest; the file appears whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(manifest.to_bytes())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raises FormatError if it is missing, cut off, or of another version."""
    return Manifest.from_bytes(_contents(path), origin=str(path))


def verify_manifest(path: Path) -> None:
    """Raise FormatError if any byte of a manifest differs from what was written.

    Reading checks the header and each record that is asked for; this also finds a damaged key.
    """
    data = _contents(path)
    header, start = _read_header(data, str(path))
    found = hashlib.sha256(data[start:]).hexdigest()
    if found != header.get("records_sha256"):
        msg = f"{path} is damaged: its records have sha256 {found}; install tilewright again"
        raise FormatError(msg)


def _contents(path: Path) -> bytes:
    try:
        # What is no file, a pipe say, might keep its reader waiting for ever.
        if path.exists() and not path.is_file():
            msg = f"manifest {path} cannot be read: it is no file; install tilewright again"
            raise FormatError(msg)
        return path.read_bytes()
    except OSError as error:
        msg = f"manifest {path} cannot be read: {error.strerror}"
        raise FormatError(msg) from error


class _Records(Mapping[str, T], Generic[T]):
    """The lines of one section as a mapping; a record is parsed each time it is asked for."""

    def __init__(
        self,
        data: bytes,
        start: int,
        end: int,
        count: int,
        parse: Callable[[bytes], T],
        origin: str,
    ) -> None:
        self._data = data
        self._start = start
        self._end = end
        self._count = count
        self._parse = parse
        self._origin = origin

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for line in self._data[self._start : self._end].split(b"\n"):
            try:
                if line:
                    yield str(json.loads(line[: line.index(_OPENING, 1) + 1]))
            except ValueError:
                # A damaged key is none that could be asked for: who asks for this one is told.
                yield line[:80].decode(errors="backslashreplace")

    def __getitem__(self, key: str) -> T:
        wanted = _name(key)
        low, high = self._start, self._end
        while low < high:
            middle = (low + high) // 2
            begin = max(self._data.rfind(b"\n", self._start, middle) + 1, self._start)
            end = self._data.find(b"\n", middle, self._end)
            end = self._end if end < 0 else end
            found = self._data[begin : self._data.find(_OPENING, begin + 1, end) + 1]
            if found == wanted:
                return self._record(key, self._data[begin:end].removesuffix(b","))
            low, high = (end + 1, high) if found < wanted else (low, begin)
        raise KeyError(key)

    def _record(self, key: str, line: bytes) -> T:
        text = line[len(_name(key)) - 1 + _BEFORE_TEXT : -1]
        if line != _line(key, text):
            msg = f"record {key} of {self._origin} is damaged; install tilewright again"
            raise FormatError(msg)
        try:
            return self._parse(text)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            msg = f"record {key} of {self._origin} lacks a field or has a wrong one: {error!r}"
            raise FormatError(msg) from error


class _Outline(Sequence[Field]):
    """The outline of a kernel, parsed when it is read: a launch compares no outlines."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def __len__(self) -> int:
        return len(self._fields)

    @overload
    def __getitem__(self, index: int) -> Field: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Field]: ...

    def __getitem__(self, index: int | slice) -> Field | Sequence[Field]:
        return self._fields[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._fields == tuple(other)

    def __hash__(self) -> int:
        return hash(self._fields)

    @cached_property
    def _fields(self) -> tuple[Field, ...]:
        return tuple((label, text) for label, text in json.loads(self._text))


def _first_line(header: Mapping[str, Any]) -> bytes:
    """Return the first line: the header with a check of itself."""
    check = hashlib.sha256(_dump(header)).hexdigest()[:_CHECK_DIGITS]
    return _dump({**header, "check": check})[:-1] + _HEADER_END


def _section(records: Mapping[str, dict[str, Any]]) -> bytes:
    # Sorted as written, which is the order that the bisection compares in.
    lines = [_line(key, _dump(records[key])) for key in sorted(records, key=_dump)]
    return b",\n".join(lines) + (b"\n" if lines else b"")


def _line(key: str, text: bytes) -> bytes:
    name = _name(key)
    check = hashlib.sha256(name + text).hexdigest()[:_CHECK_DIGITS].encode()
    return name[:-1] + _OPENING + check + b'",' + text + b"]"


def _name(key: str) -> bytes:
    # As `_dump` writes it; without options the encoder is not made anew.
    return json.dumps(key).encode()


def _dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _read_header(data: bytes, origin: str) -> tuple[dict[str, Any], int]:
    end = data.find(b"\n") + 1
    try:
        header = json.loads(data[:end] + b"}}")
    except (ValueError, RecursionError) as error:
        msg = f"{origin} is not a manifest: its first line cannot be read; install tilewright again"
        raise FormatError(msg) from error
    if header.get("schema") != SCHEMA:
        msg = (
            f"{origin} has schema {header.get('schema')!r}, this library reads {SCHEMA}: bundle "
            "and library are of two versions; install tilewright again"
        )
        raise FormatError(msg)
    if header.get("abi") != ABI_VERSION:
        msg = (
            f"{origin} has launch ABI {header.get('abi')!r}, this library launches {ABI_VERSION}: "
            "bundle and library are of two versions; install tilewright again"
        )
        raise FormatError(msg)
    unchecked = {name: value for name, value in header.items() if name not in _NOT_CHECKED}
    if data[:end] != _first_line(unchecked):
        msg = f"{origin} is damaged in its first line; install tilewright again"
        raise FormatError(msg)
    return header, end


def _size(header: Mapping[str, Any], name: str, origin: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or value < 0:
        msg = f"{origin} is not a manifest: {name} is {value!r}; install tilewright again"
        raise FormatError(msg)
    return value


def _kernel_to_json(record: KernelRecord) -> dict[str, Any]:
    return {
        "digest": record.digest,
        "files": dict(record.files),
        "captures": dict(record.captures),
        "outline": [list(field) for field in record.outline],
    }


def _kernel_from_text(text: bytes) -> KernelRecord:
    # The last field, by the order of names. A quote inside a string is escaped, so this finds it.
    end = text.rindex(_OUTLINE)
    data = json.loads(text[:end] + b"}")
    return KernelRecord(
        digest=data["digest"],
        files=data["files"],
        captures=data["captures"],
        outline=_Outline(text[end + len(_OUTLINE) : -1]),
    )


def _entry_to_json(entry: Entry, toolchains: Sequence[str]) -> dict[str, Any]:
    return {
        "kernel": entry.kernel,
        "family": entry.family,
        "signature": entry.signature,
        "abi": entry.abi.to_json(),
        "blobs": {key: _blob_to_json(blob, toolchains) for key, blob in entry.blobs.items()},
    }


def _entry_from_json(data: dict[str, Any], toolchains: Sequence[str]) -> Entry:
    return Entry(
        kernel=data["kernel"],
        family=data["family"],
        signature=data["signature"],
        abi=LaunchAbi.from_json(data["abi"]),
        blobs={key: _blob_from_json(blob, toolchains) for key, blob in data["blobs"].items()},
    )


def _blob_to_json(blob: Blob, toolchains: Sequence[str]) -> dict[str, Any]:
    data: dict[str, Any] = {
        "sha256": blob.sha256,
        "pack": blob.pack,
        "size": blob.size,
        "kind": blob.kind,
        "target": blob.target,
        "min_driver": blob.min_driver,
        "registers": blob.registers,
        "toolchain": toolchains.index(blob.toolchain),
        "build_key": blob.build_key,
    }
    if blob.spill_bytes:
        data["spill"] = blob.spill_bytes
    if blob.shared_bytes:
        data["shared"] = blob.shared_bytes
    if blob.validated:
        data["validated"] = list(blob.validated)
    if blob.abi is not None:
        data["abi"] = blob.abi.to_json()
    if blob.waits:
        data["waits"] = True
    return data


def _blob_from_json(data: dict[str, Any], toolchains: Sequence[str]) -> Blob:
    return Blob(
        sha256=data["sha256"],
        pack=data["pack"],
        size=data["size"],
        kind=data["kind"],
        target=data["target"],
        min_driver=data["min_driver"],
        registers=data["registers"],
        spill_bytes=data.get("spill", 0),
        shared_bytes=data.get("shared", 0),
        toolchain=toolchains[data["toolchain"]],
        build_key=data["build_key"],
        validated=tuple(data.get("validated", ())),
        abi=LaunchAbi.from_json(data["abi"]) if "abi" in data else None,
        waits=data.get("waits", False) is True,
    )
