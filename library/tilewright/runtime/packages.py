"""Where a package of kernels keeps its bundle: found through the module of the kernel itself.

Nothing is declared or registered. A package that was built with `tilewright dev bundle-kernels
--package NAME` has `_prebuilt/` in its folder, and every kernel knows its module; so a kernel that
is in nobody's wheel costs a few looks at the file system, once, and an import costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tilewright.abi.manifest import FILE_NAME
from tilewright.runtime.file_kinds import is_file, is_folder

PREBUILT = "_prebuilt"

# Tilewright's own bundle is the store's to find: a setting may replace it.
_OWN = "tilewright"


def bundle_folders(module: str) -> tuple[Path, ...]:
    """Return the bundle folders of the packages that `module` is in, the innermost first."""
    parts = module.split(".")
    if parts[0] == _OWN:
        return ()
    names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    folders = [
        bundle
        for name in names
        for folder in getattr(sys.modules.get(name), "__path__", ())
        for bundle in _candidates(Path(folder))
        if holds_bundle(bundle)
    ]
    return tuple(dict.fromkeys(folders))


def holds_bundle(folder: Path) -> bool:
    """Return whether a bundle is in a folder, be it damaged; an empty folder is none.

    Packs without a manifest are damage, to be told of; in `build/` they may be of a build at work.
    So is a folder that may not be looked into.
    """
    is_installed = folder.name == PREBUILT
    try:
        (folder / FILE_NAME).stat()
    except PermissionError:
        return is_installed
    except OSError:
        return is_installed and any(folder.glob("*.pack"))
    return True


def installed_folders(path: list[str]) -> tuple[Path, ...]:
    """Return the bundle folders of every top-level package in the folders of `path`.

    For reports: it reads directories, which a launch has no time for.
    """
    found = [
        folder
        for entry in path
        if is_folder(Path(entry))
        for folder in sorted(Path(entry).glob(f"*/{PREBUILT}"))
        if folder.parent.name != _OWN and holds_bundle(folder)
    ]
    return tuple(dict.fromkeys(found))


def _candidates(package: Path) -> Iterator[Path]:
    """Yield where the bundle of a package may be: in it, or, of a checkout, where it was built."""
    yield package / PREBUILT
    root = package.parent.parent if package.parent.name == "src" else package.parent
    if is_file(root / "pyproject.toml"):
        yield root / "build" / "bundle"
