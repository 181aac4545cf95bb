"""`tilewright tune compile`: points become a folder of candidates; needs the compiler and no GPU.

Each operation is planned with each candidate as on the target, and what it would launch is written
down. These launches are built like the bundle's entries, by worker processes and with the same
caches, so a run that was killed goes on where it stopped. A candidate that does not compile is left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

from tilewright import __version__
from tilewright.abi.keys import source_key
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import ComputeCapability, Target
from tilewright.errors import ArgumentError, LaunchError
from tilewright.language.kernel import Kernel
from tilewright.runtime import jit
from tilewright.tensor.launches import forget_plans
from tilewright.tensor.tuned import trying
from tilewright_release.build_entry import BuildTask, find_entry
from tilewright_release.packs import pack_cubins
from tilewright_release.samples.sample import aligned, always
from tilewright_release.signatures import DeclaredEntry
from tilewright_release.targets import TargetTable, read_targets
from tilewright_release.tuning.candidates import Candidate, candidates_of, kernel_name
from tilewright_release.tuning.plan import FILE_NAME, Plan, PlannedPoint
from tilewright_release.tuning.points import AttentionPoint, ProductPoint
from tilewright_release.validated import Validations
from tilewright_release.workers import build_all

_HOPPER = ComputeCapability(9, 0)
_LAUNCHES = "tilewright.tensor.{}_launches.{}"
_FAMILIES = ("matmul", "attention")

Launched = tuple[Kernel, KernelSignature]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A folder's plan, how many binaries it has, and why candidates were left out."""

    plan: Plan
    entries: int
    refused: Mapping[str, str]


def compile_candidates(
    points: Iterable[ProductPoint | AttentionPoint],
    *,
    target: Target,
    targets: Path,
    folder: Path,
    cache: Path,
    jobs: int,
    declared_only: bool,
    commit: str,
    stream: TextIO,
) -> Compiled:
    """Build what the candidates of the points launch, and write the folder.

    `targets` is the file with the targets' toolchains and drivers. With `declared_only` nothing is
    built: those that bundles carry are found in them.
    """
    launched = plan_points(points, target=target, declared_only=declared_only)
    entries: dict[str, DeclaredEntry] = {}
    for candidates in launched.values() if not declared_only else ():
        for launches in candidates.values():
            for kernel, signature in launches:
                key = source_key(kernel.digest, signature)
                reference = f"{kernel.module}:{kernel.name}"
                entries[key] = DeclaredEntry("tuning", reference, kernel, signature)
    errors = _build(entries, target=target, cache=cache, jobs=jobs, stream=stream)
    refused = {
        str(choice): errors[key]
        for candidates in launched.values()
        for (choice, _), launches in candidates.items()
        for key in _keys(launches)
        if key in errors
    }
    plan = Plan(
        str(target),
        __version__,
        commit,
        tuple(
            PlannedPoint(point, tuple(c for c in candidates if str(c.choice) not in refused))
            for point, candidates in launched.items()
        ),
    )
    kept = {key: entry for key, entry in entries.items() if key not in errors}
    folder.mkdir(parents=True, exist_ok=True)
    if kept:
        table = read_targets(targets)
        _pack(kept, target=target, targets=table, folder=folder, cache=cache, stream=stream)
    (folder / FILE_NAME).write_text(plan.to_json(), encoding="utf-8")
    return Compiled(plan, len(kept), refused)


def plan_points(
    points: Iterable[ProductPoint | AttentionPoint], *, target: Target, declared_only: bool
) -> dict[ProductPoint | AttentionPoint, dict[Candidate, list[Launched]]]:
    """Return for each point the candidates that can serve it, with what they launch."""
    by_blocks = target.may_run_on(_HOPPER) and target.suffix == "a"
    found = {}
    with _as_on(by_blocks=by_blocks) as launches:
        for point in points:
            every = candidates_of(point, by_blocks=by_blocks, declared_only=declared_only)
            found[point] = dict(_serving(point, every, launches))
    return found


