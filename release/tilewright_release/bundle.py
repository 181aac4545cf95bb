"""`tilewright dev bundle-kernels`: signature files become `build/bundle/`, a manifest with packs.

Entries are built by worker processes, each kept in the cache as soon as it is done; the bundle is
put together from the cache at the end. So a run that was killed goes on where it stopped, a run
with nothing new compiles nothing, and the same inputs give the same bytes whatever the number of
processes. Packs are named by their content and the manifest is replaced last: at every instant the
folder holds a whole bundle or none.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TextIO

import zstandard

from tilewright.abi import pack
from tilewright.abi.manifest import (
    FILE_NAME,
    Blob,
    Entry,
    Manifest,
    write_manifest,
)
from tilewright.abi.pack import PackReader, write_pack
from tilewright.abi.target import Target
from tilewright.errors import FormatError, ReleaseError
from tilewright.language.provenance import kernel_record
from tilewright.settings import settings
from tilewright_compiler.capabilities import BASELINE
from tilewright_compiler.driver import build_key
from tilewright_compiler.ir.stages import Cubin
from tilewright_compiler.toolchain import toolchain_id
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
    build_entry,
    find_entry,
)
from tilewright_release.checkout import Checkout
from tilewright_release.progress import show_progress
from tilewright_release.signatures import DeclaredEntry, read_signatures
from tilewright_release.stage_cache import prune
from tilewright_release.targets import FLOOR, TargetTable, read_targets

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
    parser.add_argument("--cache", type=Path, help="folder of the build caches")
    parser.add_argument("--output", type=Path, help="folder of the bundle, build/bundle by default")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Make the bundle and print the summary."""
    summary = bundle_kernels(
        checkout,
        output=arguments.output or checkout.bundle,
        cache=arguments.cache or default_cache(),
        jobs=arguments.jobs,
        stream=sys.stderr,
    )
    print(summary)
    return 0


def default_cache() -> Path:
    """Return the folder of the build caches: outside the checkout, so that clones share it."""
    candidates = settings().cache_candidates
    if not candidates:
        msg = "TILEWRIGHT_CACHE_DIR=off leaves no place for the build caches; name one with --cache"
        raise ReleaseError(msg)
    return candidates[0] / "factory"


def bundle_kernels(
    checkout: Checkout, *, output: Path, cache: Path, jobs: int, stream: TextIO
) -> Summary:
    """Build what is missing and write the bundle to `output`.

    Raises FormatError for a wrong declaration, ReleaseError for a passed budget or for kernels that
    do not compile; all of them are listed, and what did compile stays in the cache.
    """
    start = time.monotonic()
    table, budgets = read_targets(checkout.targets), read_budgets(checkout.budgets)
    declared = read_signatures(checkout)
    _refuse("budgets are passed", passed_entry_limits(budgets, (d.family for d in declared)))
    tasks = plan_tasks(declared, table, root=checkout.root, cache=cache)
    missing = [task for task in tasks if find_entry(task) is None]
    reports = list(_build(missing, jobs=jobs, stream=stream))
    _refuse("kernels do not compile", [report.error for report in reports if report.error])
    built = [_built(task) for task in tasks]
    _refuse("budgets are passed", passed_blob_limits(budgets, _measured(declared, built)))
    manifest = pack_cubins(
        {entry.source_key: entry.cubins for entry in built},
        entries=list(zip(declared, built, strict=True)),
        targets=table,
        folder=output,
        version=checkout.version,
    )
    prune(cache, max_bytes=CACHE_BYTES)
    summary = _summary(manifest, output, reports, built, seconds=time.monotonic() - start)
    _refuse("budgets are passed", _passed_size(budgets, summary))
    return summary


def plan_tasks(
    declared: Sequence[DeclaredEntry], table: TargetTable, *, root: Path, cache: Path
) -> list[BuildTask]:
    """Return one task for each declared entry, in order."""
    return [
        BuildTask(
            root, cache, entry.reference, entry.source_key, entry.signature, _targets(entry, table)
        )
        for entry in declared
    ]


