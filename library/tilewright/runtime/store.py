"""The bundles of this process in the order in which they are asked: which one has a source key?

First those that the program added, then those of `TILEWRIGHT_EXTRA_BUNDLES`, then that of the
installation, last those that other packages bring, which are asked from the first use of one of
their kernels on. The wheel's own is `tilewright/_prebuilt`, found through `importlib.resources`
because an editable install keeps it elsewhere than the sources; a checkout also has
`build/bundle/`; `TILEWRIGHT_BUNDLE_PATH` replaces both. A bundle that cannot be used is told of in
every decision and never passes for an empty one. Nothing is locked and nothing is written.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import sys
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import TypeVar

from tilewright.abi import keys
from tilewright.abi.manifest import FILE_NAME, Entry, KernelRecord
from tilewright.abi.signature import KernelSignature
from tilewright.errors import ArgumentError, FormatError
from tilewright.language.kernel import Kernel
from tilewright.language.provenance import is_unchanged
from tilewright.runtime.bundle import Bundle
from tilewright.runtime.file_kinds import is_file
from tilewright.runtime.packages import bundle_folders, holds_bundle, installed_folders
from tilewright.runtime.resolve import Bundled, Reason
from tilewright.settings import settings

__all__ = ["Bundle", "add_bundle", "bundles", "entries_of", "every_bundle", "known_bundles"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

# The bundles of packages whose kernels were used, by folder; one for each such package.
_of_packages: dict[Path, Bundle] = {}
_added: list[Path] = []


def add_bundle(folder: str | Path) -> None:
    """Ask a bundle folder before all others; of several, the one that was added last comes first.

    The folder is read at the next launch that loads a kernel. One that cannot be used is told of by
    a warning, by `explain` and in the error of a launch that finds nothing. Raises ArgumentError
    for a relative path.
    """
    path = Path(folder)
    if not path.is_absolute():
        msg = f"the bundle folder {str(folder)!r} is relative; give an absolute path"
        raise ArgumentError(msg)
    if path in _added:
        _added.remove(path)
    _added.insert(0, path)
    bundles.cache_clear()


@cache
def bundles() -> tuple[Bundle, ...]:
    """Return the bundles of this installation, the first to be asked first."""
    chosen = settings().bundle_path
    folders = (chosen,) if chosen is not None else _installed()
    every = dict.fromkeys((*_added, *settings().extra_bundles, *folders))
    return tuple(map(_bundle, every))


@lru_cache(maxsize=64)
def _bundle(folder: Path) -> Bundle:
    bundle = Bundle(folder)
    atexit.register(bundle.close)
    return bundle


def known_bundles() -> tuple[Bundle, ...]:
    """Return `bundles()` and those of the packages whose kernels were used so far.

    A key names what a kernel means, so it does not matter whose bundle has it.
    """
    # A checkout's own bundle is that of its packages too.
    return tuple(dict.fromkeys((*bundles(), *_of_packages.values())))


def every_bundle() -> tuple[Bundle, ...]:
    """Return `bundles()` and those of all installed packages: for reports, as it searches the path.

    From then on all of them are asked.
    """
    for folder in installed_folders(sys.path):
        _add_package(folder)
    return known_bundles()


def find(source_key: str) -> tuple[tuple[Bundled, ...], tuple[Reason, ...]]:
    """Return what the bundles hold for a key, and why bundles could not be asked."""
    found: list[Bundled] = []
    faults: list[Reason] = []
    known = known_bundles()
    for bundle in known:
        try:
            entry = bundle.entry(source_key)
        except FormatError as error:
            _warn(bundle.folder, str(error))
            faults.append(Reason(f"bundle {bundle.folder}", False, str(error)))
            continue
        if entry is not None:
            place = f"in {bundle.folder}" if len(known) > 1 else ""
            found.append(Bundled(entry, str(bundle.folder), place))
    return tuple(found), tuple(faults)


def bundle_at(folder: str) -> Bundle:
    """Return the bundle in a folder that a candidate of a decision names."""
    return next(bundle for bundle in known_bundles() if str(bundle.folder) == folder)


def entries_of(kernel: Kernel) -> dict[str, Entry]:
    """Return the bundled entries of a kernel by source key; none when its source differs.

    As at a launch, the digest decides: a copy of a bundled file, or the same file imported under
    another name, has the bundled entries.
    """
    digest = kernel_digest(kernel)
    found: dict[str, Entry] = {}
    for bundle in reversed(known_bundles()):
        kernels, entries = _sections(bundle)
        names = {name for name, record in _intact(bundle, kernels) if record.digest == digest}
        if names:
            found |= {k: e for k, e in _intact(bundle, entries) if e.kernel in names}
    return dict(sorted(found.items(), key=lambda item: (item[1].signature, item[0])))


def is_bundled(kernel: Kernel) -> bool:
    """Return whether a bundle holds this very kernel: the same name and the same meaning."""
    digest = kernel_digest(kernel)
    for bundle in known_bundles():
        kernels = _sections(bundle)[0]
        if kernel.qualified_name in kernels and kernels[kernel.qualified_name].digest == digest:
            return True
    return False


def bundled_kernel(name: str) -> Kernel | None:
    """Return a bundled kernel; None when it is not installed, or another one than the bundled."""
    module, _, attribute = name.rpartition(".")
    try:
        kernel = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError:
        return None
    return kernel if isinstance(kernel, Kernel) and is_bundled(kernel) else None


def every_entry() -> Iterator[tuple[Bundle, str, Entry]]:
    """Yield the entries of the known bundles with their keys; of what is damaged there is none."""
    for bundle in known_bundles():
        for key, entry in _intact(bundle, _sections(bundle)[1]):
            yield bundle, key, entry


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
        try:
            record = bundle.manifest.kernels.get(kernel.qualified_name)
        except FormatError as error:
            _warn(bundle.folder, str(error))
            continue
        if record is not None and is_unchanged(kernel, record):
            return record.digest
    return kernel.digest


def _sections(bundle: Bundle) -> tuple[Mapping[str, KernelRecord], Mapping[str, Entry]]:
    try:
        return bundle.manifest.kernels, bundle.manifest.entries
    except FormatError as error:
        _warn(bundle.folder, str(error))
        return {}, {}


def _intact(bundle: Bundle, records: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    for name in records:
        try:
            yield name, records[name]
        except FormatError as error:
            _warn(bundle.folder, str(error))
        except KeyError:
            _warn(bundle.folder, f"record {name} is damaged; install tilewright again")


@lru_cache(maxsize=256)
def _warn(folder: Path, fault: str) -> None:
    """Tell once of a fault of a bundle."""
    logger.warning("bundle %s: %s", folder, fault)


@cache
def _add_packages_of(module: str) -> None:
    for folder in bundle_folders(module):
        _add_package(folder)


def _add_package(folder: Path) -> None:
    _of_packages.setdefault(folder, _bundle(folder))


def _installed() -> tuple[Path, ...]:
    found = []
    prebuilt = resources.files("tilewright") / "_prebuilt"
    # An editable install answers with a path of several folders, a wheel with one.
    for folder in getattr(prebuilt, "_paths", (prebuilt,)):
        path = Path(str(folder))
        if holds_bundle(path):
            found.append(path)
    # Not `parents[3]`, which a copy of the library in the root folder does not have.
    checkout = Path(__file__).resolve().parent.parent.parent.parent
    built = checkout / "build" / "bundle"
    if is_file(checkout / "pyproject.toml") and is_file(built / FILE_NAME):
        found.append(built)
    return tuple(found)
