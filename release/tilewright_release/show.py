"""`tilewright dev show KERNEL --stage STAGE`: one stage of a declared kernel, as text."""

from __future__ import annotations

import argparse

from tilewright.abi.target import Target
from tilewright.errors import UsageError
from tilewright_compiler.driver import show
from tilewright_compiler.snapshots import STAGES
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import DeclaredEntry, read_signatures, select_entries
from tilewright_release.targets import read_targets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("kernel", help="as in a signature file, or its name alone")
    parser.add_argument("--stage", choices=STAGES, default="tile", help="tile by default")
    parser.add_argument("--signature", default="", help="text that the signature must contain")
    parser.add_argument(
        "--target",
        type=Target.parse,
        help="show the stages from `scheduled` on as for this target alone",
    )
    parser.add_argument("--list", action="store_true", help="list the declared signatures instead")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Print the stage of the first signature that fits."""
    entries = choose(
        select_entries(read_signatures(checkout), arguments.kernel), arguments.signature
    )
    if arguments.list:
        print("\n".join(str(entry.signature) for entry in entries))
        return 0
    targets = (
        (arguments.target,)
        if arguments.target
        else tuple(row.target for row in read_targets(checkout.targets).rows)
    )
    print(show(entries[0].kernel, entries[0].signature, arguments.stage, targets=targets))
    return 0


def choose(entries: list[DeclaredEntry], text: str) -> list[DeclaredEntry]:
    """Return the entries whose signature contains `text`; raises UsageError when none does."""
    found = [entry for entry in entries if text in str(entry.signature)]
    if not found:
        known = "\n  ".join(str(entry.signature) for entry in entries)
        msg = f"no signature of {entries[0].reference} contains {text!r}; there are\n  {known}"
        raise UsageError(msg)
    return found
