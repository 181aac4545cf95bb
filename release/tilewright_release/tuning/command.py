"""`tilewright tune`: compile candidates here, time them there, keep the fastest for each shape."""

from __future__ import annotations

import argparse
import datetime
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright import __version__
from tilewright.abi.manifest import FILE_NAME as MANIFEST
from tilewright.abi.target import Target
from tilewright.abi.tuned import Line, TunedTable
from tilewright.errors import ReleaseError, UsageError
from tilewright.runtime import choose, driver, jit, store
from tilewright.runtime.device import Device
from tilewright.runtime.device import device as device_of
from tilewright.settings import settings
from tilewright.tensor.tuned import forget_tables
from tilewright_release.checkout import Checkout
from tilewright_release.provenance import commit_of
from tilewright_release.stage_cache import default_cache
from tilewright_release.tuning.compilation import Compiled, compile_candidates
from tilewright_release.tuning.device_bench import DeviceBench
from tilewright_release.tuning.plan import Plan, read_plan
from tilewright_release.tuning.points import (
    FAMILIES,
    AttentionPoint,
    ProductPoint,
    parse_point,
    usual_points,
)
from tilewright_release.tuning.tables import write_to_cache, write_to_folder
from tilewright_release.tuning.timing import Bench, Journal, Timed, time_plan

JOURNAL = "journal.jsonl"
_SHOWN = 10


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; typed errors are the caller's to tell."""
    parser = argparse.ArgumentParser(prog="tilewright tune", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_compile(commands)
    _add_time(commands)
    _add_program(commands)
    parsed = parser.parse_args(words)
    code: int = parsed.run(parsed)
    return code


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="compile and time on this machine, for its user",
        description="Compile candidates and time them on this machine's GPU; the choice goes to "
        "the user's cache, where launches look first. Without the compiler, the choices that the "
        "installed bundle carries are timed.",
    )
    _add_points(parser)
    _add_timing(parser)
    parser.set_defaults(run=_run)


def _add_compile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compile",
        help="make a folder of candidates; needs no GPU",
        description="Compile candidates into a folder, for `tilewright tune time`.",
    )
    _add_points(parser)
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    parser.add_argument(
        "--target", type=Target.parse, default=Target(9, 0, "a"), help="default sm_90a"
    )
    parser.set_defaults(run=_compile)


