"""Signature files become the list of what the bundle holds: a kernel with each of its signatures.

A file under `prebuilt/signatures/` names kernels, the dtypes and parameter types of each, and the
configurations; an entry comes from every combination of dtypes, configuration and specialization,
and of the values of each constexpr that has a list of them. A kernel with `tl.autotune` brings its
own configurations: the file names the constexprs that these leave open. The kernel itself is
imported and held against the file, so that a signature which could never be launched is an error
here and not a hole in the wheel.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tilewright.abi.dtypes import BY_NAME, DType
from tilewright.abi.keys import source_key
from tilewright.abi.signature import (
    Constexpr,
    KernelSignature,
    Specialization,
    declared,
)
from tilewright.errors import FormatError, UsageError
from tilewright.language.choices import Config
from tilewright.language.kernel import Kernel
from tilewright_release.checkout import Checkout
from tilewright_release.table import Table, read_table

SPECIALIZATIONS = ("fast", "general")


WARPS = (1, 2, 4, 8, 16, 32)
"""The numbers of warps that a program may have."""


@dataclass(frozen=True, slots=True)
class DeclaredEntry:
    """One entry of the bundle: a kernel by its reference in the file, and a signature of it.

    `unsupported` holds (target, reason) pairs: targets that the declaration leaves out.
    """

    family: str
    reference: str
    kernel: Kernel
    signature: KernelSignature
    unsupported: tuple[tuple[str, str], ...] = ()

    @property
    def source_key(self) -> str:
        """The entry's key in the manifest."""
        return source_key(self.kernel.digest, self.signature)


def read_signatures(checkout: Checkout) -> list[DeclaredEntry]:
    """Read every signature file, in order of file name and of the file.

    Raises FormatError that names the file and key of whatever is wrong, or a kernel outside the
    checkout's package.
    """
    files = sorted(checkout.signatures.glob("*.toml"))
    entries = [entry for file in files for entry in read_signature_file(file, root=checkout.root)]
    if not entries:
        msg = f"{checkout.signatures} declares no kernel"
        raise FormatError(msg)
    for entry in entries:
        module = entry.kernel.module
        if checkout.package and not f"{module}.".startswith(f"{checkout.package}."):
            msg = (
                f"{checkout.signatures} declares {entry.reference}, which is not in package "
                f"{checkout.package}: its launches would not look into this bundle"
            )
            raise FormatError(msg)
    return entries


def read_signature_file(file: Path, *, root: Path) -> list[DeclaredEntry]:
    """Read one signature file; `root` is the folder that kernel files are relative to."""
    top = read_table(file)
    family = top.text("family")
    if family != file.stem:
        top.fail("family", f"is {family!r}, but the file is named {file.stem}")
    entries: list[DeclaredEntry] = []
    seen: set[tuple[str, str]] = set()
    for table in top.tables("kernel"):
        for entry in _read_kernel(table, family=family, root=root):
            identity = (entry.reference, str(entry.signature))
            if identity in seen:
                table.fail("config", f"declares {entry.reference} twice with {entry.signature}")
            seen.add(identity)
            entries.append(entry)
    top.finish()
    return entries


def select_entries(entries: Sequence[DeclaredEntry], name: str) -> list[DeclaredEntry]:
    """Return the entries of the kernel called `name`: its reference, qualified name or name alone.

    Raises UsageError that lists the kernels when there is none, or more than one.
    """
    found = [
        entry
        for entry in entries
        if name in (entry.reference, entry.kernel.qualified_name, entry.kernel.name)
    ]
    references = dict.fromkeys(entry.reference for entry in found)
    if len(references) != 1:
        known = ", ".join(references or dict.fromkeys(entry.reference for entry in entries))
        msg = f"{name!r} names {len(references)} declared kernels; name one of {known}"
        raise UsageError(msg)
    return found


def load_kernel(reference: str, *, root: Path) -> Kernel:
    """Import `package.module:kernel`, or `folder/file.py:kernel` relative to `root`.

    Raises FormatError when there is no such module, file or kernel.
    """
    place, colon, name = reference.partition(":")
    if not (place and colon and name):
        msg = f"kernel {reference!r} is not of the form package.module:name or folder/file.py:name"
        raise FormatError(msg)
    try:
        module = (
            _import_file(root / place, root=root)
            if place.endswith(".py")
            else importlib.import_module(place)
        )
    except ModuleNotFoundError as error:
        msg = f"kernel {reference!r}: {error}"
        raise FormatError(msg) from error
    except (Exception, SystemExit) as error:  # whatever the author's module does when imported
        msg = f"kernel {reference!r}: importing {place} fails with {type(error).__name__}: {error}"
        raise FormatError(msg) from error
    kernel = getattr(module, name, None)
    if not isinstance(kernel, Kernel):
        known = [n for n, value in vars(module).items() if isinstance(value, Kernel)]
        msg = f"kernel {reference!r}: {place} has no kernel {name!r}; it has {', '.join(known)}"
        raise FormatError(msg)
    return kernel


