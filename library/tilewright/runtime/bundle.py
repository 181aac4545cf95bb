"""A bundle on disk: a folder with a manifest and packs, read when needed and checked when read.

Another process may replace a bundle while this one reads it: a manifest is replaced by one rename,
after its packs are there. So the manifest is read again when its file is another one, which costs
one look at the file for each kernel that is loaded, and none for a launch.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import RLock

from tilewright.abi.manifest import (
    FILE_NAME,
    Blob,
    Entry,
    Manifest,
    read_manifest,
    verify_manifest,
)
from tilewright.abi.pack import PackReader
from tilewright.errors import FormatError

_Stamp = tuple[int, int, int]


class Bundle:
    """A folder with a manifest and packs. Threads may share one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE_NAME
        self._name = str(self._path)
        self._manifest: Manifest | None = None
        self._stamp: _Stamp | None = None
        self._fault = ""
        self._is_verified = False
        self._entries: dict[str, Entry | None] = {}
        self._packs: dict[str, PackReader] = {}
        self._retired: list[PackReader] = []
        self._lock = RLock()

    @property
    def manifest(self) -> Manifest:
        """The manifest; raises FormatError when it cannot be read or is of another version."""
        with self._lock:
            self._refresh()
            if self._manifest is None:
                raise FormatError(self._fault)
            return self._manifest

    def entry(self, source_key: str) -> Entry | None:
        """Return the entry with this key, remembered: a first launch asks twice.

        Raises FormatError when it is damaged, or may be missing only because the manifest is.
        """
        with self._lock:
            manifest = self.manifest
            if source_key not in self._entries:
                entry = manifest.entries.get(source_key)
                if entry is None:
                    self._verify()
                self._entries[source_key] = entry
            return self._entries[source_key]

    def read(self, blob: Blob) -> bytes:
        """Return the bytes of a blob of this bundle, checked.

        Raises CorruptBlobError when they are not the recorded ones, FormatError when there is no
        such pack.
        """
        # Pack names come from a file: one that leaves the folder is no name.
        if "/" in blob.pack:
            msg = f"{self.folder / FILE_NAME} names the pack {blob.pack!r} outside its folder"
            raise FormatError(msg)
        with self._lock:
            reader = self._packs.get(blob.pack)
            if reader is None:
                reader = self._packs[blob.pack] = PackReader(self.folder / blob.pack)
        return reader.read(blob.sha256)

    def close(self) -> None:
        """Close the packs; they are opened again when needed."""
        with self._lock:
            for reader in (*self._packs.values(), *self._retired):
                reader.close()
            self._packs.clear()
            self._retired.clear()

    def _refresh(self) -> None:
        """Read the manifest if its file is not the one that was read last."""
        try:
            status = os.stat(self._name)  # noqa: PTH116  # at every load: half of what a Path takes
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            # What was read stays good, as far as its packs are still there.
            if self._manifest is not None:
                return
            stamp = (0, 0, 0)
        if stamp == self._stamp:
            return
        self._entries.clear()
        self._is_verified = False
        # Threads may be reading from the old packs, which may have the names of new ones.
        self._retired += self._packs.values()
        self._packs.clear()
        self._manifest, self._fault = None, ""
        try:
            self._manifest = read_manifest(self._path)
        except FormatError as error:
            self._fault = str(error)
        self._stamp = stamp

    def _verify(self) -> None:
        """Raise FormatError when a record may be missing because its key is damaged."""
        if not self._is_verified:
            verify_manifest(self._path)
            self._is_verified = True
