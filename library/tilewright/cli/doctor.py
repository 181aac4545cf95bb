"""`tilewright doctor`: what is here, what is missing, and whether every file is intact."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from tilewright import __version__
from tilewright.errors import DriverError, FormatError, ResolveError, TilewrightError
from tilewright.lazy_dataclass import dataclass

_INSTALL_COMPILER = "`pip install 'tilewright[compiler]'` installs one"
# The driver's message is written for a launch; here the reader is already where it points.
_POINTER_HERE = ", `tilewright doctor` tells more"


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report: lines of facts, and what is wrong."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor` to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="check driver, GPUs, compiler, cache and every bundled binary",
        description="Check driver, GPUs, compiler, cache and the sha256 of every bundled binary. "
        "Exit code: 0 when kernels can run here (also in the interpreter alone), 6 when a file is "
        "damaged, 7 when a driver is installed and does not work, 8 when there is neither a bundle "
        "nor a compiler.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the report and return the exit code."""
    sections = [_installation(), _settings(), _driver(), _compiler(), _cache(), *_bundles()]
    code = _exit_code(sections)
    if arguments.json:
        report = {s.name: {**s.facts, "faults": list(s.faults)} for s in sections}
        print(json.dumps({**report, "exit_code": code}, indent=2))
    else:
        for section in sections:
            _print(section)
        print("everything is in order" if code == 0 else f"there are faults (exit code {code})")
    return code


def _exit_code(sections: list[Section]) -> int:
    faulty = {section.name.partition(" ")[0] for section in sections if section.faults}
    if faulty & {"cache", "bundle"}:
        return FormatError.exit_code
    if "driver" in faulty:
        return DriverError.exit_code
    return ResolveError.exit_code if "installation" in faulty else 0


def _installation() -> Section:
    from tilewright.runtime import jit, store

    facts = {
        "tilewright": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    has_nothing = not store.bundles() and jit.why_unavailable() is not None
    faults = (
        (
            "there is neither a bundle nor a compiler: no kernel can run on a GPU; "
            + _INSTALL_COMPILER,
        )
        if has_nothing
        else ()
    )
    return Section("installation", facts, faults)


def _settings() -> Section:
    from tilewright import settings

    return Section("settings", settings.spelled(settings.settings()))


def _driver() -> Section:
    from tilewright.errors import NoDriverError
    from tilewright.runtime import device, driver

    try:
        facts: dict[str, Any] = {
            "cuda": device.format_version(device.driver_version()),
            "cuda.bindings": driver.bindings_version(),
        }
        for index in range(device.count()):
            found = device.device(index)
            free, total = driver.memory_info(index)
            facts[f"device {index}"] = (
                f"{driver.device_name(index)}, compute capability {found.facts.capability}, "
                f"{found.multiprocessors} multiprocessors, {free >> 20} of {total >> 20} MiB free, "
                f"{found.facts.shared_bytes} bytes of shared memory per thread block"
            )
    except NoDriverError as error:
        # No driver at all is a machine for the interpreter; one that does not start is a fault.
        is_absent = error.call == "dlopen" or error.code == 100
        text = str(error).replace(_POINTER_HERE, "")
        return Section("driver", {"state": text} if is_absent else {}, () if is_absent else (text,))
    except DriverError as error:
        return Section("driver", {}, (str(error),))
    return Section("driver", facts)


def _compiler() -> Section:
    from tilewright.runtime import jit

    reason = jit.why_unavailable()
    targets = ", ".join(map(str, jit.TARGETS))
    state = f"{reason}; {_INSTALL_COMPILER}" if reason else f"installed; makes cubins for {targets}"
    return Section("compiler", {"state": state})


def _cache() -> Section:
    from tilewright.runtime import cache, cache_file

    users = cache.user_cache()
    folder = users.folder()
    files = users.files()
    facts: dict[str, Any] = {
        "folder": str(folder) if folder else "none yet; made when a kernel is first compiled",
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }
    facts |= {f"refused {path}": reason for path, reason in users.refusals()}
    faults = []
    for path in files:
        try:
            cache_file.read_cached(path)
        except (FormatError, OSError) as error:
            faults.append(str(error))
    return Section("cache", facts, tuple(faults))


def _bundles() -> Iterator[Section]:
    from tilewright.runtime import jit, store

    for bundle in store.every_bundle():
        faults = []
        facts: dict[str, Any] = {}
        try:
            manifest = bundle.manifest
            facts |= {"version": manifest.version, "kernels": len(manifest.kernels)}
            facts |= {"entries": len(manifest.entries)}
            checked: set[str] = set()
            targets: dict[str, int] = {}
            for key in manifest.entries:
                for name, blob in manifest.entries[key].blobs.items():
                    targets[name] = targets.get(name, 0) + 1
                    if blob.sha256 in checked:
                        continue
                    checked.add(blob.sha256)
                    try:
                        bundle.read(blob)
                    except FormatError as error:
                        faults.append(f"{key} {name}: {error}")
            facts |= {"blobs checked": len(checked)}
            facts |= {f"blobs for {name}": count for name, count in sorted(targets.items())}
        except TilewrightError as error:
            faults.append(str(error))
        yield Section(f"bundle {bundle.folder}", facts, tuple(faults))
    if not store.known_bundles():
        state = "no bundle is installed"
        if jit.why_unavailable() is None:
            state += ": every kernel is compiled when used"
        yield Section("bundle", {"state": state})


def _print(section: Section) -> None:
    print(section.name)
    for name, value in section.facts.items():
        print(f"  {name} = {value}" if section.name == "settings" else f"  {name}: {value}")
    for fault in section.faults:
        print(f"  FAULT: {fault}")
