"""`tilewright dev bundle-kernels`: signature files become `build/bundle/`, a manifest with packs.

Entries are built by workers, each kept in the cache as soon as it is done; the bundle is put
together from the cache at the end. So a run that was killed goes on where it stopped, a run with
nothing new compiles nothing, and the same inputs give the same bytes whoever the workers are:
processes here, a Dask cluster, or the jobs of a CI matrix whose shards are merged.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tilewright.abi.manifest import FILE_NAME, Manifest
from tilewright.abi.target import Target
from tilewright.errors import ReleaseError
from tilewright_release.budgets import (
    Budgets,
    Measured,
    passed_blob_limits,
    passed_entry_limits,
    read_budgets,
)
from tilewright_release.build_entry import (
    BuildReport,
    BuildTask,
    BuiltEntry,
    copy_entry,
    find_entry,
)
from tilewright_release.checkout import Checkout, folder
from tilewright_release.packs import pack_cubins
from tilewright_release.shards import Shard, share_of
from tilewright_release.signatures import DeclaredEntry, read_signatures
from tilewright_release.stage_cache import default_cache, prune
from tilewright_release.targets import TargetTable, read_targets
from tilewright_release.tuning.tables import read_tuned, write_bundled
from tilewright_release.validated import read_validated
from tilewright_release.workers import build_all

CACHE_BYTES = 4 * 2**30
_SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did: entries and stages (PTX texts and cubins) made or found, time and sizes."""

    entries: int
    built: int
    blobs: int
    stages: int
    seconds: float
    core_seconds: float
    blob_bytes: int
    bundle_bytes: int
    pack_bytes: Mapping[str, int]

    def __str__(self) -> str:
        """Return the lines that close a run."""
        packs = ", ".join(f"{name} {size / 1e3:.0f} kB" for name, size in self.pack_bytes.items())
        return (
            f"bundle: {self.entries} entries ({self.built} built, "
            f"{self.entries - self.built} reused), {self.blobs} blobs "
            f"({self.stages} PTX texts and cubins compiled) in {self.seconds:.1f} s, "
            f"{self.core_seconds:.0f} core-seconds from nothing\n"
            f"bundle: {self.blob_bytes / 1e6:.1f} MB of blobs in "
            f"{self.bundle_bytes / 1e6:.2f} MB ({packs})"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="build on the Dask cluster at this address instead"
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--shard",
        type=Shard.parse,
        metavar="I/N",
        help="build only part I of N; --output, build/shard-I-of-N by default, is for --merge",
    )
    ways.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="make the bundle of what the shards built, and compile nothing",
    )
    parser.add_argument("--cache", type=folder, help="folder of the build caches")
    parser.add_argument(
        "--output", type=folder, help="folder of the bundle, build/bundle by default"
    )


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Make the bundle, or one shard of it, and print what was done."""
    cache = arguments.cache or default_cache()
    if arguments.shard is not None:
        folder = arguments.output or checkout.root / "build" / arguments.shard.folder_name
        count = build_shard(
            checkout,
            arguments.shard,
            output=folder,
            cache=cache,
            jobs=arguments.jobs,
            scheduler=arguments.scheduler,
            stream=sys.stderr,
        )
        print(f"shard {arguments.shard}: {count} entries in {folder}")
        return 0
    summary = bundle_kernels(
        checkout,
        output=arguments.output or checkout.bundle,
        cache=cache,
        jobs=arguments.jobs,
        scheduler=arguments.scheduler,
        shards=arguments.merge,
        stream=sys.stderr,
    )
    print(summary)
    return 0


def bundle_kernels(
    checkout: Checkout,
    *,
    output: Path,
    cache: Path,
    jobs: int,
    stream: TextIO,
    scheduler: str | None = None,
    shards: Sequence[Path] | None = None,
) -> Summary:
    """Build what is missing and write the bundle to `output`.

    Built by `jobs` processes, or by the Dask cluster whose scheduler has the given address.
    With `shards`, folders that `build_shard` wrote, nothing is built and what is in none of them
    nor in the cache is an error. Raises FormatError for a wrong declaration, ReleaseError for a
    passed budget or for kernels that do not compile; all of them are listed, and what did compile
    stays in the cache.
    """
    start = time.monotonic()
    table, budgets = read_targets(checkout.targets), read_budgets(checkout.budgets)
    declared = read_signatures(checkout)
    _refuse("budgets are exceeded", passed_entry_limits(budgets, (d.family for d in declared)))
    tasks = plan_tasks(declared, table, root=checkout.root, cache=cache)
    missing = [task for task in tasks if find_entry(task) is None]
    reports: list[BuildReport] = []
    if missing:
        _require_writable(cache)
    if shards is None:
        reports = list(build_all(missing, jobs=jobs, scheduler=scheduler, stream=stream))
    else:
        absent = [task for task in missing if not _merge(task, shards)]
        _refuse(
            "entries are in no shard", [f"{task.reference} {task.signature}" for task in absent]
        )
    _refuse("kernels do not compile", [report.error for report in reports if report.error])
    built = [_built(task) for task in tasks]
    _refuse("budgets are exceeded", passed_blob_limits(budgets, _measured(declared, built)))
    manifest = pack_cubins(
        {entry.source_key: entry.cubins for entry in built},
        entries=list(zip(declared, built, strict=True)),
        targets=table,
        folder=output,
        cache=cache,
        version=checkout.version,
        validated=read_validated(checkout.validated),
        stream=stream,
    )
    write_bundled(read_tuned(checkout.tuned), output)
    prune(cache, max_bytes=CACHE_BYTES)
    summary = _summary(manifest, output, reports, built, seconds=time.monotonic() - start)
    _refuse("budgets are exceeded", _passed_size(budgets, summary))
    return summary


def _require_writable(cache: Path) -> None:
    """Raise ReleaseError unless the build caches can be written: each kernel would say so."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        msg = f"the build caches in {cache} cannot be written: {error}; name others with --cache"
        raise ReleaseError(msg) from error