def _serving(
    point: ProductPoint | AttentionPoint, candidates: Sequence[Candidate], launches: list[Launched]
) -> Iterator[tuple[Candidate, list[Launched]]]:
    seen = set()
    arrays, out = _placeholders(point)
    for candidate in candidates:
        choice, is_declared = candidate
        launches.clear()
        # Copies cost time, so of choices that differ in them the first that serves is enough.
        if choice._replace(copied=()) in seen:
            continue
        try:
            with _declared(is_declared), trying(point.family, choice):
                point.call(arrays, out)
        except (LaunchError, ArgumentError):
            continue
        if kernel_name(choice) in {kernel.name for kernel, _ in launches}:
            seen.add(choice._replace(copied=()))
            yield candidate, list(launches)


def _placeholders(point: ProductPoint | AttentionPoint) -> tuple[dict[str, Any], Any]:
    """Return host arrays of a point's geometry, of which nothing is touched."""
    arrays = {}
    for name, shape, dtype, is_turned in (*point.operands, point.result):
        count = 1
        for extent in shape:
            count *= extent
        array = aligned(count, dtype).reshape(shape)
        arrays[name] = array.swapaxes(-1, -2) if is_turned else array
    return arrays, arrays.pop("out")


@contextmanager
def _as_on(*, by_blocks: bool) -> Iterator[list[Launched]]:
    """Plan in the block as for a GPU, and put what is launched into the list."""
    launches: list[Launched] = []

    def take(kernel: Kernel, signature: KernelSignature, **_options: object) -> None:
        launches.append((kernel, signature))

    with ExitStack() as stack:
        stack.callback(forget_plans)
        stack.enter_context(patch.object(jit, "interpret_kernel", take))
        for family in _FAMILIES:
            name = _LAUNCHES.format(family, "copies_blocks")
            stack.enter_context(patch(name, always(by_blocks)))
        # The order of heads, which the number of processors decides, is an argument of a launch.
        name = _LAUNCHES.format("attention", "processors")
        stack.enter_context(patch(name, always(1)))
        yield launches


@contextmanager
def _declared(is_declared: bool) -> Iterator[None]:
    """Let choices serve that bundles carry, or any choice."""
    with ExitStack() as stack:
        for family in (*_FAMILIES, "block"):
            name = _LAUNCHES.format(family, "why_no_binary")
            stack.enter_context(patch(name, always("not declared" if is_declared else "")))
        yield


def _keys(launches: Iterable[Launched]) -> list[str]:
    return [source_key(kernel.digest, signature) for kernel, signature in launches]


def _build(
    entries: Mapping[str, DeclaredEntry],
    *,
    target: Target,
    cache: Path,
    jobs: int,
    stream: TextIO,
) -> dict[str, str]:
    """Build what is not in the cache; return why keys did not compile."""
    tasks = [_task(entry, target, cache) for entry in entries.values()]
    missing = [task for task in tasks if find_entry(task) is None]
    reports = build_all(missing, jobs=jobs, scheduler=None, stream=stream)
    return {report.source_key: report.error for report in reports if report.error}


def _task(entry: DeclaredEntry, target: Target, cache: Path) -> BuildTask:
    return BuildTask(
        Path.cwd(), cache, entry.reference, entry.source_key, entry.signature, (target,)
    )


def _pack(
    entries: Mapping[str, DeclaredEntry],
    *,
    target: Target,
    targets: TargetTable,
    folder: Path,
    cache: Path,
    stream: TextIO,
) -> None:
    built = {}
    for key, entry in entries.items():
        built[key] = find_entry(_task(entry, target, cache))
        assert built[key] is not None, "an entry that was just built"
    rows = tuple(row for row in targets.rows if row.target == target)
    pairs = [(entries[key], one) for key, one in built.items() if one is not None]
    pack_cubins(
        {key: one.cubins for key, one in built.items() if one is not None},
        entries=pairs,
        targets=TargetTable(rows, targets.floor_min_driver),
        folder=folder,
        cache=cache,
        version=__version__,
        validated=Validations(),
        stream=stream,
    )
