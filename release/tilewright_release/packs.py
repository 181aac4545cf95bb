"""Built entries become the packs and the manifest of a bundle.

There is a pack for each family and target, so that a lookup reads one small file, and the size of a
target can be told. In it, each blob is compressed against another that it resembles. Packs are
named by what decides their bytes and the manifest is replaced last: at every instant the folder
holds a whole bundle or none, and a run that was killed leaves no pack to write twice. What was
written is kept in the build cache too, since to find what resembles what takes minutes. Every blob
is held against its entry before it is written, wherever it comes from.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TextIO

import zstandard

from tilewright.abi import pack
from tilewright.abi.manifest import FILE_NAME, Blob, Entry, Manifest, write_manifest
from tilewright.abi.pack import PackReader, write_pack
from tilewright.cli.bundle_check import check_pack
from tilewright.errors import FormatError, ReleaseError
from tilewright.language.provenance import kernel_record
from tilewright_compiler.backend.cubin import check_cubin
from tilewright_compiler.capabilities import BASELINE
from tilewright_compiler.driver import build_key
from tilewright_compiler.ir.stages import Cubin
from tilewright_compiler.toolchain import toolchain_id
from tilewright_release import similar
from tilewright_release.build_entry import BuiltEntry
from tilewright_release.progress import show_progress
from tilewright_release.signatures import DeclaredEntry
from tilewright_release.similar import arrange
from tilewright_release.stage_cache import StageCache, write_atomically
from tilewright_release.targets import FLOOR, TargetTable
from tilewright_release.validated import Validations

logger = logging.getLogger(__name__)

_PTX_HEAD = re.compile(r"^\.version (\S+)\n\.target (\S+)$", re.MULTILINE)


def pack_cubins(
    cubins: Mapping[str, Sequence[Cubin]],
    *,
    entries: Sequence[tuple[DeclaredEntry, BuiltEntry]],
    targets: TargetTable,
    folder: Path,
    cache: Path,
    version: str,
    validated: Validations,
    stream: TextIO,
) -> Manifest:
    """Write the packs and the manifest of a bundle; `cubins` are those of each source key.

    Packs that the build caches in `cache` have are copied; progress is shown on `stream`.
    Raises InternalCompilerError for a cubin, ReleaseError for a PTX text that is not what its entry
    says.
    """
    for declared, built in entries:
        for cubin in cubins[built.source_key]:
            check_cubin(cubin.data, target=cubin.target, abi=cubin.abi or built.abi)
        check_floor(built.ptx, entry=built.abi.entry, name=declared.reference)
    wanted: dict[tuple[str, str], list[bytes]] = {}
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
                wanted[family, name] = blobs
    with _alone(folder):
        made_before = StageCache(cache, "packs")
        packs: dict[tuple[str, str], str] = {}
        # Threads, because the compressor lets go of the interpreter.
        with (
            ThreadPoolExecutor(max_workers=os.cpu_count()) as executor,
            show_progress("packs", total=len(wanted), stream=stream) as progress,
        ):
            written = executor.map(
                lambda item: _write_pack(folder, "-".join(item[0]), item[1], made_before),
                wanted.items(),
            )
            for place, name in zip(wanted, written, strict=True):
                packs[place] = name
                progress.advance("-".join(place))
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
                    blobs=_records(
                        declared, built, cubins[built.source_key], packs, targets, validated
                    ),
                )
                for declared, built in entries
            },
        )
        write_manifest(folder / FILE_NAME, manifest)
        kept = set(packs.values())
        for pattern in ("*.pack", "*.partial", ".writing-*"):
            for path in folder.glob(pattern):
                if path.name not in kept:
                    path.unlink()
    return manifest


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make a folder, and wait for other runs that write to it: each removes what it does not know.

    The lock lies beside the folder, which is copied into a wheel as it is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def damaged_packs(folder: Path, entries: Iterable[Entry]) -> dict[str, str]:
    """Return what is wrong with each pack of a bundle that lacks bytes its entries tell of."""
    packs: dict[str, dict[str, Blob]] = {}
    for entry in entries:
        for blob in entry.blobs.values():
            packs.setdefault(blob.pack, {})[blob.sha256] = blob
    damaged = {}
    for name, blobs in sorted(packs.items()):
        faults = list(check_pack(folder, name, blobs))
        if faults:
            damaged[name] = faults[0]
    return damaged


def check_floor(ptx: str, *, entry: str, name: str) -> None:
    """Raise ReleaseError unless a PTX text is for the floor's target and version, with the entry.

    A driver refuses a text that is newer than itself, and one of an `a` target on all GPUs but one.
    """
    found = _PTX_HEAD.search(ptx)
    wanted = (".".join(map(str, BASELINE.version)), str(BASELINE.target))
    if found is None or found.groups() != wanted:
        has = "no header" if found is None else " ".join(found.groups())
        msg = f"the PTX of {name} has {has}; the floor is .version {wanted[0]} .target {wanted[1]}"
        raise ReleaseError(msg)
    if not re.search(rf"\.visible \.entry {re.escape(entry)}\(", ptx):
        msg = f"the PTX of {name} has no visible entry {entry}"
        raise ReleaseError(msg)


def _blobs(entry: BuiltEntry, cubins: Iterable[Cubin]) -> Iterator[tuple[str, bytes]]:
    for cubin in cubins:
        yield str(cubin.target), cubin.data
    yield FLOOR, entry.ptx.encode()


def _write_pack(folder: Path, stem: str, blobs: Sequence[bytes], cache: StageCache) -> str:
    """Write a pack named by what decides its bytes, unless it is there already; return its name."""
    key = hashlib.sha256(f"{pack.VERSION} {similar.VERSION} {zstandard.__version__}".encode())
    for blob in blobs:
        key.update(hashlib.sha256(blob).digest())
    path = folder / f"{stem}-{key.hexdigest()[:16]}.pack"
    if _is_whole(path, blobs):
        return path.name
    # Who changes how packs are written may forget to raise a version while he tries.
    key.update(_writer_digest())
    kept = cache.get(key.hexdigest())
    if kept is not None:
        write_atomically(path, kept)
        if _is_whole(path, blobs):
            return path.name
    arrangement = arrange(blobs)
    ordered = [blobs[index] for index in arrangement.order]
    write_pack(path, ordered, bases=arrangement.bases)
    try:
        cache.put(key.hexdigest(), path.read_bytes())
    except OSError as error:
        logger.warning("%s is not kept for other checkouts: %s", path.name, error)
    return path.name


@lru_cache(maxsize=1)
def _writer_digest() -> bytes:
    sources = (Path(module.__file__ or "").read_bytes() for module in (pack, similar))
    return hashlib.sha256(b"".join(sources)).digest()


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
    validated: Validations,
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
            validated=validated.gpus(hashlib.sha256(cubin.data).hexdigest()),
            abi=cubin.abi,
            waits=cubin.waits,
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
        validated=validated.gpus(hashlib.sha256(text).hexdigest()),
    )
    return records
