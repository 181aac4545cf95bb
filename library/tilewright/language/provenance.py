"""What a kernel's digest was computed from, so that it can be known again without parsing.

A digest follows from the texts of the closure's files and from the objects that its kernels name.
The bundle records both. At run time the files are hashed once a process and the named objects
compared; only if something differs is a kernel parsed, and then a changed comment still gives the
recorded digest. Kernels made inside functions have no name to be found by and are always parsed.
"""

from __future__ import annotations

import builtins
import hashlib
import sys
from functools import lru_cache
from types import ModuleType

from tilewright.abi import keys
from tilewright.abi.dtypes import DType
from tilewright.abi.manifest import KernelRecord
from tilewright.language import captures as names
from tilewright.language.kernel import Capture, Kernel, classify
from tilewright.language.parameters import NoDefault
from tilewright.language.registry import is_function
from tilewright.language.types import constexpr


def kernel_record(kernel: Kernel) -> KernelRecord:
    """Return what a bundle records of a kernel; reads and parses the files of its closure."""
    closure = kernel.closure()
    findable = all(_is_global(member) for member in closure)
    return KernelRecord(
        digest=kernel.digest,
        files=_files(closure) if findable else {},
        captures=_captures(closure) if findable else {},
        outline=keys.field_digests(kernel.fields),
    )


def is_unchanged(kernel: Kernel, record: KernelRecord) -> bool:
    """Return whether the record's digest is certainly this kernel's, without parsing anything."""
    if not record.files or not _is_global(kernel):
        return False
    declarations: dict[Kernel, str] = {}
    return all(_file_digest(file) == digest for file, digest in record.files.items()) and all(
        _text_of(place, declarations) == text for place, text in record.captures.items()
    )


def module_file(module: str) -> str:
    """Return the path of a module under its import root, such as `tilewright/kernels/rows.py`."""
    path = module.replace(".", "/")
    is_package = hasattr(sys.modules.get(module), "__path__")
    return f"{path}/__init__.py" if is_package else f"{path}.py"


def _files(closure: tuple[Kernel, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for kernel in closure:
        digest = _file_digest(module_file(kernel.module))
        assert digest is not None, f"{kernel} was parsed from {kernel.location.file}"
        found[module_file(kernel.module)] = digest
    return found


def _captures(closure: tuple[Kernel, ...]) -> dict[str, str]:
    declarations: dict[Kernel, str] = {}
    found = {f"{each.module}:{each.name}": _text(each, declarations) for each in closure}
    for kernel in closure:
        for path, capture in kernel.references.items():
            found[f"{kernel.module}:{path}"] = _text(capture, declarations)
    return found


def _text_of(place: str, declarations: dict[Kernel, str]) -> str | None:
    module, _, path = place.partition(":")
    home = sys.modules.get(module)
    if home is None:
        return None
    root, *attributes = path.split(".")
    # A first launch waits for this; of kernels and modules, which most names are, no annotation
    # makes anything else.
    value = home.__dict__.get(root)
    if type(value) is not Kernel and type(value) is not ModuleType:
        value = names.attribute_of(home, root)
        if value is names.MISSING:
            value = getattr(builtins, root, names.MISSING)
    for attribute in attributes:
        value = getattr(value, attribute, names.MISSING)
    capture = value if isinstance(value, Kernel) else classify(value)
    return None if capture is None else _text(capture, declarations)


def _text(capture: Capture, declarations: dict[Kernel, str]) -> str:
    """Return what a record says of an object; `declarations` keeps those of kernels meanwhile."""
    if isinstance(capture, Kernel):
        # Each is named at least twice: by those that call it, and as a member of the closure.
        if capture not in declarations:
            declarations[capture] = _declaration(capture)
        return declarations[capture]
    if isinstance(capture, constexpr):
        return keys.value_text(capture.value)
    if isinstance(capture, DType):
        return f"dtype {capture}"
    return f"{'function' if is_function(capture) else 'builtin'} {capture.__name__}"


def _declaration(kernel: Kernel) -> str:
    # Decorator arguments and defaults are expressions, so the file's text alone does not fix them.
    parameters = ", ".join(
        [
            f"{p.name}{':' if p.is_constexpr else ''}"
            + ("" if isinstance(p.default, NoDefault) else f"={keys.value_text(p.default)}")
            for p in kernel.parameters
        ]
    )
    rule = f"divisible={kernel.rule.divisible} unit={kernel.rule.unit}"
    return f"kernel {kernel.qualified_name}({parameters}) {rule}"


def _is_global(kernel: Kernel) -> bool:
    home = sys.modules.get(kernel.module)
    return home is not None and vars(home).get(kernel.name) is kernel


# One entry for each source file of kernels: a library has dozens.
@lru_cache(maxsize=1024)
def _file_digest(file: str) -> str | None:
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return None
    try:
        with open(path, "rb", buffering=0) as source:  # noqa: PTH123  # a Path takes as long again
            return hashlib.sha256(source.read()).hexdigest()
    except OSError:
        return None
