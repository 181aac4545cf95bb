"""Other versions of Python on this machine, to ask whether they agree with this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

VARIABLE = "TILEWRIGHT_SECOND_PYTHON"


@cache
def other_pythons() -> tuple[tuple[str, str], ...]:
    """Return (version, path) of each other supported Python, one a version.

    TILEWRIGHT_SECOND_PYTHON names one; others are looked for on PATH and under pyenv.
    """
    named = os.environ.get(VARIABLE)
    if named:
        version = _version(named)
        assert version is not None, f"{VARIABLE}={named} is no Python that runs"
        return ((version, named),)
    found: dict[str, str] = {}
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None and version != _own():
            found.setdefault(version, candidate)
    return tuple(sorted(found.items()))


def _candidates() -> list[str]:
    names = [f"python3.{minor}" for minor in range(11, 20)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(pyenv.glob("3.*/bin/python3")) if pyenv.is_dir() else []
    on_path = (shutil.which(name) for name in names)
    return [*(path for path in on_path if path), *map(str, installed)]


def _own() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _version(python: str) -> str | None:
    """Return a Python's version, or None if it does not run (a pyenv shim) or is too old for us."""
    code = "import sys; assert sys.version_info >= (3, 11); print('%d.%d' % sys.version_info[:2])"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None
