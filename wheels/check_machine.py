"""Says at once what a machine lacks for `make wheel`, before minutes are spent."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path


def missing() -> list[str]:
    """Return what this Python lacks, each with the Debian package that brings it."""
    found = []
    if sys.version_info < (3, 11):  # noqa: UP036  # the very thing to find out
        found.append(f"Python 3.11 or later (this is {sys.version.split()[0]}): set PYTHON=...")
    if importlib.util.find_spec("ensurepip") is None:
        found.append("venv with pip: apt-get install python3-venv")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        found.append("Python's headers, for the launcher: apt-get install python3-dev")
    return found


if __name__ == "__main__":
    lacks = missing()
    if lacks:
        sys.exit("this machine lacks\n  " + "\n  ".join(lacks))
