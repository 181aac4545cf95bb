"""The bundles on disk, found and read: which entry has a source key, and the bytes of its blobs.

A bundle is a folder with `manifest.json` and packs. The wheel's own is `tilewright/_prebuilt`,
found through `importlib.resources` because an editable install keeps it elsewhere than the sources;
a checkout also has `build/bundle/`. `TILEWRIGHT_BUNDLE_PATH` replaces both. Other packages bring
bundles of their own, which are asked from the first use of one of their kernels on. Nothing is
locked and nothing is written.
"""

from __future__ import annotations

import atexit
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from threading import Lock

from tilewright.abi import keys
from tilewright.abi.manifest import (
    FILE_NAME,
    Blob,
    Entry,
    Manifest,
    read_manifest,
)
from tilewright.abi.pack import PackReader
from tilewright.abi.signature import KernelSignature
from tilewright.errors import FormatError
from tilewright.language.kernel import Kernel
from tilewright.language.provenance import is_unchanged
from tilewright.runtime.packages import bundle_folders, installed_folders
from tilewright.settings import settings

# The bundles of packages whose kernels were used, by folder; one for each such package.
_of_packages: dict[Path, Bundle] = {}


class Bundle:
    """A folder with a manifest and packs, each read when first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manifest: Manifest | None = None
        self._entries: dict[str, Entry | None] = {}
        self._packs: dict[str, PackReader] = {}
        self._lock = Lock()

    @property
    def manifest(self) -> Manifest:
        """The manifest; raises FormatError when it cannot be read or is of another version."""
        with self._lock:
            if self._manifest is None:
                self._manifest = read_manifest(self.folder / FILE_NAME)
            return self._manifest

    def entry(self, source_key: str) -> Entry | None:
        """Return the entry with this key, remembered: a first launch asks twice."""
        if source_key not in self._entries:
            self._entries[source_key] = self.manifest.entries.get(source_key)
        return self._entries[source_key]

    def close(self) -> None:
        """Close the packs; they are opened again when needed."""
        with self._lock:
            for reader in self._packs.values():
                reader.close()
            self._packs.clear()

    def read(self, blob: Blob) -> bytes:
        """Return the bytes of a blob of this bundle, checked.

        Raises CorruptBlobError when they are not the recorded ones, FormatError when there is no
        such pack.
        """
        # Pack names come from a file: one that leaves the folder is no name.
        if Path(blob.pack).name != blob.pack:
            msg = f"{self.folder / FILE_NAME} names the pack {blob.pack!r} outside its folder"
            raise FormatError(msg)
        with self._lock:
            reader = self._packs.get(blob.pack)
            if reader is None:
                reader = self._packs[blob.pack] = PackReader(self.folder / blob.pack)
        return reader.read(blob.sha256)


@cache
def bundles() -> tuple[Bundle, ...]:
    """Return the bundles of this installation, the first to be asked first."""
    chosen = settings().bundle_path
    folders = (chosen,) if chosen is not None else _installed()
    found = tuple(Bundle(folder) for folder in folders)
    for bundle in found:
        atexit.register(bundle.close)
    return found


def known_bundles() -> tuple[Bundle, ...]:
    """Return `bundles()` and those of the packages whose kernels were used so far.

    A key names what a kernel means, so it does not matter whose bundle has it.
    """
    return (*bundles(), *_of_packages.values())


def every_bundle() -> tuple[Bundle, ...]:
    """Return `bundles()` and those of all installed packages: for reports, as it searches the path.

    From then on all of them are asked.
    """
    for folder in installed_folders(sys.path):
        _add_package(folder)
    return known_bundles()


def find(source_key: str) -> tuple[Bundle, Entry] | None:
    """Return the entry with this key and its bundle, or None.

    Raises FormatError when a bundle is damaged: a damaged installation must not pass for an empty
    one.
    """
    for bundle in known_bundles():
        entry = bundle.entry(source_key)
        if entry is not None:
            return bundle, entry
    return None


def entries_of(kernel: Kernel) -> dict[str, Entry]:
    """Return the bundled entries of a kernel by source key; none when its source differs.

    As at a launch, the digest decides: a copy of a bundled file, or the same file imported under
    another name, has the bundled entries.
    """
    digest = kernel_digest(kernel)
    found: dict[str, Entry] = {}
    for bundle in reversed(known_bundles()):
        records = bundle.manifest.kernels.items()
        names = {name for name, record in records if record.digest == digest}
        if names:
            found |= {k: e for k, e in bundle.manifest.entries.items() if e.kernel in names}
    return dict(sorted(found.items(), key=lambda item: (item[1].signature, item[0])))


def source_key(kernel: Kernel, signature: KernelSignature) -> str:
    """Return the key under which a bundle or the cache holds this kernel and signature."""
    return keys.source_key(kernel_digest(kernel), signature)


def kernel_digest(kernel: Kernel) -> str:
    """Return the digest of a kernel: the recorded one if its files are unchanged, else computed.

    So an installed kernel is looked up without parsing Python; a file that differs in a comment
    only is parsed, and gives the same digest again.
    """
    _add_packages_of(kernel.module)
    for bundle in known_bundles():
        record = bundle.manifest.kernels.get(kernel.qualified_name)
        if record is not None and is_unchanged(kernel, record):
            return record.digest
    return kernel.digest


@cache
def _add_packages_of(module: str) -> None:
    for folder in bundle_folders(module):
        _add_package(folder)


def _add_package(folder: Path) -> None:
    if folder not in _of_packages:
        bundle = _of_packages.setdefault(folder, Bundle(folder))
        atexit.register(bundle.close)


def _installed() -> tuple[Path, ...]:
    found = []
    prebuilt = resources.files("tilewright") / "_prebuilt"
    # An editable install answers with a path of several folders, a wheel with one.
    for folder in getattr(prebuilt, "_paths", (prebuilt,)):
        path = Path(str(folder))
        if (path / FILE_NAME).is_file():
            found.append(path)
    checkout = Path(__file__).resolve().parents[3]
    built = checkout / "build" / "bundle"
    if (checkout / "pyproject.toml").is_file() and (built / FILE_NAME).is_file():
        found.append(built)
    return tuple(found)
