"""`tilewright dev verify`: build a sample of the bundle again, from nothing, and compare bytes.

Each rebuild runs in a process of its own with empty caches, another hash seed and, the second time,
copied sources in another folder: a set in the wrong place, or a path, is what makes a compiler's
output differ from run to run. Another Python may be named for a third. With `--all` the whole
bundle is made again and its files compared, as before a release.

`--against REV` asks another question: whether this commit's compiler gives the PTX that another
commit's gives, which is what a change that only moves code has to show.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilewright.abi.manifest import FILE_NAME, Entry, read_manifest
from tilewright.errors import ReleaseError, UsageError
from tilewright_release.against import compare_with_revision
from tilewright_release.build_entry import build_entry, entry_digests, find_entry
from tilewright_release.bundle import bundle_kernels, plan_tasks
from tilewright_release.checkout import Checkout
from tilewright_release.packs import damaged_packs
from tilewright_release.signatures import read_signatures
from tilewright_release.stage_cache import file_digests
from tilewright_release.targets import read_targets

_PROGRAM = "from tilewright_release.verify import rebuild_and_print; rebuild_and_print()"
_PACKAGES = ("tilewright", "tilewright_compiler", "tilewright_release")
_NEVER_COPIED = shutil.ignore_patterns(".*", "__pycache__", "_prebuilt")
# Of a checkout's own folders; packages may have some of these names.
_NOT_COPIED = {"benchmarks", "build", "dist", "docs", "tests", "wheelhouse"}


@dataclass(frozen=True, slots=True)
class Variation:
    """One way of building again, which must not matter."""

    name: str
    hash_seed: str
    is_elsewhere: bool = False
    python: Path | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--sample", type=_count, default=4, help="number of entries, 4 by default")
    parser.add_argument("--all", action="store_true", help="every entry, as before a release")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--bundle", type=Path, help="folder of the bundle, build/bundle by default")
    parser.add_argument(
        "--python", type=Path, help="another interpreter, with the compiler's tools, to build by"
    )
    parser.add_argument(
        "--jobs", type=_count, default=os.cpu_count() or 1, help="worker processes of --all"
    )
    parser.add_argument(
        "--against", metavar="REV", help="compare the PTX with that of another commit instead"
    )


def _count(text: str) -> int:
    """Read how many of something there are to be; raises UsageError for fewer than one."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is no number of at least 1"
        raise UsageError(msg)
    return int(text)


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Print what was compared; raises ReleaseError that names whatever differs."""
    if arguments.against is not None:
        count = None if arguments.all else arguments.sample
        print(compare_with_revision(checkout, arguments.against, count, seed=arguments.seed))
        return 0
    bundle = arguments.bundle or checkout.bundle
    entries = read_manifest(bundle / FILE_NAME).entries
    keys = sorted(entries)
    if not arguments.all:  # which compares whole files
        _require_packs(bundle, entries)
        keys = sorted(random.Random(arguments.seed).sample(keys, min(arguments.sample, len(keys))))
    ways = [
        Variation("hash seed 1", "1"),
        Variation("hash seed 2 in another folder", "2", is_elsewhere=True),
    ]
    if arguments.python is not None:
        ways.append(Variation(f"Python {arguments.python}", "3", python=arguments.python))
    problems = []
    for way in ways:
        jobs = arguments.jobs if arguments.all else 0
        rebuilt = _rebuild(checkout, keys, way=way, jobs=jobs)
        found = (
            differing_files(file_digests(bundle), rebuilt["files"])
            if arguments.all
            else differences(entries, rebuilt)
        )
        problems += [f"{way.name}: {problem}" for problem in found]
    if problems:
        raise ReleaseError("\n  ".join((f"{len(problems)} were built anew otherwise:", *problems)))
    blobs = sum(len(entries[key].blobs) for key in keys)
    names = ", ".join(way.name for way in ways)
    print(f"verify: {len(keys)} entries, {blobs} blobs built {len(ways)} times: same bytes")
    print(f"verify: {names}")
    return 0


def _require_packs(bundle: Path, entries: Mapping[str, Entry]) -> None:
    """Raise ReleaseError unless the packs hold the bytes that the manifest tells of."""
    damaged = damaged_packs(bundle, entries.values())
    if damaged:
        raise ReleaseError("\n  ".join((f"packs of {bundle} are not whole:", *damaged.values())))


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


def differing_files(bundled: Mapping[str, str], rebuilt: Mapping[str, str]) -> list[str]:
    """Return a line for each file of a bundle that differs, or that only one of the two has."""
    return [
        f"{name} has sha256 {bundled.get(name, 'nothing')}, rebuilt {rebuilt.get(name, 'nothing')}"
        for name in sorted({*bundled, *rebuilt})
        if bundled.get(name) != rebuilt.get(name)
    ]


def rebuild_and_print() -> None:
    """Build what standard input asks for; runs in a process of its own."""
    request = json.load(sys.stdin)
    checkout = Checkout(Path(request["root"]), request["package"])
    if request["jobs"]:
        result = {"files": rebuild_all(checkout, jobs=request["jobs"])}
    else:
        result = rebuild(checkout, request["keys"])
    json.dump(result, sys.stdout)


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


def rebuild_all(checkout: Checkout, *, jobs: int) -> dict[str, str]:
    """Make the whole bundle with empty caches and return the sha256 of each of its files."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        output, cache = Path(folder, "bundle"), Path(folder, "cache")
        bundle_kernels(checkout, output=output, cache=cache, jobs=jobs, stream=sys.stderr)
        return file_digests(output)