def _import_file(path: Path, *, root: Path) -> object:
    if not path.is_file():
        msg = f"file {path} does not exist"
        raise FormatError(msg)
    # The dotted path, as if the root were on the import path; one module object for a file,
    # whatever the number of kernels in it.
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _read_kernel(table: Table, *, family: str, root: Path) -> Iterator[DeclaredEntry]:
    reference = table.text("kernel")
    try:
        kernel = load_kernel(reference, root=root)
    except FormatError as error:
        table.fail("kernel", f"cannot be used: {error}")
    dtypes = table.table("dtypes")
    letters = {letter: dtypes.texts(letter) for letter in dtypes.names()}
    for letter, names in letters.items():
        if not names:
            dtypes.fail(letter, "is empty: that would drop the kernel; remove it instead")
    for letter, names in letters.items():
        for name in names:
            if name not in BY_NAME:
                dtypes.fail(letter, f"has dtype {name!r}; known are {', '.join(BY_NAME)}")
    types = table.table("parameters")
    parameters = {name: types.text(name) for name in types.names()}
    expected = [p.name for p in kernel.parameters if not p.is_constexpr]
    if list(parameters) != expected:
        table.fail(
            "parameters",
            f"are {', '.join(parameters)}, but {reference} has {', '.join(expected)} in this order",
        )
    unsupported = _reasons(table)
    configs = table.tables("config")
    table.finish()
    for config in configs:
        yield from _read_config(
            config,
            types=types,
            family=family,
            reference=reference,
            kernel=kernel,
            letters=letters,
            parameters=parameters,
            unsupported=unsupported,
        )


def _read_config(
    table: Table,
    *,
    types: Table,
    family: str,
    reference: str,
    kernel: Kernel,
    letters: dict[str, tuple[str, ...]],
    parameters: dict[str, str],
    unsupported: dict[str, str],
) -> Iterator[DeclaredEntry]:
    constexprs = table.choices("constexprs")
    configs = kernel.choices.configs
    chosen_names = {name for config in configs for name in config.kwargs}
    expected = {p.name for p in kernel.parameters if p.is_constexpr} - chosen_names
    if set(constexprs) != expected:
        table.fail(
            "constexprs",
            f"name {', '.join(sorted(constexprs)) or 'nothing'}, but the constexpr parameters of "
            f"{reference} are {', '.join(sorted(expected)) or 'none'}"
            + (" besides those of its configurations" if configs else ""),
        )
    for name in ("num_warps", "num_stages"):
        if configs and name in table.names():
            table.fail(name, f"is for the configurations of {reference} to say (tl.autotune)")
    num_warps, num_stages = table.integer("num_warps", 4), table.integer("num_stages", 3)
    if num_warps not in WARPS:
        table.fail("num_warps", f"is {num_warps}; a program has 1, 2, 4, 8, 16 or 32 warps")
    variants = configs or (Config({}, num_warps, num_stages),)
    specializations = table.texts("specializations", SPECIALIZATIONS)
    if not specializations:
        table.fail(
            "specializations", "is empty: that would drop the configuration; remove it instead"
        )
    for specialization in specializations:
        if specialization not in SPECIALIZATIONS:
            table.fail("specializations", f"has {specialization!r}; known are fast and general")
    reasons = tuple(sorted({**unsupported, **_reasons(table)}.items()))
    table.finish()
    for chosen, values, variant in itertools.product(
        itertools.product(*letters.values()), itertools.product(*constexprs.values()), variants
    ):
        dtypes = {letter: BY_NAME[name] for letter, name in zip(letters, chosen, strict=True)}
        constants = {**dict(zip(constexprs, values, strict=True)), **variant.kwargs}
        declaration: dict[str, DType | tuple[DType] | Constexpr] = {}
        for parameter in kernel.parameters:
            if parameter.is_constexpr:
                declaration[parameter.name] = Constexpr(constants[parameter.name])
            else:
                text = parameters[parameter.name]
                declaration[parameter.name] = _type(types, parameter.name, text, dtypes)
        for specialization in specializations:
            signature = declared(
                declaration,
                rule=kernel.rule,
                specialization=cast(Specialization, specialization),
                num_warps=variant.num_warps,
                num_stages=variant.num_stages,
            )
            yield DeclaredEntry(family, reference, kernel, signature, reasons)


def _type(table: Table, name: str, text: str, dtypes: dict[str, DType]) -> DType | tuple[DType]:
    plain = text.removeprefix("*")
    dtype = dtypes.get(plain) or BY_NAME.get(plain)
    if dtype is None:
        known = ", ".join((*dtypes, *BY_NAME))
        table.fail(name, f"has type {text!r}; a type is one of {known}, with * before a pointer's")
    return (dtype,) if text.startswith("*") else dtype


def _reasons(table: Table) -> dict[str, str]:
    reasons = table.table("unsupported")
    return {target: reasons.text(target) for target in reasons.names()}
