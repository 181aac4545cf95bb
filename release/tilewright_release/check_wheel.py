"""`tilewright dev check-wheel`: a wheel is judged before anybody installs it.

First as a file (wheel_file.py), then unpacked in a clean environment that has the run-time
dependencies and nothing else, with no driver, no PATH, no HOME (inside_wheel.py). Every check runs,
so that one run shows all that is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.errors import FormatError, ReleaseError
from tilewright_release import inside_wheel
from tilewright_release.checkout import Checkout
from tilewright_release.dev_tools import require_tools
from tilewright_release.wheel_file import WheelFile, WheelLimits, read_limits

# A driver for CUDA 13.0 knows every GPU of the table.
_DRIVER_VERSION = 13000

# What an import may not bring in, even where it is installed.
_FORBIDDEN_MODULES = ("mlir", "cuda", "torch", "tilewright_compiler", "tilewright_release", "numpy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("wheel", type=Path, nargs="?", help="the newest in dist/ by default")
    parser.add_argument(
        "--python",
        type=Path,
        help="interpreter of a clean environment with the packages of wheels/locks/run.txt; "
        "one is made by default",
    )


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Check a wheel and print a line for each check."""
    wheel = arguments.wheel or _newest_wheel(checkout)
    check_wheel(wheel, checkout, python=arguments.python)
    return 0


def check_wheel(wheel: Path, checkout: Checkout, *, python: Path | None = None) -> None:
    """Run every check on `wheel`; raises ReleaseError that lists what failed.

    Raises ToolchainError when the tools that judge it are not installed.
    """
    require_tools(("elftools", "auditwheel"), purpose="checking a wheel")
    limits = read_limits(checkout.wheel_limits)
    file = WheelFile(wheel)
    folders = [checkout.root, Path.home(), Path(tempfile.gettempdir())]
    print(f"checking {wheel.name}")
    failures = [
        *_attempt("tags", lambda: file.check_tags(limits)),
        *_attempt("size", lambda: file.check_size(limits)),
        *_attempt("RECORD", file.check_record),
        *_attempt("licences", lambda: file.check_licences(limits)),
        *_attempt("extension", lambda: file.check_extension(limits)),
        *_attempt("build paths", lambda: file.check_paths(folders)),
        *_attempt("bundle", file.check_bundle),
    ]
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        # Absolute and not resolved: the link in an environment is what makes it one.
        interpreter = (
            python.absolute() if python else _make_environment(Path(name, "environment"), checkout)
        )
        report = _report(wheel, limits, interpreter=interpreter, folder=Path(name))
    failures += [
        *_attempt("import", lambda: _check_import(report)),
        *_attempt("blobs", lambda: _check_blobs(report)),
        *_attempt("resolution", lambda: _check_resolution(report, limits)),
    ]
    if failures:
        msg = f"{wheel.name} is not fit to be released: {'; '.join(failures)}"
        raise ReleaseError(msg)


def _attempt(name: str, check: Callable[[], str]) -> list[str]:
    try:
        print(f"  ok    {name}: {check()}")
    except (ReleaseError, FormatError) as error:
        print(f"  FAIL  {name}: {error}")
        return [name]
    return []


def _make_environment(folder: Path, checkout: Checkout) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    lock = checkout.root / "wheels" / "locks" / "run.txt"
    _call([str(python), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(lock)])
    return python


def _report(wheel: Path, limits: WheelLimits, *, interpreter: Path, folder: Path) -> dict[str, Any]:
    site = folder / "site"
    install = [str(interpreter), "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    _call([*install, "--no-compile", "--target", str(site), str(wheel)])
    command = [
        str(interpreter),
        "-I",
        str(Path(inside_wheel.__file__)),
        str(site),
        " ".join(limits.resolution),
        str(_DRIVER_VERSION),
    ]
    # An empty environment: no PATH to find a compiler on, no HOME to write to.
    output = _call(command, environment={}, folder=folder)
    report: dict[str, Any] = json.loads(output)
    if not Path(report["imported_from"]).is_relative_to(site):
        msg = f"the check imported tilewright from {report['imported_from']}, not from the wheel"
        raise ReleaseError(msg)
    return report


def _call(
    command: list[str], *, environment: dict[str, str] | None = None, folder: Path | None = None
) -> str:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        msg = f"{' '.join(command[:4])} ... failed: {(done.stdout + done.stderr).strip()[-2000:]}"
        raise ReleaseError(msg)
    return done.stdout


def _check_import(report: dict[str, Any]) -> str:
    loaded = [name for name in report["modules"] if name in _FORBIDDEN_MODULES]
    if loaded or report["events"]:
        msg = (
            f"import loads {', '.join(loaded) or 'nothing it should not'} and does "
            f"{'; '.join(report['events'][:5]) or 'nothing else'}"
        )
        raise ReleaseError(msg)
    return "starts no process, opens no socket, writes no file, loads no driver and no compiler"


def _check_blobs(report: dict[str, Any]) -> str:
    damaged = report["blobs"]["damaged"]
    if damaged or not report["blobs"]["read"]:
        msg = f"{report['blobs']['read']} blobs readable, damaged: {'; '.join(damaged[:5])}"
        raise ReleaseError(msg)
    return f"{report['blobs']['read']} read by the installed library"


def _check_resolution(report: dict[str, Any], limits: WheelLimits) -> str:
    wrong = []
    for capability, expected in limits.resolution.items():
        chosen = report["resolution"][capability]
        if list(chosen) != [expected]:
            wrong.append(f"{capability} gets {chosen or 'nothing'}, not {expected}")
    if wrong:
        raise ReleaseError("; ".join(wrong))
    return ", ".join(f"{cc} {target}" for cc, target in limits.resolution.items())


def _newest_wheel(checkout: Checkout) -> Path:
    wheels = sorted((checkout.root / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        msg = f"{checkout.root / 'dist'} holds no wheel; run `tilewright dev build-wheel`"
        raise ReleaseError(msg)
    return wheels[-1]