def _rebuild(
    checkout: Checkout, keys: Sequence[str], *, way: Variation, jobs: int
) -> dict[str, dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        root, path = checkout.root, _import_path(way)
        if way.is_elsewhere:
            root = Path(folder, "checkout")
            shutil.copytree(
                checkout.root, root, ignore=partial(_left_out, checkout.root), symlinks=True
            )
            # A project without a table of its own takes Tilewright's, which is no module to copy.
            shutil.copy(checkout.targets, root / "prebuilt" / "targets.toml")
            path = _copied_path(checkout.root, root, path, Path(folder, "packages"))
        start = f"sys.path[:0] = {path!r}" if way.python else f"sys.path[:] = {path!r}"
        request = {
            "root": str(root),
            "package": checkout.package,
            "keys": list(keys),
            "jobs": jobs,
        }
        try:
            done = subprocess.run(
                [str(way.python or sys.executable), "-c", f"import sys; {start}; {_PROGRAM}"],
                input=json.dumps(request),
                env={**os.environ, "PYTHONHASHSEED": way.hash_seed, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            msg = f"the rebuild with {way.name} cannot be started: {error}"
            raise ReleaseError(msg) from error
    if done.returncode != 0:
        msg = f"the rebuild with {way.name} failed: {done.stderr.strip()[-2000:]}"
        raise ReleaseError(msg)
    try:
        digests: dict[str, dict[str, str]] = json.loads(done.stdout)
    except ValueError as error:
        msg = f"the rebuild with {way.name} gave no answer; is it a Python? {done.stdout[-500:]!r}"
        raise ReleaseError(msg) from error
    return digests


def _left_out(root: Path, folder: str, names: list[str]) -> set[str]:
    """Return which of the names in a folder of a checkout a copy is made without."""
    of_root = _NOT_COPIED.intersection(names) if Path(folder) == root else set()
    return {*_NEVER_COPIED(folder, names), *of_root}


def _import_path(way: Variation) -> list[str]:
    """Return where a rebuild finds its packages: another Python has its own for the others."""
    return _roots() if way.python else sys.path


def _roots() -> list[str]:
    return list(dict.fromkeys(str(_package_folder(name).parent) for name in _PACKAGES))


def _package_folder(name: str) -> Path:
    file = sys.modules[name].__file__
    assert file is not None
    return Path(file).parent


def _copied_path(root: Path, copy: Path, path: Sequence[str], packages: Path) -> list[str]:
    """Return an import path with our packages copied to `packages`, and what is in the checkout
    replaced by its copy."""
    for name in _PACKAGES:
        shutil.copytree(_package_folder(name), packages / name, ignore=_NEVER_COPIED)
    moved = [str(packages)]
    for entry in path:
        place = Path(entry)
        there = copy / place.relative_to(root) if place.is_relative_to(root) else place
        # An environment in the checkout, as `make` has it, is not copied.
        moved.append(str(there) if there.exists() else entry)
    return [entry for entry in moved if entry not in _roots() or "site-packages" in entry]
