"""A bundle becomes facts and faults: every record, every blob and every file of it is read.

What a launch would notice at its own kernel alone is told here of all. Faults of one pack are told
once, with how many binaries they cost.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.abi import tuned
from tilewright.abi.manifest import FILE_NAME, Blob, Entry, Manifest, verify_manifest
from tilewright.abi.pack import PackReader
from tilewright.errors import FormatError
from tilewright.lazy_dataclass import dataclass

_SHOWN_FILES = 5


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What is in a bundle, and what is wrong with it."""

    facts: Mapping[str, Any]
    faults: tuple[str, ...]


def check_bundle(folder: Path, manifest: Manifest) -> BundleReport:
    """Read everything of a bundle whose manifest could be opened."""
    faults = [*check_modes(folder)]
    try:
        verify_manifest(folder / FILE_NAME)
    except FormatError as error:
        faults.append(str(error))
    for name in manifest.kernels:
        faults += _check_record(manifest.kernels, name)
    entries: dict[str, Entry] = {}
    for key in manifest.entries:
        found = _check_record(manifest.entries, key)
        faults += found
        if not found:
            entries[key] = manifest.entries[key]
    packs: dict[str, dict[str, Blob]] = {}
    targets: dict[str, int] = {}
    for entry in entries.values():
        for name, blob in entry.blobs.items():
            targets[name] = targets.get(name, 0) + 1
            packs.setdefault(blob.pack, {})[blob.sha256] = blob
    for name, blobs in sorted(packs.items()):
        faults += check_pack(folder, name, blobs)
    facts = {
        "version": manifest.version,
        "kernels": len(manifest.kernels),
        "entries": len(manifest.entries),
        "blobs checked": sum(map(len, packs.values())),
        **{f"blobs for {name}": count for name, count in sorted(targets.items())},
    }
    strangers = sorted(set(_names(folder)) - {FILE_NAME, tuned.FILE_NAME, *packs})
    if strangers:
        shown = ", ".join(strangers[:_SHOWN_FILES])
        more = f" and {len(strangers) - _SHOWN_FILES} more" if strangers[_SHOWN_FILES:] else ""
        facts["files of no entry"] = shown + more
    return BundleReport(facts, tuple(dict.fromkeys(faults)))


def check_modes(folder: Path) -> Iterator[str]:
    """Yield what is wrong with who may read and write the files of a bundle."""
    for path in (folder, *(folder / name for name in _names(folder))):
        try:
            mode = path.stat().st_mode
        except OSError as error:
            yield f"{path} cannot be looked at: {error.strerror}"
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield f"{path} may be written by everyone, so anyone may put code into your programs"
        if not os.access(path, os.R_OK):
            yield f"{path} may not be read by you"


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _check_record(records: Mapping[str, Any], key: str) -> list[str]:
    try:
        records[key]
    except FormatError as error:
        return [str(error)]
    except KeyError:
        return [f"record {key} cannot be found by its key: it is damaged, or not in order"]
    return []


def check_pack(folder: Path, name: str, blobs: Mapping[str, Blob]) -> Iterator[str]:
    """Yield what is wrong with a pack of which a manifest tells these blobs, by their sha256."""
    if Path(name).name != name:
        yield f"{folder / FILE_NAME} names the pack {name!r} outside its folder"
        return
    try:
        reader = PackReader(folder / name)
    except FormatError as error:
        yield f"{error} ({len(blobs)} binaries)"
        return
    with reader:
        # Also what no entry names: its neighbours are read through it.
        for sha256 in dict.fromkeys((*blobs, *reader)):
            try:
                data = reader.read(sha256)
            except (FormatError, OSError) as error:
                yield str(error)
                continue
            blob = blobs.get(sha256)
            if blob is not None and blob.size != len(data):
                yield f"blob {sha256} has {len(data)} bytes, the manifest says {blob.size}"
