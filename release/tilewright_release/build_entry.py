"""One declared entry becomes its PTX and cubins, in a worker process and with three caches.

An entry's record is kept under the build keys of all its blobs, so an unchanged compiler and kernel
need not even run the frontend; under it are the compiler's own caches (scheduled IR to PTX, PTX to
cubin), which outlive changes of the compiler that leave the PTX equal. A record is one file, so a
group of blobs is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.keys import source_key
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.errors import ReleaseError, TilewrightError
from tilewright.language.kernel import Kernel
from tilewright_compiler.driver import build_key, compile_kernel
from tilewright_compiler.ir.stages import Cubin
from tilewright_compiler.pipeline import CompiledKernel, Texts
from tilewright_release.processor_time import processor_seconds
from tilewright_release.signatures import load_kernel
from tilewright_release.stage_cache import StageCache, default_cache

logger = logging.getLogger(__name__)

_RECORD_SCHEMA = "4"


@dataclass(frozen=True, slots=True)
class BuildTask:
    """What a worker process needs to build one entry."""

    root: Path
    cache: Path
    reference: str
    source_key: str
    signature: KernelSignature
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class BuiltEntry:
    """An entry with all its blobs. `seconds`, on processors, is what it takes with empty caches."""

    source_key: str
    abi: LaunchAbi
    ptx: str
    cubins: tuple[Cubin, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a worker says of a task: `stages` PTX texts and cubins were made, not found.

    `error` holds the text of a TilewrightError, empty when the entry was built.
    """

    source_key: str
    seconds: float
    stages: int
    error: str = ""


def build_entry(task: BuildTask) -> BuildReport:
    """Build one entry and keep its record in the cache; called in a worker process."""
    stages = StageCache(task.cache, "stages")
    start = processor_seconds()
    try:
        kernel = load_kernel(task.reference, root=task.root)
        _require_same_kernel(task, kernel)
        # In the general form a target's own schedule serves few launches for its bytes.
        texts: Texts = "all" if task.signature.specialization == "fast" else "common"
        compiled = compile_kernel(kernel, task.signature, task.targets, texts=texts, store=stages)
    except TilewrightError as error:
        # Text, because exceptions with more than one argument do not survive the way back.
        return BuildReport(task.source_key, 0.0, stages.stored, f"{type(error).__name__}: {error}")
    entry = BuiltEntry(
        task.source_key,
        compiled.abi,
        compiled.ptx,
        tuple(compiled.cubins.values()),
        _cold_seconds(task, compiled, max(0.0, processor_seconds() - start)),
    )
    StageCache(task.cache, "entries").put(_record_key(task), _pack_record(entry))
    return BuildReport(task.source_key, entry.seconds, stages.stored)


def build_elsewhere(task: BuildTask) -> tuple[BuildReport, bytes]:
    """Build one entry on a machine that shares no cache with the one that asks.

    Returns its record too, empty when it did not compile. The record carries the key that this
    machine's compiler gives it, so that `keep_record` tells when the two have different compilers.
    """
    own = replace(task, cache=default_cache())
    report = build_entry(own)
    if report.error:
        return report, b""
    record = StageCache(own.cache, "entries").get(_record_key(own))
    assert record is not None, "an entry that was just built"
    return report, _record_key(own).encode() + record


def keep_record(task: BuildTask, record: bytes) -> None:
    """Put what `build_elsewhere` returned into this machine's cache.

    Raises ReleaseError if another compiler made it.
    """
    key = _record_key(task).encode()
    if not record.startswith(key):
        msg = (
            f"a worker built {task.reference} with another compiler or other tools than those "
            "here; install the same tilewright on every worker"
        )
        raise ReleaseError(msg)
    StageCache(task.cache, "entries").put(key.decode(), record[len(key) :])


