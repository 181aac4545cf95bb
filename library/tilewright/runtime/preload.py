"""Load kernels before they are needed: before a graph capture, or before serving requests.

What a bundle holds for a kernel is loaded whole, as a launch would load it and without compiling.
A signature that this GPU cannot run, for want of shared memory say, is no error: nobody launches
it here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from tilewright.abi.manifest import Entry
from tilewright.abi.signature import KernelSignature
from tilewright.errors import ArgumentError, ResolveError
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime import store
from tilewright.runtime.launch import load_bundled, loaded_kernel
from tilewright.runtime.module import LoadedKernel

logger = logging.getLogger(__name__)

EVERYTHING = "all"


@dataclass(frozen=True, slots=True)
class Preloaded:
    """A kernel and signature that is loaded on a device, and the binary that serves it."""

    kernel: str
    signature: str
    binary: str
    device: int


def preload(
    *what: Kernel | str, device: int = 0, signatures: tuple[KernelSignature, ...] = ()
) -> tuple[Preloaded, ...]:
    """Load every bundled signature of what is named on a device, and return what was loaded.

    `what` are kernels, families of kernels by name, such as "matmul", or "all". Kernels that are in
    no bundle need their `signatures`; these are resolved as a launch would, which may compile, and
    for the kernels given alone. Afterwards, launches of these signatures load nothing, so they can
    be captured in a graph. Raises ArgumentError for a name that is no bundled family, and for a
    kernel without a bundled signature when none is given; ResolveError when nothing of a kernel
    that is given can run here.

        tw.preload("softmax", my_kernel)
    """
    _check_types(what, signatures)
    kernels = [each for each in what if isinstance(each, Kernel)]
    families = {each for each in what if isinstance(each, str)}
    if not families and not kernels and signatures:
        msg = "preload was given signatures and no kernel that they are of"
        raise ArgumentError(msg)
    loaded: dict[tuple[str, str], LoadedKernel] = {}
    for kernel, entries in _of_families(families):
        for each in _load(kernel, entries, device)[0]:
            loaded[each.decision.source_key, each.decision.kernel] = each
    for kernel in kernels:
        for each in _load_kernel(kernel, device, signatures):
            loaded[each.decision.source_key, each.decision.kernel] = each
    return tuple(
        Preloaded(each.decision.kernel, each.decision.signature, str(each.candidate), device)
        for each in loaded.values()
    )


def _load_kernel(
    kernel: Kernel, device: int, signatures: tuple[KernelSignature, ...]
) -> list[LoadedKernel]:
    entries = store.entries_of(kernel)
    if not entries and not signatures:
        msg = (
            f"kernel {kernel.qualified_name} is in no bundle, so its signatures are not known; "
            "pass signatures=(...)"
        )
        raise ArgumentError(msg)
    found, refusals = _load(kernel, entries, device)
    if refusals and not found:
        raise refusals[0]
    return found + [
        loaded_kernel(kernel, signature, device, is_whole=True) for signature in signatures
    ]


def _load(
    kernel: Kernel, entries: Mapping[str, Entry], device: int
) -> tuple[list[LoadedKernel], list[ResolveError]]:
    found: list[LoadedKernel] = []
    refusals: list[ResolveError] = []
    for key, entry in entries.items():
        try:
            found.append(load_bundled(kernel, key, entry, device))
        except ResolveError as error:
            refusals.append(error)
            logger.info("%s %s is not loaded: %s", entry.kernel, entry.signature, error)
    return found, refusals


def _of_families(families: set[str]) -> Iterator[tuple[Kernel, dict[str, Entry]]]:
    """Yield the kernels of families that this process can launch, with their entries."""
    if not families:
        return
    known: dict[str, dict[str, dict[str, Entry]]] = {}
    for _, key, entry in store.every_entry():
        known.setdefault(entry.family, {}).setdefault(entry.kernel, {}).setdefault(key, entry)
    unknown = sorted(families - {*known, EVERYTHING})
    if unknown:
        msg = (
            f"there is no bundled family {unknown[0]!r}; bundled are: "
            f"{', '.join(sorted(known)) or 'none'}"
        )
        raise ArgumentError(msg)
    for family in sorted(known if EVERYTHING in families else families):
        for name, entries in sorted(known[family].items()):
            kernel = store.bundled_kernel(name)
            if kernel is None:
                logger.info("%s is not loaded: it is not here, or not the bundled one", name)
            else:
                yield kernel, entries


def _check_types(what: tuple[object, ...], signatures: tuple[object, ...]) -> None:
    for value in what:
        if not isinstance(value, Kernel | str):
            msg = f"preload takes kernels and names of families, got {value!r}"
            raise ArgumentError(msg)
    for value in signatures:
        if not isinstance(value, KernelSignature):
            msg = f"signatures of preload are each a KernelSignature, got {value!r}"
            raise ArgumentError(msg)
