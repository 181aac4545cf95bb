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
        answer = _ask(named)
        assert answer is not None, f"{VARIABLE}={named} is no Python that runs"
        return (answer,)
    found: dict[str, str] = {}
    for candidate in _candidates():
        answer = _ask(candidate)
        if answer is not None and answer[0] != _own():
            found.setdefault(*answer)
    return tuple(sorted(found.items()))


def _candidates() -> list[str]:
    names = [f"python3.{minor}" for minor in range(11, 20)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(pyenv.glob("3.*/bin/python3")) if pyenv.is_dir() else []
    on_path = (shutil.which(name) for name in names)
    return [*(path for path in on_path if path), *map(str, installed)]


def _own() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _ask(python: str) -> tuple[str, str] | None:
    """Return a Python's version and program, or None if it does not run or is too old for us.

    The program differs from `python` for a pyenv shim, which would need a PATH to run.
    """
    code = (
        "import sys; assert sys.version_info >= (3, 11); "
        "print('%d.%d' % sys.version_info[:2], sys.executable)"
    )
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return None
    version, _, program = result.stdout.strip().partition(" ")
    return version, program
