"""`tilewright dev verify`: build a sample of the bundle again, from nothing, and compare bytes.

Each rebuild runs in a process of its own with empty caches and another hash seed, because a set in
the wrong place is what makes a compiler's output differ from run to run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.abi.manifest import FILE_NAME, Entry, read_manifest
from tilewright.errors import ReleaseError
from tilewright_release.build_entry import build_entry, entry_digests, find_entry
from tilewright_release.bundle import plan_tasks
from tilewright_release.checkout import Checkout
from tilewright_release.signatures import read_signatures
from tilewright_release.targets import read_targets

_HASH_SEEDS = ("1", "2")
_PROGRAM = "from tilewright_release.verify import rebuild_and_print; rebuild_and_print()"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--sample", type=int, default=4, help="number of entries, 4 by default")
    parser.add_argument("--all", action="store_true", help="every entry, as before a release")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--bundle", type=Path, help="folder of the bundle, build/bundle by default")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Print what was compared; raises ReleaseError that names each blob that differs."""
    entries = read_manifest((arguments.bundle or checkout.bundle) / FILE_NAME).entries
    keys = sorted(entries)
    if not arguments.all:
        keys = sorted(random.Random(arguments.seed).sample(keys, min(arguments.sample, len(keys))))
    problems = [
        problem
        for seed in _HASH_SEEDS
        for problem in differences(entries, _rebuild(checkout, keys, hash_seed=seed))
    ]
    if problems:
        raise ReleaseError(
            "\n  ".join((f"{len(problems)} blobs were built anew with other bytes:", *problems))
        )
    blobs = sum(len(entries[key].blobs) for key in keys)
    print(f"verify: {len(keys)} entries, {blobs} blobs built {len(_HASH_SEEDS)} times: same bytes")
    return 0


def differences(
    entries: Mapping[str, Entry], rebuilt: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return a line for each rebuilt blob whose sha256 is not the bundled one."""
    return [
        f"{entries[key].kernel} {entries[key].signature} for {target}: bundled "
        f"{entries[key].blobs[target].sha256}, rebuilt {digest}"
        for key, digests in rebuilt.items()
        for target, digest in digests.items()
        if entries[key].blobs[target].sha256 != digest
    ]


def rebuild_and_print() -> None:
    """Build the entries whose source keys are on standard input; runs in a process of its own."""
    request = json.load(sys.stdin)
    checkout = Checkout(Path(request["root"]))
    json.dump(rebuild(checkout, request["keys"]), sys.stdout)


def rebuild(checkout: Checkout, keys: Sequence[str]) -> dict[str, dict[str, str]]:
    """Build entries with empty caches and return the sha256 of each blob by source key and target.

    Raises ReleaseError when a key is no longer declared or does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        tasks = plan_tasks(
            read_signatures(checkout),
            read_targets(checkout.targets),
            root=checkout.root,
            cache=Path(folder),
        )
        wanted = {task.source_key: task for task in tasks if task.source_key in keys}
        gone = sorted(set(keys) - set(wanted))
        if gone:
            msg = f"the bundle holds {gone[0]}, which is not declared any more; bundle again"
            raise ReleaseError(msg)
        digests = {}
        for key, task in wanted.items():
            report = build_entry(task)
            entry = find_entry(task)
            if report.error or entry is None:
                msg = f"{task.reference} {task.signature} does not compile: {report.error}"
                raise ReleaseError(msg)
            digests[key] = entry_digests(entry)
        return digests


def _rebuild(
    checkout: Checkout, keys: Sequence[str], *, hash_seed: str
) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {_PROGRAM}"],
        input=json.dumps({"root": str(checkout.root), "keys": list(keys)}),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        msg = f"the rebuild with hash seed {hash_seed} failed: {done.stderr.strip()[-2000:]}"
        raise ReleaseError(msg)
    digests: dict[str, dict[str, str]] = json.loads(done.stdout)
    return digests
