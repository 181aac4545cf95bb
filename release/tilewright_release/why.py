"""`tilewright dev why KERNEL`: the first thing in which a kernel differs from the bundled one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tilewright.abi.keys import explain_difference, field_digests
from tilewright.abi.manifest import FILE_NAME, PTX, Manifest, read_manifest
from tilewright.errors import ReleaseError
from tilewright.language.kernel import Kernel
from tilewright_compiler.driver import build_key
from tilewright_compiler.toolchain import toolchain_id
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import DeclaredEntry, read_signatures, select_entries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("kernel", help="as in a signature file, or its name alone")
    parser.add_argument("--bundle", type=Path, help="folder of the bundle, build/bundle by default")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Print the explanation."""
    entries = select_entries(read_signatures(checkout), arguments.kernel)
    manifest = read_manifest((arguments.bundle or checkout.bundle) / FILE_NAME)
    print(explain_key(entries, manifest))
    return 0


def explain_key(entries: Sequence[DeclaredEntry], manifest: Manifest) -> str:
    """Return what differs between the entries of a kernel as they are and as they were bundled."""
    kernel = entries[0].kernel
    record = manifest.kernels.get(kernel.qualified_name)
    if record is None:
        return f"{kernel.qualified_name} is not in the bundle"
    if record.digest != kernel.digest:
        return f"{kernel.qualified_name} changed since the bundle was made:\n  " + _difference(
            kernel, record.outline
        )
    missing = [entry for entry in entries if entry.source_key not in manifest.entries]
    if missing:
        return (
            f"{kernel.qualified_name} is as it was bundled, but {len(missing)} of {len(entries)} "
            f"declared signatures are new, such as {missing[0].signature}"
        )
    for entry in entries:
        blob = manifest.entries[entry.source_key].blobs[PTX]
        if blob.toolchain != toolchain_id():
            return f"the tools changed: bundled by {blob.toolchain}, now {toolchain_id()}"
        if blob.build_key != build_key(entry.source_key, None):
            return f"{kernel.qualified_name} is as it was bundled, but the compiler changed"
    return f"{kernel.qualified_name}: all {len(entries)} entries are as they were bundled"


def _difference(kernel: Kernel, outline: Sequence[tuple[str, str]]) -> str:
    found = explain_difference(outline, field_digests(kernel.fields))
    if found is None:
        msg = f"the digests of {kernel.qualified_name} differ and its fields do not; bundle again"
        raise ReleaseError(msg)
    # The outline holds hashes; the text as it is now says more than one of them.
    texts = dict(kernel.fields)
    label = next((name for name in texts if found.startswith(f"{name}: ")), None)
    return found if label is None else f"{label}: is now {texts[label]}"