def build_shard(
    checkout: Checkout,
    shard: Shard,
    *,
    output: Path,
    cache: Path,
    jobs: int,
    stream: TextIO,
    scheduler: str | None = None,
) -> int:
    """Build one part of the entries, put them into `output`, and return how many they are.

    Raises what `bundle_kernels` does.
    """
    declared = share_of(shard, read_signatures(checkout))
    tasks = plan_tasks(declared, read_targets(checkout.targets), root=checkout.root, cache=cache)
    missing = [task for task in tasks if find_entry(task) is None]
    if missing:
        _require_writable(cache)
    reports = list(build_all(missing, jobs=jobs, scheduler=scheduler, stream=stream))
    _refuse("kernels do not compile", [report.error for report in reports if report.error])
    for task in tasks:
        _built(task)
        copy_entry(task, source=cache, destination=output)
    return len(tasks)


def plan_tasks(
    declared: Sequence[DeclaredEntry], table: TargetTable, *, root: Path, cache: Path
) -> list[BuildTask]:
    """Return one task for each declared entry, in order."""
    known = {str(row.target) for row in table.rows}
    unknown = {
        f"{entry.reference} for {name}"
        for entry in declared
        for name, _ in entry.unsupported
        if name not in known
    }
    _refuse(f"`unsupported` names what is none of {', '.join(sorted(known))}", sorted(unknown))
    return [
        BuildTask(
            root, cache, entry.reference, entry.source_key, entry.signature, _targets(entry, table)
        )
        for entry in declared
    ]


def _targets(entry: DeclaredEntry, table: TargetTable) -> tuple[Target, ...]:
    left_out = {name for name, _ in entry.unsupported}
    return tuple(row.target for row in table.rows if str(row.target) not in left_out)


def _merge(task: BuildTask, shards: Sequence[Path]) -> bool:
    return any(copy_entry(task, source=folder, destination=task.cache) for folder in shards)


def _built(task: BuildTask) -> BuiltEntry:
    entry = find_entry(task)
    if entry is None:
        msg = (
            f"{task.reference} was built and is not in the cache {task.cache}: the compiler's "
            "sources changed meanwhile, or the cache was cleared; run the command again"
        )
        raise ReleaseError(msg)
    return entry


def _measured(declared: Sequence[DeclaredEntry], built: Sequence[BuiltEntry]) -> Iterator[Measured]:
    for declaration, entry in zip(declared, built, strict=True):
        yield Measured(
            declaration.family,
            f"{declaration.reference} {declaration.signature}",
            entry.abi.shared_bytes,
            entry.seconds,
            entry.cubins,
        )


def _summary(
    manifest: Manifest,
    folder: Path,
    reports: Sequence[BuildReport],
    built: Sequence[BuiltEntry],
    *,
    seconds: float,
) -> Summary:
    blobs = {
        blob.sha256: blob.size
        for entry in manifest.entries.values()
        for blob in entry.blobs.values()
    }
    packs = sorted(folder.glob("*.pack"))
    targets: dict[str, int] = {}
    for path in packs:
        target = path.stem.split("-")[-2]
        targets[target] = targets.get(target, 0) + path.stat().st_size
    return Summary(
        entries=len(manifest.entries),
        built=len(reports),
        blobs=len(blobs),
        stages=sum(report.stages for report in reports),
        seconds=seconds,
        core_seconds=sum(entry.seconds for entry in built),
        blob_bytes=sum(blobs.values()),
        bundle_bytes=sum(path.stat().st_size for path in (folder / FILE_NAME, *packs)),
        pack_bytes=targets,
    )


def _passed_size(budgets: Budgets, summary: Summary) -> list[str]:
    if summary.bundle_bytes <= budgets.packed_bytes:
        return []
    return [f"bundle: {summary.bundle_bytes} bytes packed, the budget is {budgets.packed_bytes}"]


def _refuse(what: str, problems: Sequence[str]) -> None:
    if problems:
        shown = [f"  {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
        if len(problems) > _SHOWN_PROBLEMS:
            shown.append(f"  and {len(problems) - _SHOWN_PROBLEMS} more")
        raise ReleaseError("\n".join((f"{what} ({len(problems)}):", *shown)))
