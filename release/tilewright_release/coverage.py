"""`tilewright dev coverage`: every declared kernel, signature and target held against the bundle.

And against `prebuilt/validated/`: which of it ran on which GPU and gave the right result. A hole is
present in no other report: a kernel that was left out of a wheel works on the machine of whoever
built it, through the compiler, and fails elsewhere.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tilewright.abi.manifest import FILE_NAME, Entry, Manifest, blob_target, read_manifest
from tilewright.abi.target import Target
from tilewright.errors import ReleaseError
from tilewright_compiler.driver import build_key
from tilewright_release.checkout import Checkout
from tilewright_release.packs import damaged_packs
from tilewright_release.signatures import DeclaredEntry, read_signatures
from tilewright_release.targets import FLOOR, TargetTable, read_targets
from tilewright_release.validated import Validations, read_validated

State = Literal["present", "missing", "stale", "unsupported"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One kernel, signature and target. `reason` says why it is stale, missing or unsupported.

    `validated` names the GPUs on which all of its blobs for the target ran and were right.
    """

    family: str
    kernel: str
    signature: str
    target: str
    state: State
    reason: str = ""
    validated: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print every cell as JSON")
    parser.add_argument("--bundle", type=Path, help="folder of the bundle, build/bundle by default")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Print the coverage; raises ReleaseError when something is missing or stale."""
    cells = read_coverage(checkout, bundle=arguments.bundle or checkout.bundle)
    if arguments.json:
        print(json.dumps([asdict(cell) for cell in cells], indent=1))
    else:
        print(format_coverage(cells))
    holes = [cell for cell in cells if cell.state in ("missing", "stale")]
    if holes:
        msg = (
            f"{len(holes)} of {len(cells)} blobs are missing or stale, such as {holes[0].kernel} "
            f"{holes[0].signature} for {holes[0].target}: {holes[0].reason}"
        )
        raise ReleaseError(msg)
    return 0


def read_coverage(checkout: Checkout, *, bundle: Path) -> list[Cell]:
    """Return a cell for each declared entry and target, in order of declaration."""
    manifest = read_manifest(bundle / FILE_NAME)
    return list(
        cover(
            read_signatures(checkout),
            read_targets(checkout.targets),
            manifest,
            read_validated(checkout.validated),
            damaged=damaged_packs(bundle, manifest.entries.values()),
        )
    )


def cover(
    declared: Sequence[DeclaredEntry],
    table: TargetTable,
    manifest: Manifest,
    validations: Validations,
    *,
    damaged: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Cell]:
    """Yield the cells of `declared` by what `manifest` holds; `damaged` packs hold nothing."""
    bundled = {(entry.kernel, entry.signature) for entry in manifest.entries.values()}
    for entry in declared:
        reasons = dict(entry.unsupported)
        name, signature = entry.kernel.qualified_name, str(entry.signature)
        found = manifest.entries.get(entry.source_key)
        for target in table.names:
            state: State = "present"
            reason = ""
            blob = None if found is None else found.blobs.get(target)
            if target in reasons:
                state, reason = "unsupported", reasons[target]
            elif blob is None and found is None and (name, signature) in bundled:
                state, reason = "stale", "the kernel's source changed; see `tilewright dev why`"
            elif blob is None:
                state, reason = "missing", "the bundle was made before it was declared"
            elif blob.pack in damaged:
                state, reason = "missing", damaged[blob.pack]
            elif blob.build_key != _build_key(entry, target):
                state, reason = "stale", "the compiler or its tools changed"
            validated: tuple[str, ...] = ()
            if found is not None and state == "present":
                validated = _validated(found, target, validations)
            yield Cell(entry.family, name, signature, target, state, reason, validated)


def format_coverage(cells: Sequence[Cell]) -> str:
    """Return a line for each family with the number of blobs in each state, by target."""
    targets = list(dict.fromkeys(cell.target for cell in cells))
    counts = Counter((cell.family, cell.target, cell.state) for cell in cells)
    validated = Counter((cell.family, cell.target) for cell in cells if cell.validated)
    rows = [["family", *targets]]
    for family in dict.fromkeys(cell.family for cell in cells):
        row = [family]
        for target in targets:
            states = [
                f"{counts[family, target, state]} {state}"
                for state in ("present", "missing", "stale", "unsupported")
                if counts[family, target, state]
            ]
            if validated[family, target]:
                states.append(f"{validated[family, target]} validated")
            row.append(", ".join(states))
        rows.append(row)
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    return "\n".join(
        row[0].ljust(widths[0])
        + "".join(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )


def _validated(entry: Entry, target: str, validations: Validations) -> tuple[str, ...]:
    """Return the GPUs that validated the common schedule of a target and its own, if it has one."""
    names = [
        set(validations.gpus(blob.sha256))
        for key, blob in entry.blobs.items()
        if blob_target(key) == target
    ]
    return tuple(sorted(set.intersection(*names)))


def _build_key(entry: DeclaredEntry, target: str) -> str:
    return build_key(entry.source_key, None if target == FLOOR else Target.parse(target))
