"""`tilewright dev release-check`: the checklist of a release, as a program (docs/releasing.md).

Each step is one function that says what it found or raises. Every step runs, unless one that it
needs has failed, so that one run shows all that is in the way. A rehearsal does the same on any
state of the checkout, and what it finds wrong with the commit alone does not fail it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tilewright.errors import ReleaseError, TilewrightError
from tilewright_release import audit, bundle, coverage, verify
from tilewright_release.build_wheel import build_sdist, build_wheel
from tilewright_release.check_wheel import check_wheel
from tilewright_release.checkout import Checkout, folder
from tilewright_release.dev_tools import require_tools
from tilewright_release.provenance import commit_of
from tilewright_release.sign import check_signature, released
from tilewright_release.wheel_file import WheelFile, read_limits

# The launcher's bytes follow from the headers of the Python that builds it: a release takes the
# oldest.
_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Release:
    """What is being checked, and how: the options of the command."""

    checkout: Checkout
    machines: tuple[str, ...]
    is_rehearsal: bool
    sample: int | None
    python: Path | None
    cache: Path | None
    key: Path | None


class _Module(Protocol):
    """A module of this package that is a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, checkout: Checkout) -> int: ...


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the checklist; `needs` names steps without which it makes no sense."""

    name: str
    summary: str
    run: Callable[[Release], str]
    needs: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--rehearse", action="store_true", help="on any commit, with changes too")
    parser.add_argument("--only", action="append", default=[], choices=_NAMES, metavar="STEP")
    parser.add_argument("--skip", action="append", default=[], choices=_NAMES, metavar="STEP")
    parser.add_argument(
        "--sample", type=int, help="verify that many entries; by default all, which takes minutes"
    )
    parser.add_argument("--machine", action="append", default=[], help="build for this one alone")
    parser.add_argument("--python", type=Path, help="as for check-wheel")
    parser.add_argument("--cache", type=folder, help="folder of the build caches")
    parser.add_argument("--key", type=Path, help="public key that the signatures must be by")


def run(arguments: argparse.Namespace, checkout: Checkout) -> int:
    """Run the steps and print a line for each; raises ReleaseError that lists what failed."""
    require_tools(("build", "ziglang", "elftools", "auditwheel"), purpose="checking a release")
    release = Release(
        checkout=checkout,
        machines=tuple(arguments.machine) or read_limits(checkout.wheel_limits).machines,
        is_rehearsal=arguments.rehearse,
        sample=arguments.sample,
        python=arguments.python,
        cache=arguments.cache,
        key=arguments.key,
    )
    wanted = [
        step
        for step in STEPS
        if step.name not in arguments.skip and (not arguments.only or step.name in arguments.only)
    ]
    failed: list[str] = []
    lines = []
    for step in wanted:
        print(f"== {step.name}: {step.summary}", flush=True)
        start = time.monotonic()
        missing = [name for name in step.needs if name in failed]
        try:
            if missing:
                msg = f"not tried, because {', '.join(missing)} failed"
                raise ReleaseError(msg)
            mark, text = "ok  ", step.run(release)
        except TilewrightError as error:
            failed.append(step.name)
            mark, text = "FAIL", str(error)
        lines.append(f"  {mark}  {step.name} ({time.monotonic() - start:.0f} s): {text}")
        print(lines[-1], flush=True)
    print("\n".join(("== the checklist", *lines)))
    if failed:
        msg = f"{checkout.version} is not fit to be released: {', '.join(failed)}"
        raise ReleaseError(msg)
    return 0


def check_commit(release: Release) -> str:
    """The checkout is the commit with the tag of the version, and the Python is the oldest."""
    checkout = release.checkout
    commit, is_modified = commit_of(checkout.root)
    problems = []
    tag = f"v{checkout.version}"
    if commit is None:
        problems.append("this is no git checkout")
    elif tag not in _git(checkout.root, "tag", "--points-at", "HEAD").split():
        problems.append(f"commit {commit[:12]} has no tag {tag}")
    if is_modified:
        problems.append("files differ from the commit")
    if sys.version_info[:2] != _PYTHON:
        found = ".".join(map(str, sys.version_info[:2]))
        problems.append(f"Python is {found}; release with {'.'.join(map(str, _PYTHON))}")
    if problems and not release.is_rehearsal:
        raise ReleaseError("; ".join(problems))
    return "; ".join(problems) + " (a rehearsal)" if problems else f"{commit} is {tag}"


def check_changelog(release: Release) -> str:
    """There is something to tell: the fragments of the changes since the last release."""
    folder = release.checkout.root / "release" / "changelog.d"
    fragments = [path for path in folder.glob("*.md") if path.name != "README.md"]
    if not fragments:
        msg = f"{folder} has no fragments: nothing that a user sees has changed"
        raise ReleaseError(msg)
    return f"{len(fragments)} changes"


def check_audit(release: Release) -> str:
    """Declarations, budgets, kernels and pins fit together."""
    return _command(audit, release)


def check_bundle(release: Release) -> str:
    """Every declared kernel compiles for every target within the budgets."""
    cache = () if release.cache is None else ("--cache", str(release.cache))
    return _command(bundle, release, *cache)


def check_coverage(release: Release) -> str:
    """The bundle is what is declared, with nothing missing and nothing stale."""
    return _command(coverage, release)


def check_rebuild_of_kernels(release: Release) -> str:
    """Kernels that are built again from nothing have the same bytes."""
    sample = ("--all",) if release.sample is None else ("--sample", str(release.sample))
    return _command(verify, release, *sample)


def check_wheels(release: Release) -> str:
    """The wheel of every machine is built and passes every check."""
    sizes = []
    for machine in release.machines:
        wheel = build_wheel(release.checkout, machine=machine)
        check_wheel(wheel, release.checkout, python=release.python)
        sizes.append(f"{machine} {wheel.stat().st_size / 1e6:.2f} MB")
    return ", ".join(sizes)


def check_sdist(release: Release) -> str:
    """The sdist is built, installs with any compiler, and its library is imported."""
    sdist = build_sdist(release.checkout)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        site = Path(name, "site")
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        _call([*install, "--no-build-isolation", "--target", str(site), str(sdist)])
        program = (
            f"import sys; sys.path.insert(0, {str(site)!r})\n"
            "import tilewright, tilewright.runtime._launcher\n"
            "print(tilewright.__version__)"
        )
        version = _call([sys.executable, "-I", "-c", program]).strip()
    if version != release.checkout.version:
        msg = f"{sdist.name} installs version {version}"
        raise ReleaseError(msg)
    return f"{sdist.name}, {sdist.stat().st_size / 1e6:.2f} MB"


def check_rebuild_of_wheels(release: Release) -> str:
    """A clone in another folder gives wheels with the same bytes."""
    commit, is_modified = commit_of(release.checkout.root)
    if commit is None or is_modified:
        if not release.is_rehearsal:
            msg = "only a commit without changes can be cloned and built again"
            raise ReleaseError(msg)
        return "left out, as files differ from the commit (a rehearsal)"
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        clone = Checkout(Path(name, "clone"))
        _git(Path(name), "clone", "-q", str(release.checkout.root), str(clone.root))
        shutil.copytree(release.checkout.bundle, clone.bundle)
        for machine in release.machines:
            again = build_wheel(clone, machine=machine)
            first = release.checkout.root / "dist" / again.name
            if again.read_bytes() != first.read_bytes():
                msg = f"{again.name} built in another folder has other bytes"
                raise ReleaseError(msg)
    return f"{len(release.machines)} wheels, the same bytes"


def check_provenance(release: Release) -> str:
    """Every wheel in dist/ is of this version and of this commit."""
    commit, _ = commit_of(release.checkout.root)
    wheels = [WheelFile(path) for path in released(release.checkout) if path.suffix == ".whl"]
    problems = []
    for wheel in wheels:
        made = wheel.provenance()
        if (made.version, made.commit) != (release.checkout.version, commit):
            problems.append(f"{wheel.path.name} is of {made.version} at {made.commit}")
        elif made.is_modified and not release.is_rehearsal:
            problems.append(f"{wheel.path.name} was built from a modified checkout")
    machines = {wheel.provenance().machine for wheel in wheels}
    problems += [f"no wheel for {name}" for name in release.machines if name not in machines]
    if problems:
        raise ReleaseError("; ".join(problems))
    return f"{len(wheels)} wheels of {release.checkout.version} at {commit or 'no commit'}"


def check_signatures(release: Release) -> str:
    """Every file in dist/ is signed by the key, where one is given."""
    files = released(release.checkout)
    if release.key is None:
        return f"{len(files)} files to sign with `tilewright dev sign`, and to check with --key"
    require_tools(("cryptography",), purpose="checking signatures")
    for file in files:
        check_signature(file, release.key)
    if not files:
        msg = f"{release.checkout.root / 'dist'} holds nothing that is signed"
        raise ReleaseError(msg)
    return f"{len(files)} files are by the key {release.key}"


STEPS = (
    Step("commit", "the tagged commit, and nothing else", check_commit),
    Step("changelog", "the changes are written down", check_changelog),
    Step("audit", "declarations, budgets and pins fit together", check_audit),
    Step("bundle", "every kernel compiles, within the budgets", check_bundle),
    Step("coverage", "nothing is missing, nothing is stale", check_coverage, ("bundle",)),
    Step("kernels", "built again, the same bytes", check_rebuild_of_kernels, ("bundle",)),
    Step("wheels", "built for every machine, and every check passed", check_wheels, ("bundle",)),
    Step("sdist", "built, installed and imported", check_sdist),
    Step("again", "wheels of a clone, the same bytes", check_rebuild_of_wheels, ("wheels",)),
    Step("provenance", "the wheels are of this commit", check_provenance, ("wheels",)),
    Step("signatures", "by the release key", check_signatures),
)
"""The checklist, in order."""

_NAMES = tuple(step.name for step in STEPS)


def _command(module: _Module, release: Release, *words: str) -> str:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    module.run(parser.parse_args(words), release.checkout)
    return "done"


def _git(folder: Path, *words: str) -> str:
    return _call(["git", "-C", str(folder), *words])


def _call(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"{' '.join(command[:6])} failed: {(done.stdout + done.stderr).strip()[-2000:]}"
        raise ReleaseError(msg)
    return done.stdout