def pack_cubins(
    cubins: Mapping[str, Sequence[Cubin]],
    *,
    entries: Sequence[tuple[DeclaredEntry, BuiltEntry]],
    targets: TargetTable,
    folder: Path,
    version: str,
) -> Manifest:
    """Write the packs and the manifest of a bundle; `cubins` are those of each source key.

    There is a pack for each family and target, so that a lookup reads one small file, and the size
    of a target can be told. Cubins of a kernel stand next to each other and compress together.
    """
    folder.mkdir(parents=True, exist_ok=True)
    packs: dict[tuple[str, str], str] = {}
    for family, members in groupby(entries, key=lambda pair: pair[0].family):
        group = list(members)
        for name in targets.names:
            blobs = [
                blob
                for _, built in group
                for target, blob in _blobs(built, cubins[built.source_key])
                if target == name
            ]
            if blobs:
                packs[family, name] = _write_pack(folder, f"{family}-{name}", blobs)
    manifest = Manifest(
        version=version,
        kernels={
            declared.kernel.qualified_name: kernel_record(declared.kernel)
            for declared, _ in entries
        },
        entries={
            built.source_key: Entry(
                kernel=declared.kernel.qualified_name,
                family=declared.family,
                signature=str(declared.signature),
                abi=built.abi,
                blobs=_records(declared, built, cubins[built.source_key], packs, targets),
            )
            for declared, built in entries
        },
    )
    write_manifest(folder / FILE_NAME, manifest)
    kept = set(packs.values())
    for pattern in ("*.pack", "*.partial"):
        for path in folder.glob(pattern):
            if path.name not in kept:
                path.unlink()
    return manifest


def _targets(entry: DeclaredEntry, table: TargetTable) -> tuple[Target, ...]:
    left_out = {name for name, _ in entry.unsupported}
    return tuple(row.target for row in table.rows if str(row.target) not in left_out)


def _build(tasks: Sequence[BuildTask], *, jobs: int, stream: TextIO) -> Iterator[BuildReport]:
    if not tasks:
        return
    # Spawned, not forked: a worker starts its own LLVM process and must share nothing with ours.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(max_workers=min(jobs, len(tasks)), mp_context=context)
    try:
        with show_progress("kernels", total=len(tasks), stream=stream) as progress:
            futures = {executor.submit(build_entry, task): task for task in tasks}
            for future in as_completed(futures):
                progress.advance(futures[future].reference)
                yield future.result()
    except BrokenProcessPool as error:
        msg = (
            "a worker process died, perhaps for lack of memory; run the command again, with fewer "
            "--jobs: what was built is kept"
        )
        raise ReleaseError(msg) from error
    finally:
        executor.shutdown(cancel_futures=True)


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


def _blobs(entry: BuiltEntry, cubins: Iterable[Cubin]) -> Iterator[tuple[str, bytes]]:
    for cubin in cubins:
        yield str(cubin.target), cubin.data
    yield FLOOR, entry.ptx.encode()


def _write_pack(folder: Path, stem: str, blobs: Sequence[bytes]) -> str:
    """Write a pack named by what decides its bytes, unless it is there already; return its name."""
    key = hashlib.sha256(f"{pack.VERSION} {zstandard.__version__}".encode())
    for blob in blobs:
        key.update(hashlib.sha256(blob).digest())
    name = f"{stem}-{key.hexdigest()[:16]}.pack"
    if not _is_whole(folder / name, blobs):
        write_pack(folder / name, blobs)
    return name


def _is_whole(path: Path, blobs: Sequence[bytes]) -> bool:
    if not path.is_file():
        return False
    try:
        with PackReader(path) as reader:
            return all(reader.read(hashlib.sha256(blob).hexdigest()) == blob for blob in blobs)
    except FormatError:
        return False


def _records(
    declared: DeclaredEntry,
    built: BuiltEntry,
    cubins: Sequence[Cubin],
    packs: Mapping[tuple[str, str], str],
    targets: TargetTable,
) -> dict[str, Blob]:
    records = {
        cubin.key: Blob(
            sha256=hashlib.sha256(cubin.data).hexdigest(),
            pack=packs[declared.family, str(cubin.target)],
            size=len(cubin.data),
            kind="cubin",
            target=str(cubin.target),
            min_driver=targets.min_driver(str(cubin.target)),
            registers=cubin.registers,
            spill_bytes=cubin.spill_bytes,
            shared_bytes=cubin.static_shared_bytes,
            toolchain=toolchain_id(),
            build_key=build_key(built.source_key, cubin.target),
            abi=cubin.abi,
        )
        for cubin in cubins
    }
    text = built.ptx.encode()
    records[FLOOR] = Blob(
        sha256=hashlib.sha256(text).hexdigest(),
        pack=packs[declared.family, FLOOR],
        size=len(text),
        kind="ptx",
        target=str(BASELINE.target),
        min_driver=targets.min_driver(FLOOR),
        registers=0,
        spill_bytes=0,
        shared_bytes=0,
        toolchain=toolchain_id(),
        build_key=build_key(built.source_key, None),
    )
    return records


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
