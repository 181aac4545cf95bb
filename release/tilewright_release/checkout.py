"""Where things are in a checkout: the one place that knows what the factory reads and writes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import ReleaseError

_MARKS = ("pyproject.toml", "prebuilt/targets.toml")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout of Tilewright's sources, by its root folder."""

    root: Path

    @property
    def signatures(self) -> Path:
        """The folder of signature files."""
        return self.root / "prebuilt" / "signatures"

    @property
    def targets(self) -> Path:
        """The table of targets and their toolchains."""
        return self.root / "prebuilt" / "targets.toml"

    @property
    def budgets(self) -> Path:
        """The table of limits that fail a build."""
        return self.root / "prebuilt" / "budgets.toml"

    @property
    def bundle(self) -> Path:
        """Where the bundle is written, and from where CMake installs it."""
        return self.root / "build" / "bundle"

    @property
    def wheel_limits(self) -> Path:
        """The table that `check-wheel` judges a wheel by."""
        return self.root / "wheels" / "limits.toml"

    @property
    def version(self) -> str:
        """The version in pyproject.toml."""
        with (self.root / "pyproject.toml").open("rb") as file:
            return str(tomllib.load(file)["project"]["version"])


def find_checkout(start: Path) -> Checkout:
    """Return the checkout that holds `start`; raises ReleaseError when there is none."""
    for folder in (start, *start.parents):
        if all((folder / mark).is_file() for mark in _MARKS):
            return Checkout(folder)
    msg = (
        f"{start} is in no checkout of Tilewright (a folder with {' and '.join(_MARKS)}); "
        "run this from a checkout, or name one with --root"
    )
    raise ReleaseError(msg)
