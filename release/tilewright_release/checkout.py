"""Where things are in a checkout: the one place that knows what the factory reads and writes.

A checkout is Tilewright's own or that of any project that declares kernels: a folder with
`pyproject.toml` and `prebuilt/signatures/`. A project without a table of targets builds for those
of the Tilewright that it builds with.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from tilewright.errors import ReleaseError, UsageError

_MARKS = ("pyproject.toml", "prebuilt/signatures")
_TARGETS = "targets.toml"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout by its root folder; `package` is the import package whose kernels it declares.

    Empty for Tilewright itself.
    """

    root: Path
    package: str = ""

    @property
    def signatures(self) -> Path:
        """The folder of signature files."""
        return self.root / "prebuilt" / "signatures"

    @property
    def targets(self) -> Path:
        """The table of targets and their toolchains: the checkout's, else Tilewright's."""
        own = self.root / "prebuilt" / _TARGETS
        return own if own.is_file() else _shipped_targets()

    @property
    def budgets(self) -> Path:
        """The table of limits that fail a build."""
        return self.root / "prebuilt" / "budgets.toml"

    @property
    def tolerances(self) -> Path:
        """The table of how far a kernel's result may be from its definition."""
        return self.root / "prebuilt" / "tolerances.toml"

    @property
    def hardware(self) -> Path:
        """The document with the table of what was validated where."""
        return self.root / "docs" / "hardware.md"

    @property
    def validated(self) -> Path:
        """The folder of what ran on which GPU and gave the right result, a file a GPU."""
        return self.root / "prebuilt" / "validated"

    @property
    def tuned(self) -> Path:
        """The folder of tuned choices, a folder a kind of device."""
        return self.root / "prebuilt" / "tuned"

    @property
    def bundle(self) -> Path:
        """Where the bundle is written, and from where CMake installs it."""
        return self.root / "build" / "bundle"

    @property
    def wheel_limits(self) -> Path:
        """The table that `check-wheel` judges a wheel by."""
        return self.root / "wheels" / "limits.toml"

    @property
    def components(self) -> Path:
        """The table of other people's work in a wheel."""
        return self.root / "wheels" / "components.toml"

    @property
    def fake_driver(self) -> Path:
        """The source of a CUDA driver without a GPU, which a first launch is watched on."""
        return self.root / "tests" / "helpers" / "fake_driver.c"

    @property
    def version(self) -> str:
        """The version in pyproject.toml; `dynamic` when the build finds it elsewhere."""
        with (self.root / "pyproject.toml").open("rb") as file:
            return str(tomllib.load(file)["project"].get("version", "dynamic"))


def folder(text: str) -> Path:
    """Return the path that a word of the command line names; raises UsageError for an empty one.

    That is a variable of CI that is not set, and would mean the working directory.
    """
    if not text:
        msg = "an empty word names no folder; leave the option out for its default"
        raise UsageError(msg)
    return Path(text)


def find_checkout(start: Path) -> Checkout:
    """Return the checkout that holds `start`; raises ReleaseError when there is none."""
    for folder in (start, *start.parents):
        if all((folder / mark).exists() for mark in _MARKS):
            return Checkout(folder)
    msg = (
        f"{start} is in no checkout of Tilewright or of a project with kernels (a folder with "
        f"{' and '.join(_MARKS)}); run this from a checkout, or name one: "
        "tilewright dev --root FOLDER ..."
    )
    raise ReleaseError(msg)


def of_package(checkout: Checkout, package: str) -> Checkout:
    """Return the checkout as that of an import package, which can be imported from then on.

    The package may stand in the root, in `src/`, or be installed. Raises ReleaseError when there is
    no such package.
    """
    top = package.partition(".")[0]
    for folder in (checkout.root / "src", checkout.root):
        if (folder / top).is_dir():
            # Worker processes start with the import path of this one.
            sys.path.insert(0, str(folder))
            return replace(checkout, package=package)
    if find_spec(top) is None:
        msg = (
            f"package {package} is neither in {checkout.root / 'src'} nor in {checkout.root} nor "
            "installed; --package is the name that `import` takes"
        )
        raise ReleaseError(msg)
    return replace(checkout, package=package)


def _shipped_targets() -> Path:
    beside = Path(__file__).with_name(_TARGETS)
    # A wheel has the table beside this module, a checkout under prebuilt/.
    return beside if beside.is_file() else Path(__file__).parents[2] / "prebuilt" / _TARGETS
