"""Load kernels before they are needed: before a graph capture, or before serving requests."""

from __future__ import annotations

from tilewright.abi.signature import KernelSignature
from tilewright.errors import ArgumentError
from tilewright.language.kernel import Kernel
from tilewright.runtime import store
from tilewright.runtime.launch import load_bundled, loaded_kernel


def preload(*kernels: Kernel, device: int = 0, signatures: tuple[KernelSignature, ...] = ()) -> int:
    """Load every bundled signature of `kernels` on a device and return how many there are.

    A kernel that is in no bundle needs its `signatures`; these are resolved as a launch would,
    which may compile. Afterwards, launches of these signatures load nothing, so they can be
    captured in a graph. Raises ArgumentError for a kernel that has no bundled signature when none
    is given.
    """
    _check_types("kernels", kernels, Kernel)
    _check_types("signatures", signatures, KernelSignature)
    count = 0
    for kernel in kernels:
        found = store.entries_of(kernel)
        for key, entry in found.items():
            load_bundled(kernel, key, entry, device)
        for signature in signatures:
            loaded_kernel(kernel, signature, device)
        if not found and not signatures:
            msg = (
                f"kernel {kernel.qualified_name} is in no bundle, so its signatures are not known; "
                "pass signatures=(...)"
            )
            raise ArgumentError(msg)
        count += len(found) + len(signatures)
    return count


def _check_types(name: str, values: tuple[object, ...], wanted: type) -> None:
    for value in values:
        if not isinstance(value, wanted):
            msg = f"{name} of preload are each a {wanted.__name__}, got {value!r}"
            raise ArgumentError(msg)
