"""`tilewright explain K`: which binary each signature of a kernel gets on a GPU, and why.

Needs neither GPU nor driver: the decision is a pure function, and `--gpu` and `--driver` imagine
the rest.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.abi.target import ComputeCapability
from tilewright.errors import ArgumentError, NoDriverError

if TYPE_CHECKING:
    from tilewright.abi.manifest import Entry
    from tilewright.language.kernel import Kernel
    from tilewright.runtime.device import DeviceFacts
    from tilewright.runtime.resolve import Decision

# What is shown when this machine has no GPU and none was named: one of each kind that the wheel
# serves.
_GPUS = ("8.0", "8.6", "9.0", "10.0", "10.3", "12.0")
_ASSUMED_DRIVER = 13000


@dataclass(frozen=True, slots=True)
class _Subject:
    """A kernel with its bundled entries; `note` says why there are none."""

    name: str
    entries: dict[str, Entry]
    note: str = ""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `explain` to the command line."""
    parser = commands.add_parser(
        "explain",
        help="show which binary a kernel gets on a GPU, and why",
        description="Show, for each bundled signature of a kernel, the candidates in the order in "
        "which they are tried, and the reason for every acceptance and refusal.",
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
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions; returns 8 when the only GPU has no candidate for a signature, else 0."""
    from tilewright.errors import ResolveError
    from tilewright.runtime.sources import decide_key

    devices = _devices(arguments.gpu, arguments.driver)
    subjects = _subjects(arguments.kernel)
    decisions = [
        decide_key(subject.name, entry.signature, key, facts=facts)
        for subject in subjects
        for key, entry in subject.entries.items()
        for facts in devices
    ]
    if arguments.json:
        notes = {subject.name: subject.note for subject in subjects if subject.note}
        print(json.dumps({"notes": notes, "decisions": [_to_json(d) for d in decisions]}, indent=2))
    else:
        _print(subjects, decisions, is_full=len(devices) == 1)
    is_unserved = any(not decision.candidates for decision in decisions)
    return ResolveError.exit_code if is_unserved and len(devices) == 1 else 0


def _devices(gpu: str | None, driver: str | None) -> list[DeviceFacts]:
    from tilewright.runtime import device

    version = None if driver is None else _parse_driver(driver)
    if gpu is None and version is None:
        try:
            return [device.device(0).facts]
        except NoDriverError:
            pass
    if version is None:
        version = _ASSUMED_DRIVER
    capabilities = [ComputeCapability.parse(text) for text in (_GPUS if gpu is None else (gpu,))]
    return [device.imagined(each, driver_version=version) for each in capabilities]


def _parse_driver(text: str) -> int:
    major, dot, minor = text.partition(".")
    if not major.isdigit() or (dot and not minor.isdigit()) or int(major) < 11:
        msg = f"--driver {text!r} is not a CUDA version such as 12.4 (`nvidia-smi` shows it)"
        raise ArgumentError(msg)
    return int(major) * 1000 + int(minor or 0) * 10


def _subjects(text: str) -> list[_Subject]:
    from tilewright.runtime import store

    module_name, colon, name = text.rpartition(":")
    if colon:
        kernel = _load_kernel(module_name, name)
        entries = store.entries_of(kernel)
        note = "" if entries else _why_no_entries(kernel)
        return [_Subject(kernel.qualified_name, entries, note)]
    found: dict[str, dict[str, Entry]] = {}
    for bundle in store.bundles():
        for key, entry in bundle.manifest.entries.items():
            if text in (entry.kernel, entry.kernel.rpartition(".")[2]):
                found.setdefault(entry.kernel, {}).setdefault(key, entry)
    if not found:
        known = sorted({name for bundle in store.bundles() for name in bundle.manifest.kernels})
        msg = f"no bundled kernel is called {text!r}; bundled are: {', '.join(known) or 'none'}"
        raise ArgumentError(msg)
    return [
        _Subject(kernel, dict(sorted(entries.items(), key=lambda item: item[1].signature)))
        for kernel, entries in sorted(found.items())
    ]


def _why_no_entries(kernel: Kernel) -> str:
    from tilewright.runtime import store

    records = [bundle.manifest.kernels.get(kernel.qualified_name) for bundle in store.bundles()]
    if any(record is not None for record in records):
        return (
            "its source differs from the bundled one, so no bundled binary is used; "
            "`tilewright dev why` names the difference"
        )
    return "it is in no bundle; a launch compiles it, or needs TILEWRIGHT_BUNDLE_PATH"


def _load_kernel(module_name: str, name: str) -> Kernel:
    from tilewright.language.kernel import Kernel

    path = Path(module_name)
    if path.suffix == ".py":
        if not path.is_file():
            msg = f"there is no file {module_name!r}"
            raise ArgumentError(msg)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # kernels look up their globals through it
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            msg = f"there is no module {module_name!r}: {error}"
            raise ArgumentError(msg) from error
    kernel = getattr(module, name, None)
    if not isinstance(kernel, Kernel):
        known = sorted(key for key, value in vars(module).items() if isinstance(value, Kernel))
        msg = f"{module_name} has no kernel {name!r}; it has: {', '.join(known) or 'none'}"
        raise ArgumentError(msg)
    return kernel


def _to_json(decision: Decision) -> dict[str, Any]:
    return {
        "kernel": decision.kernel,
        "signature": decision.signature,
        "source_key": decision.source_key,
        "gpu": str(decision.device.capability),
        "driver": decision.device.driver_version,
        "candidates": [{"origin": c.origin, "target": c.target} for c in decision.candidates],
        "trace": [
            {"candidate": r.candidate, "accepted": r.is_accepted, "reason": r.text}
            for r in decision.trace
        ],
    }


def _print(subjects: list[_Subject], decisions: list[Decision], *, is_full: bool) -> None:
    from tilewright.runtime.device import format_version

    for subject in subjects:
        print(subject.name + (f": {subject.note}" if subject.note else ""))
        signature = ""
        for decision in decisions:
            if decision.kernel != subject.name:
                continue
            if decision.signature != signature:
                signature = decision.signature
                print(f"\n  {signature}")
            gpu = decision.device.capability
            chosen = ", then ".join(map(str, decision.candidates)) or "nothing can run here"
            driver = format_version(decision.device.driver_version)
            print(f"    {gpu} (driver {driver}): {chosen}")
            for reason in decision.trace if is_full else ():
                print(f"      {reason}")
