"""`tilewright explain K`: which binary each signature of a kernel gets on a GPU, and why.

Needs neither GPU nor driver: the decision is a pure function, and `--gpu` and `--driver` imagine
the rest. Signatures that share a decision are told together, as a kernel has dozens of them, with
what their binaries need: driver, shared memory, and on which GPUs they were seen to be right.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tilewright.abi.target import ComputeCapability
from tilewright.cli.subjects import Subject, find_subjects
from tilewright.errors import NoDriverError, UnsupportedTargetError, UsageError
from tilewright.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from tilewright.language.kernel import Kernel
    from tilewright.runtime.device import DeviceFacts
    from tilewright.runtime.resolve import Decision

# What is shown when this machine has no GPU and none was named: one of each kind that the wheel
# serves.
_GPUS = ("8.0", "8.6", "9.0", "10.0", "10.3", "12.0")
_ASSUMED_DRIVER = 13000
_OLDEST_DRIVER = 11


@dataclass(frozen=True, slots=True)
class _Scene:
    """The devices to decide for; `assumed_driver` is set when it is neither here nor given."""

    devices: tuple[DeviceFacts, ...]
    assumed_driver: int | None


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `explain` to the command line."""
    parser = commands.add_parser(
        "explain",
        help="show which binary a kernel gets on a GPU, and why",
        description="Show which binary the bundled signatures of a kernel get on each GPU. For one "
        "GPU (this machine's, or --gpu) also all candidates in the order in which they are tried, "
        "and the reason for every acceptance and refusal.",
    )
    parser.add_argument(
        "kernel",
        metavar="K",
        help="module:kernel, file.py:kernel, or the name of a bundled kernel such as softmax",
    )
    parser.add_argument(
        "--gpu",
        metavar="CC",
        help="compute capability such as 9.0; default: device 0, or one of each",
    )
    parser.add_argument(
        "--driver",
        metavar="V",
        help="CUDA version of the driver such as 12.4; default: the one here",
    )
    parser.add_argument("--all", action="store_true", help="list every signature")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions; returns 8 when the only GPU has no candidate for a signature, else 0."""
    from tilewright.cli.binaries import to_json
    from tilewright.errors import ResolveError
    from tilewright.runtime.sources import decide_key

    scene = _scene(arguments.gpu, arguments.driver)
    subjects = find_subjects(arguments.kernel)
    decisions = {
        subject.name: [
            decide_key(subject.name, entry.signature, key, facts=facts)
            for key, entry in subject.entries.items()
            for facts in scene.devices
        ]
        for subject in subjects
    }
    every = [decision for found in decisions.values() for decision in found]
    if arguments.json:
        notes = {subject.name: subject.note for subject in subjects if subject.note}
        report = {
            "assumed_driver": scene.assumed_driver,
            "notes": notes,
            "decisions": [
                to_json(decision, kernel=subject.kernel)
                for subject in subjects
                for decision in decisions[subject.name]
            ],
        }
        print(json.dumps(report, indent=2))
    else:
        _print(arguments.kernel, subjects, decisions, scene, is_all=arguments.all)
    is_unserved = any(not decision.candidates for decision in every)
    return ResolveError.exit_code if is_unserved and len(scene.devices) == 1 else 0


def _scene(gpu: str | None, driver: str | None) -> _Scene:
    from tilewright.runtime import device

    version = None if driver is None else _parse_driver(driver)
    wanted = None if gpu is None else _parse_gpu(gpu)
    if wanted is None:
        try:
            facts = device.device(0).facts
        except NoDriverError:
            pass
        else:
            return _Scene((replace(facts, driver_version=version or facts.driver_version),), None)
    assumed = None
    if version is None:
        try:
            version = device.driver_version()
        except NoDriverError:
            version = assumed = _ASSUMED_DRIVER
    capabilities = (wanted,) if wanted else tuple(map(ComputeCapability.parse, _GPUS))
    devices = tuple(device.imagined(each, driver_version=version) for each in capabilities)
    return _Scene(devices, assumed)


def _parse_gpu(text: str) -> ComputeCapability:
    try:
        return ComputeCapability.parse(text)
    except UnsupportedTargetError as error:
        msg = f"--gpu: {error}"
        raise UsageError(msg) from error


def _parse_driver(text: str) -> int:
    match = re.fullmatch(r"([0-9]{2})(?:\.([0-9]))?", text)
    if match is None or int(match[1]) < _OLDEST_DRIVER:
        msg = f"--driver {text!r} is not a CUDA version such as 12.4 (`nvidia-smi` shows it)"
        raise UsageError(msg)
    return int(match[1]) * 1000 + int(match[2] or 0) * 10


def _print(
    text: str,
    subjects: Sequence[Subject],
    decisions: Mapping[str, Sequence[Decision]],
    scene: _Scene,
    *,
    is_all: bool,
) -> None:
    from tilewright.runtime.device import format_version

    if scene.assumed_driver is not None:
        print(f"assuming a driver for CUDA {format_version(scene.assumed_driver)}")
    if len(subjects) > 1:
        print(f"{len(subjects)} bundled kernels are called {text!r}; the full name tells one alone")
    has_head = scene.assumed_driver is not None or len(subjects) > 1
    for index, subject in enumerate(subjects):
        if index or has_head:
            print()
        print(subject.name + (f": {subject.note}" if subject.note else ""))
        for device in scene.devices if subject.entries else ():
            found = [each for each in decisions[subject.name] if each.device == device]
            driver = format_version(device.driver_version)
            print(f"  {device.capability} (driver {driver}): {_summary(found)}")
            if is_all or len(scene.devices) == 1:
                kernel = subject.kernel if len(scene.devices) == 1 else None
                is_alone = len(scene.devices) == 1
                _print_groups(found, kernel, is_all=is_all, has_reasons=is_alone)


def _summary(decisions: Sequence[Decision]) -> str:
    counts: dict[str, int] = {}
    for decision in decisions:
        first = str(decision.candidates[0]) if decision.candidates else "nothing can run here"
        counts[first] = counts.get(first, 0) + 1
    if len(counts) == 1:
        (first,) = counts
        return f"{first} for {_count(len(decisions), 'all ')}"
    return ", ".join(f"{name} for {count}" for name, count in counts.items()) + (
        f" of {_count(len(decisions))}"
    )


def _count(number: int, several: str = "") -> str:
    return "1 signature" if number == 1 else f"{several}{number} signatures"


def _print_groups(
    decisions: Sequence[Decision], kernel: Kernel | None, *, is_all: bool, has_reasons: bool
) -> None:
    from tilewright.cli.binaries import needs, schedule_notes, specializations

    groups: dict[tuple[object, ...], list[Decision]] = {}
    for decision in decisions:
        key = (tuple(map(str, decision.candidates)), decision.trace)
        groups.setdefault(key, []).append(decision)
    for members in groups.values():
        first = members[0]
        chosen = ", then ".join(map(str, first.candidates)) or "nothing can run here"
        print(f"    {_count(len(members))}{specializations(members)}: {chosen}")
        for reason in first.trace if has_reasons else ():
            print(f"      {reason}")
        notes = chain(needs(members), schedule_notes(members, kernel))
        for line in notes if has_reasons else ():
            print(f"      {line}")
        # One tells a group from the others; the rest is for who asks.
        if is_all or len(members) == 1:
            for decision in members:
                print(f"      {decision.signature}")
        elif len(groups) > 1:
            print(f"      such as {first.signature}")
