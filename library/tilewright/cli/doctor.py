"""`tilewright doctor`: what is here, what is missing, and whether every file is intact."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from tilewright import __version__
from tilewright.errors import DriverError, FormatError, ResolveError
from tilewright.lazy_dataclass import dataclass

_INSTALL_COMPILER = "`pip install 'tilewright[compiler]'` installs one"
_SCHEMA = 1
_SHOWN_FILES = 5
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
        "damaged or open to strangers, 7 when a driver is installed and does not work, 8 when "
        "there is neither a bundle nor a compiler, or a GPU here can run nothing of some family; "
        "of several the first of these.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the report and return the exit code."""
    sections = examine()
    code = exit_code(sections)
    if arguments.json:
        report = {s.name: {**s.facts, "faults": list(s.faults)} for s in sections}
        print(json.dumps({"schema": _SCHEMA, **report, "exit_code": code}, indent=2))
    else:
        for section in sections:
            _print(section)
        print("everything is in order" if code == 0 else f"there are faults (exit code {code})")
    return code


def examine() -> list[Section]:
    """Look at everything and return the report."""
    bundles = [*_bundles()]
    return [
        _installation(),
        _settings(),
        _driver(),
        _compiler(),
        _cache(),
        *bundles,
        _families(),
    ]


def exit_code(sections: list[Section]) -> int:
    """Return what scripts go by."""
    faulty = {section.name.partition(" ")[0] for section in sections if section.faults}
    if faulty & {"cache", "bundle"}:
        return FormatError.exit_code
    if "driver" in faulty:
        return DriverError.exit_code
    return ResolveError.exit_code if faulty & {"installation", "families"} else 0


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
    wrong = None if reason else jit.why_unusable()
    if reason:
        state = f"{reason}; {_INSTALL_COMPILER}"
    elif wrong:
        state = f"installed, and cannot be used: {wrong}"
    else:
        state = f"installed; makes cubins for {', '.join(map(str, jit.TARGETS))}"
    return Section("compiler", {"state": state, **jit.tool_versions()})


def _cache() -> Section:
    from tilewright.runtime import cache, cache_file

    users = cache.user_cache()
    folder = users.folder()
    files = users.files()
    faults = []
    size = 0
    for path in files:
        try:
            size += path.lstat().st_size
            cache_file.read_cached(path)
        except (FormatError, OSError) as error:
            if not path.exists() and not path.is_symlink():
                continue  # another process trims the cache
            faults.append(str(error))
    facts: dict[str, Any] = {
        "folder": str(folder) if folder else "none yet; made when a kernel is first compiled",
        "files": len(files),
        "bytes": size,
        "limit": cache.MAX_BYTES,
        "writable": "yes" if users.is_writable() else "no: what is compiled lives in memory",
    }
    strangers = users.strangers()
    if strangers:
        facts["files of nobody"] = ", ".join(map(str, strangers[:_SHOWN_FILES]))
    facts |= {f"refused {path}": reason for path, reason in users.refusals()}
    return Section("cache", facts, tuple(faults))


def _bundles() -> Iterator[Section]:
    from tilewright.cli.bundle_check import check_bundle, check_modes
    from tilewright.runtime import jit, store

    for bundle in store.every_bundle():
        name = f"bundle {bundle.folder}"
        try:
            manifest = bundle.manifest
        except FormatError as error:
            yield Section(name, {}, (str(error), *check_modes(bundle.folder)))
            continue
        report = check_bundle(bundle.folder, manifest)
        yield Section(name, dict(report.facts), report.faults)
    if not store.known_bundles():
        state = "no bundle is installed"
        if jit.why_unavailable() is None:
            state += ": every kernel is compiled when used"
        yield Section("bundle", {"state": state})


def _families() -> Section:
    """Tell what each family would use on each GPU here; one that can use nothing is a fault."""
    from tilewright.cli.families import NOTHING, devices_here, families

    try:
        devices = devices_here()
    except DriverError:  # told of in its own section
        devices = ()
    if not devices:
        state = "no GPU here; `tilewright explain K --gpu 9.0` tells what a kernel would use on one"
        return Section("families", {"state": state})
    found = families(devices)
    faults = [
        f"family {family} has nothing that runs on {name}: {'; '.join(summary['why'])}"
        for family, devices_ in found.items()
        for name, summary in devices_.items()
        if set(summary["uses"]) == {NOTHING}
    ]
    return Section("families", dict(found), tuple(faults))


def _family_lines(devices: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, summary in devices.items():
        uses = ", ".join(f"{use} for {count}" for use, count in summary["uses"].items())
        yield f"{name}: {uses} of {summary['signatures']} signatures"
        yield from (f"  {reason}" for reason in summary["why"])


def _print(section: Section) -> None:
    print(section.name)
    for name, value in section.facts.items():
        if isinstance(value, dict):
            print(f"  {name}")
            for line in _family_lines(value):
                print(f"    {line}")
        else:
            print(f"  {name} = {value}" if section.name == "settings" else f"  {name}: {value}")
    for fault in section.faults:
        print(f"  FAULT: {fault}")
