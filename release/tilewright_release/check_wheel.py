"""`tilewright dev check-wheel`: a wheel is judged before anybody installs it.

First as a file (wheel_file.py, wheel_extension.py, sbom.py), then unpacked in a clean environment
that has the run-time dependencies and nothing else, with no PATH and no HOME (inside_wheel.py):
imported, resolved for every GPU, and launched, on a driver without a GPU and on none. Every check
runs, so that one run shows all that is wrong. Of a wheel for another processor everything is judged
but what its launcher does: this machine's stands in for it, unless `--python` is an interpreter for
that processor, in emulation.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.errors import FormatError, ReleaseError
from tilewright_release import inside_wheel
from tilewright_release.checkout import Checkout
from tilewright_release.dev_tools import require_tools
from tilewright_release.sbom import read_components
from tilewright_release.sign import check_signature
from tilewright_release.wheel_file import WheelFile, WheelLimits, read_limits

# What an import may not bring in, even where it is installed.
_FORBIDDEN_MODULES = ("mlir", "cuda", "torch", "tilewright_compiler", "tilewright_release", "numpy")

# The GPU of the watched launch, and what must serve it.
_GPU, _SERVED_BY = "9.0", "prebuilt sm_90a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("wheel", type=Path, nargs="?", help="the newest in dist/ by default")
    parser.add_argument(
        "--python",
        type=Path,
        help="interpreter of a clean environment with the packages of wheels/locks/run.txt, or a "
        "program that runs one in emulation; one is made by default",
    )
    parser.add_argument(
        "--against", type=Path, metavar="WHEEL", help="say how much each part grew since that wheel"
    )
    parser.add_argument(
        "--key", type=Path, help="public key; the signature WHEEL.sig must be there and by it"
    )


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Check a wheel and print a line for each check."""
    wheel = arguments.wheel or _newest_wheel(checkout)
    check_wheel(wheel, checkout, python=arguments.python, key=arguments.key)
    if arguments.against is not None:
        print(growth(WheelFile(arguments.against), WheelFile(wheel)))
    return 0


def check_wheel(
    wheel: Path, checkout: Checkout, *, python: Path | None = None, key: Path | None = None
) -> None:
    """Run every check on `wheel`; raises ReleaseError that lists what failed.

    Raises ToolchainError when the tools that judge it are not installed.
    """
    tools = ("abi3info", "elftools", "auditwheel", "ziglang", *(("cryptography",) if key else ()))
    require_tools(tools, purpose="checking a wheel")
    limits = read_limits(checkout.wheel_limits)
    components = read_components(checkout.components)
    print(f"checking {wheel.name}")
    # First, and alone where it fails: what was tampered with is not to be unpacked.
    if key is not None and _attempt("signature", lambda: check_signature(wheel, key)):
        msg = f"{wheel.name} is not signed by {key}; nothing else of it was looked at"
        raise ReleaseError(msg)
    file = WheelFile(wheel)
    folders = [checkout.root, Path.home(), Path(tempfile.gettempdir()), Path(sys.base_prefix)]
    failures = [
        *_attempt("tags", lambda: file.check_tags(limits)),
        *_attempt("size", lambda: file.check_size(limits)),
        *_attempt("RECORD", file.check_record),
        *_attempt("install", lambda: file.check_install(limits)),
        *_attempt("licences", lambda: file.check_licences(limits)),
        *_attempt("extension", lambda: file.check_extension(limits)),
        *_attempt("build paths", lambda: file.check_paths(folders)),
        *_attempt("syntax", file.check_syntax),
        *_attempt("bundle", file.check_bundle),
        *_attempt("provenance", lambda: file.check_provenance(limits)),
        *_attempt("SBOM", lambda: file.check_sbom(components)),
    ]
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        # Absolute and not resolved: the link in an environment is what makes it one.
        interpreter = (
            python.absolute() if python else _make_environment(Path(name, "environment"), checkout)
        )
        inside = _Inside(wheel, limits, checkout, interpreter, Path(name))
        failures += [
            *_attempt("import", lambda: _check_import(inside.contents)),
            *_attempt("first launch", lambda: _check_launch(inside)),
            *_attempt("blobs", lambda: _check_blobs(inside.contents)),
            *_attempt("resolution", lambda: _check_resolution(inside.contents, limits)),
        ]
    if failures:
        msg = f"{wheel.name} is not fit to be released: {'; '.join(failures)}"
        raise ReleaseError(msg)


def growth(before: WheelFile, after: WheelFile) -> str:
    """Return a line for each part of two wheels: its size then, now, and the difference."""
    old, new = before.parts(), after.parts()
    lines = [f"since {before.path.name}, in kB:"]
    for name in sorted(old | new):
        then, now = old.get(name, 0) / 1e3, new.get(name, 0) / 1e3
        lines.append(f"  {name:<12}{then:>10.0f}{now:>10.0f}{now - then:>+10.0f}")
    return "\n".join(lines)


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


