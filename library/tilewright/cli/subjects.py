"""A word of the command line becomes the kernels it names, each with its bundled entries."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError, UsageError
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime.file_kinds import is_file

if TYPE_CHECKING:
    from tilewright.abi.manifest import Entry
    from tilewright.language.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel by name with its bundled entries; `note` says why there are none.

    `kernel` is None when the bundled one is not installed here, or its source differs.
    """

    name: str
    entries: dict[str, Entry]
    kernel: Kernel | None
    note: str = ""


def find_subjects(text: str) -> list[Subject]:
    """Return the kernels that a word of the command line names; raises UsageError for none."""
    from tilewright.runtime import store

    module_name, colon, name = text.rpartition(":")
    if colon:
        kernel = _load_kernel(module_name, name)
        entries = store.entries_of(kernel)
        note = "" if entries else _why_no_entries(kernel)
        return [Subject(kernel.qualified_name, entries, kernel, note)]
    found: dict[str, dict[str, Entry]] = {}
    names: set[str] = set()
    store.every_bundle()
    for _, key, entry in store.every_entry():
        names.add(entry.kernel)
        if text in (entry.kernel, entry.kernel.rpartition(".")[2]):
            found.setdefault(entry.kernel, {}).setdefault(key, entry)
    if not found:
        known = ", ".join(sorted(names))
        spellings = sorted({*names, *(name.rpartition(".")[2] for name in names)})
        near = get_close_matches(text, spellings, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; bundled are: " + known
        msg = f"no bundled kernel is called {text!r}{hint}"
        if not known:
            msg = f"no bundle here has a kernel, so not {text!r}; `tilewright doctor` tells why"
        raise UsageError(msg)
    return [
        Subject(
            name,
            dict(sorted(entries.items(), key=lambda item: item[1].signature)),
            store.bundled_kernel(name),
        )
        for name, entries in sorted(found.items())
    ]


def _why_no_entries(kernel: Kernel) -> str:
    from tilewright.runtime import jit, store
    from tilewright.settings import settings

    if any(entry.kernel == kernel.qualified_name for _, _, entry in store.every_entry()):
        return (
            "its source differs from the bundled one, so no bundled binary is used; "
            "`tilewright dev why` names the difference"
        )
    missing = jit.why_unavailable() if settings().jit else "TILEWRIGHT_JIT=off forbids the compiler"
    if missing is None:
        return "it is in no bundle: its first launch compiles it"
    return (
        f"it is in no bundle, and its launches on a GPU are errors: {missing}; bundle it, or name "
        "the folder of its bundle by TILEWRIGHT_EXTRA_BUNDLES"
    )


def _load_kernel(module_name: str, name: str) -> Kernel:
    from tilewright.language.kernel import Kernel

    module = _load_module(module_name)
    kernel = getattr(module, name, None)
    if not isinstance(kernel, Kernel):
        known = sorted(key for key, value in vars(module).items() if isinstance(value, Kernel))
        msg = f"{module_name} has no kernel {name!r}; it has: {', '.join(known) or 'none'}"
        raise UsageError(msg)
    return kernel


def _load_module(name: str) -> ModuleType:
    path = Path(name)
    is_path = path.suffix == ".py"
    if is_path and not is_file(path):
        msg = f"there is no file {name!r}"
        raise UsageError(msg)
    if not is_path and not all(part.isidentifier() for part in name.split(".")):
        msg = f"{name!r} is no name of a module; write MODULE:KERNEL or FILE.py:KERNEL"
        raise UsageError(msg)
    try:
        return _load_file(path) if is_path else importlib.import_module(name)
    except TilewrightError:
        raise
    except ModuleNotFoundError as error:
        is_itself = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        fault = f"there is no module {name!r}" if is_itself else f"{name} cannot be imported"
        msg = f"{fault}: {error}"
        # The folder of this command is not searched for modules, as that of a program is.
        here = Path(*name.split(".")).with_suffix(".py")
        if is_itself and is_file(here):
            msg += f"; for the file here write {here}:KERNEL"
        raise UsageError(msg) from error
    except Exception as error:  # the file is the user's, and may raise anything
        msg = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise UsageError(msg) from error


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # kernels look up their globals through it
    spec.loader.exec_module(module)
    return module