def _add_time(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "time",
        help="time a folder of candidates on this machine's GPU",
        description="Time the candidates of a folder that `tilewright tune compile` made. Run it "
        "again after an interruption: it goes on where it stopped.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    _add_timing(parser)
    parser.set_defaults(run=_time)


def _add_program(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "program",
        help="run a Python program and tune its own kernels",
        description="Run a Python program. Each launch of a kernel with @tl.autotune whose key and "
        "element types are in no table of this GPU is timed first, with all its configurations.",
    )
    parser.add_argument("program", type=Path, metavar="FILE")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    parser.set_defaults(run=_program)


def _add_points(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "families", nargs="*", metavar="FAMILY", help=f"{' or '.join(FAMILIES)}; default: all"
    )
    parser.add_argument(
        "--point",
        action="append",
        default=[],
        help="tune this instead, such as 'matmul bf16 4096x4096x4096 kk'; may be repeated",
    )
    parser.add_argument(
        "--declared", action="store_true", help="try only what bundles carry, and compile nothing"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")


def _add_timing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", type=int, default=0, help="ordinal of the GPU, 0 by default")
    parser.add_argument(
        "--seconds", type=float, help="begin no point after so long; run again to go on"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="write tables for a bundle below this folder (prebuilt/tuned), of choices that "
        "bundles carry, instead of the user's cache",
    )


def _run(arguments: argparse.Namespace) -> int:
    device = device_of(arguments.device)
    target = jit.target_for(device.facts.capability)
    folder = default_cache().parent / "tuned" / device.kind / "candidates"
    declared = arguments.declared or target is None or jit.why_unavailable() is not None
    if declared and not arguments.declared:
        print("the compiler is not there or not for this GPU: only bundled choices are timed")
    _compile_into(folder, arguments, target=target or Target(8, 0), declared_only=declared)
    return _time_folder(folder, arguments, device)


def _compile(arguments: argparse.Namespace) -> int:
    _compile_into(
        arguments.out, arguments, target=arguments.target, declared_only=arguments.declared
    )
    return 0


def _time(arguments: argparse.Namespace) -> int:
    return _time_folder(arguments.folder, arguments, device_of(arguments.device))


def _program(arguments: argparse.Namespace) -> int:
    path: Path = arguments.program
    if not path.is_file():
        msg = f"there is no file {str(path)!r}"
        raise UsageError(msg)
    words, paths = sys.argv, list(sys.path)
    sys.argv, sys.path[0:0] = [str(path), *arguments.arguments], [str(path.resolve().parent)]
    try:
        with choose.tuning_at_first_sight() as tuned:
            runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = words, paths
    for each in tuned:
        key = ", ".join(f"{name}={value}" for name, value in each.entry.key)
        print(f"tuned {each.kernel} ({key}): {each.entry.config}, {each.entry.time_us:.1f} us")
    hint = "" if tuned else ": the program launched no kernel with configurations on a GPU"
    print(f"tune: {len(tuned)} launches are tuned from now on{hint}")
    return 0


def _compile_into(
    folder: Path, arguments: argparse.Namespace, *, target: Target, declared_only: bool
) -> Compiled:
    checkout = Path(__file__).resolve().parents[3]
    compiled = compile_candidates(
        _points(arguments),
        target=target,
        targets=Checkout(checkout).targets,
        folder=folder,
        cache=default_cache(),
        jobs=arguments.jobs,
        declared_only=declared_only,
        commit=commit_of(checkout)[0] or "",
        stream=sys.stderr,
    )
    for choice, error in list(compiled.refused.items())[:_SHOWN]:
        print(f"left out {choice}: {error.partition(chr(10))[0]}")
    count = sum(len(planned.candidates) for planned in compiled.plan.points)
    print(
        f"tune: {count} candidates at {len(compiled.plan.points)} points, {compiled.entries} "
        f"binaries, {len(compiled.refused)} left out, in {folder}"
    )
    return compiled


def _points(arguments: argparse.Namespace) -> list[ProductPoint | AttentionPoint]:
    unknown = sorted(set(arguments.families) - set(FAMILIES))
    if unknown:
        msg = f"{unknown[0]!r} is no family that is tuned; those are {', '.join(FAMILIES)}"
        raise UsageError(msg)
    if arguments.point:
        return [parse_point(line) for line in arguments.point]
    return usual_points(arguments.families or FAMILIES)


def _time_folder(folder: Path, arguments: argparse.Namespace, device: Device) -> int:
    plan = read_plan(folder)
    if plan.version != __version__:
        msg = f"{folder} was made by version {plan.version}, this is {__version__}; make it again"
        raise ReleaseError(msg)
    if not Target.parse(plan.target).may_run_on(device.facts.capability):
        msg = f"{folder} is for {plan.target}, which {device.facts.capability} does not run"
        raise ReleaseError(msg)
    if (folder / MANIFEST).is_file():
        store.add_bundle(folder.resolve())
    files = time_tables(
        plan,
        DeviceBench(arguments.device),
        kind=device.kind,
        gpu=driver.device_name(arguments.device),
        driver_version=device.facts.driver_version,
        folder=arguments.out,
        seconds=arguments.seconds,
    )
    for path in files:
        print(f"tune: wrote {path}")
    return 0


def time_tables(
    plan: Plan,
    bench: Bench,
    *,
    kind: str,
    gpu: str,
    driver_version: int,
    folder: Path | None,
    seconds: float | None,
) -> list[Path]:
    """Time what is left of a plan, write the tables of what is done, and return their files.

    Tables go below `folder`, or to the user's cache. The journal stands beside them until all of
    the plan is done.
    """
    journal = Journal(_journal_path(kind, folder), of=f"{plan.digest} {kind}")
    for _ in time_plan(
        plan,
        bench,
        journal,
        declared_only=folder is not None,
        seconds=seconds,
        stream=sys.stderr,
    ):
        pass
    done = journal.done
    tables = [
        TunedTable(
            family=family,
            device=kind,
            gpu=gpu,
            driver=driver_version,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            version=plan.version,
            commit=plan.commit,
            lines=lines,
        )
        for family in FAMILIES
        if (lines := _lines(done, family))
    ]
    files = [write_to_folder(t, folder) if folder else write_to_cache(t) for t in tables]
    forget_tables()
    print(_summary(plan, done))
    if len(done) == len(plan.points):
        journal.path.unlink()
    return files


def _journal_path(kind: str, folder: Path | None) -> Path:
    if folder is not None:
        return folder / kind / JOURNAL
    folders = settings().cache_candidates
    if not folders:
        msg = "TILEWRIGHT_CACHE_DIR=off leaves no place for a table; give a folder with --out"
        raise UsageError(msg)
    return folders[0] / "tuned" / kind / JOURNAL


def _lines(done: dict[str, Timed], family: str) -> tuple[Line, ...]:
    return tuple(
        timed.line
        for point, timed in done.items()
        if timed.line is not None and point.partition(" ")[0] == family
    )


def _summary(plan: Plan, done: dict[str, Timed]) -> str:
    gains = [timed.line.model_us / timed.line.time_us for timed in done.values() if timed.line]
    refused = {name: why for timed in done.values() for name, why in timed.refused.items()}
    lines = [f"refused {name}: {why}" for name, why in list(refused.items())[:_SHOWN]]
    faster = sum(gain > 1.02 for gain in gains)
    lines.append(
        f"tune: {len(done)} of {len(plan.points)} points are done; at {faster} of them the choice "
        f"is faster than the usual by 2 % or more, {max(gains, default=1.0):.2f} times at most"
    )
    if len(done) < len(plan.points):
        lines.append("tune: run it again to go on")
    return "\n".join(lines)