def copy_entry(task: BuildTask, *, source: Path, destination: Path) -> bool:
    """Copy an entry's record from one cache folder to another; whether it was there."""
    record = StageCache(source, "entries").get(_record_key(task))
    if record is None:
        return False
    StageCache(destination, "entries").put(_record_key(task), record)
    return True


def find_entry(task: BuildTask) -> BuiltEntry | None:
    """Return the entry from the cache, or None when it has to be built."""
    record = StageCache(task.cache, "entries").get(_record_key(task))
    return None if record is None else _unpack_record(record, task.source_key)


def entry_digests(entry: BuiltEntry) -> dict[str, str]:
    """Return the sha256 of each blob by its key."""
    blobs = {cubin.key: cubin.data for cubin in entry.cubins}
    blobs["ptx"] = entry.ptx.encode()
    return {name: hashlib.sha256(blob).hexdigest() for name, blob in blobs.items()}


def _require_same_kernel(task: BuildTask, kernel: Kernel) -> None:
    if source_key(kernel.digest, task.signature) != task.source_key:
        msg = (
            f"{task.reference} reads differently in the worker that should build it: its sources "
            "changed during the run, or the worker is a machine with others"
        )
        raise ReleaseError(msg)


def _cold_seconds(task: BuildTask, compiled: CompiledKernel, seconds: float) -> float:
    """Return what the entry takes with empty caches: `seconds`, or what it took when it did.

    Otherwise the time budget would hold for whoever has a warm cache, and for nobody else.
    """
    costs = StageCache(task.cache, "core-seconds")
    key = hashlib.sha256(f"{task.targets} {compiled.ptx}".encode()).hexdigest()
    known = costs.get(key)
    if known is not None and any(phase.is_cached for phase in compiled.phases):
        return max(seconds, float(known))
    costs.put(key, repr(seconds).encode())
    return seconds


def _record_key(task: BuildTask) -> str:
    keys: Sequence[str] = [build_key(task.source_key, target) for target in (*task.targets, None)]
    return hashlib.sha256("\n".join((_RECORD_SCHEMA, *keys)).encode()).hexdigest()


def _pack_record(entry: BuiltEntry) -> bytes:
    ptx = entry.ptx.encode()
    head = {
        "source_key": entry.source_key,
        "abi": entry.abi.to_json(),
        "seconds": entry.seconds,
        "ptx": len(ptx),
        "cubins": [
            {
                "target": str(cubin.target),
                "abi": None if cubin.abi is None else cubin.abi.to_json(),
                "size": len(cubin.data),
                "entry": cubin.entry,
                "registers": cubin.registers,
                "spill_bytes": cubin.spill_bytes,
                "stack_bytes": cubin.stack_bytes,
                "static_shared_bytes": cubin.static_shared_bytes,
                "warnings": list(cubin.warnings),
                "waits": cubin.waits,
            }
            for cubin in entry.cubins
        ],
    }
    return b"".join(
        (json.dumps(head).encode(), b"\n", ptx, *(cubin.data for cubin in entry.cubins))
    )


def _unpack_record(record: bytes, source_key: str) -> BuiltEntry | None:
    """Return the entry of a record; None if it is another's, which was copied to this place."""
    line, _, payload = record.partition(b"\n")
    head = json.loads(line)
    if head["source_key"] != source_key:
        logger.warning("the build cache has another entry's record for %s; built again", source_key)
        return None
    position = head["ptx"]
    cubins = []
    for fields in head["cubins"]:
        size, target = fields.pop("size"), Target.parse(fields.pop("target"))
        fields["warnings"] = tuple(fields["warnings"])
        if fields["abi"] is not None:
            fields["abi"] = LaunchAbi.from_json(fields["abi"])
        cubins.append(Cubin(data=payload[position : position + size], target=target, **fields))
        position += size
    return BuiltEntry(
        source_key,
        LaunchAbi.from_json(head["abi"]),
        payload[: head["ptx"]].decode(),
        tuple(cubins),
        head["seconds"],
    )