@dataclass(frozen=True)
class _Inside:
    """The wheel installed in `folder`, and what inside_wheel.py sees of it, each looked at once."""

    wheel: Path
    limits: WheelLimits
    checkout: Checkout
    interpreter: Path
    folder: Path

    @cached_property
    def contents(self) -> dict[str, Any]:
        """What an import does, the blobs, and what every GPU takes."""
        resolution = self.limits.resolution
        capabilities = dict.fromkeys(cc for table in resolution.values() for cc in table)
        return self._look("contents", " ".join(capabilities), " ".join(resolution))

    @cached_property
    def launch(self) -> dict[str, Any]:
        """A first launch on a driver that shows one GPU and executes nothing."""
        driver = self.folder / "driver"
        _build_driver(self.checkout.fake_driver, driver, machine=self._machine)
        return self._look(
            "launch",
            LD_LIBRARY_PATH=str(driver),
            FAKE_CUDA_DEVICES=_GPU,
            TILEWRIGHT_JIT="off",
        )

    @cached_property
    def bare(self) -> dict[str, Any]:
        """A first launch without a device; a driver that is here is to show none."""
        return self._look("launch", CUDA_VISIBLE_DEVICES="-1")

    @cached_property
    def _machine(self) -> str:
        """The processor of the interpreter."""
        program = "import platform; print(platform.machine())"
        return _call([str(self.interpreter), "-I", "-c", program]).strip()

    @cached_property
    def _site(self) -> Path:
        site = self.folder / "site"
        is_foreign = not self.wheel.name.endswith(f"_{self._machine}.whl")
        if self._machine == platform.machine() and not is_foreign:
            install = [str(self.interpreter), "-m", "pip", "install", "-q", "--no-index"]
            options = ["--no-deps", "--no-compile", "--target", str(site)]
            _call([*install, *options, str(self.wheel)])
        else:
            # pip would refuse it; of the files only the launcher is for the other processor.
            with zipfile.ZipFile(self.wheel) as archive:
                archive.extractall(site)
            if is_foreign:
                _lend_launcher(site)
        return site

    def _look(self, form: str, *words: str, **environment: str) -> dict[str, Any]:
        script = str(Path(inside_wheel.__file__))
        command = [str(self.interpreter), "-I", script, form, str(self._site), *words]
        # Nothing else in it: no PATH to find a compiler on, no HOME to write to.
        output = _call(command, environment=environment, folder=self.folder)
        report: dict[str, Any] = json.loads(output)
        if not Path(report["imported_from"]).is_relative_to(self._site):
            msg = f"the check imported tilewright from {report['imported_from']}, not the wheel"
            raise ReleaseError(msg)
        return report


def _lend_launcher(site: Path) -> None:
    spec = find_spec("tilewright.runtime._launcher")
    assert spec is not None, "the command line needs a launcher itself"
    assert spec.origin is not None
    for foreign in (site / "tilewright" / "runtime").glob("_launcher*.so"):
        foreign.write_bytes(Path(spec.origin).read_bytes())


def _build_driver(source: Path, folder: Path, *, machine: str) -> None:
    """Compile the driver without a GPU, which writes nothing and executes nothing."""
    folder.mkdir()
    target = ["-target", f"{machine}-linux-gnu.2.28"]
    compiler = [sys.executable, "-m", "ziglang", "cc", *target, "-O1", "-shared", "-fPIC"]
    _call(
        [*compiler, "-fvisibility=hidden", str(source), "-o", str(folder / "libcuda.so.1"), "-ldl"]
    )


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


def _check_launch(inside: _Inside) -> str:
    for report in (inside.launch, inside.bare):
        done = [*report["events"], *(f"child process {pid}" for pid in report["children"])]
        if done:
            msg = f"the first launch does {'; '.join(done[:5])}"
            raise ReleaseError(msg)
    served = inside.launch["resolved"]
    if len(served) != 1 or _SERVED_BY not in served[0]:
        found = f"{served or 'nothing'} {inside.launch['error']}".strip()
        msg = f"on {_GPU} the first launch is served by {found}, not by {_SERVED_BY}"
        raise ReleaseError(msg)
    if "NoDriverError" not in inside.bare["error"]:
        msg = f"without a device the launch gives {inside.bare['error'] or 'no error'}"
        raise ReleaseError(msg)
    return (
        f"{_SERVED_BY} on {_GPU}; without a driver an error that says so, and NumPy: no process, "
        "no socket, no file written"
    )


def _check_blobs(report: dict[str, Any]) -> str:
    damaged = report["blobs"]["damaged"]
    if damaged or not report["blobs"]["read"]:
        msg = f"{report['blobs']['read']} blobs readable, damaged: {'; '.join(damaged[:5])}"
        raise ReleaseError(msg)
    return f"{report['blobs']['read']} read by the installed library"


def _check_resolution(report: dict[str, Any], limits: WheelLimits) -> str:
    wrong = [
        f"{capability} with a driver for {driver} gets "
        f"{report['resolution'][driver][capability] or 'nothing'}, not {expected}"
        for driver, table in limits.resolution.items()
        for capability, expected in table.items()
        if list(report["resolution"][driver][capability]) != [expected]
    ]
    if wrong:
        raise ReleaseError("; ".join(wrong))
    newest = max(limits.resolution, key=lambda text: tuple(map(int, text.split("."))))
    table = ", ".join(f"{cc} {target}" for cc, target in limits.resolution[newest].items())
    return f"{table} with a driver for {newest}, and as expected for {len(limits.resolution)}"


def _newest_wheel(checkout: Checkout) -> Path:
    wheels = sorted((checkout.root / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        msg = f"{checkout.root / 'dist'} holds no wheel; run `tilewright dev build-wheel`"
        raise ReleaseError(msg)
    return wheels[-1]
