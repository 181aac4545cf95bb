"""What lies at a path, told without an error: a place that may not be looked into holds nothing.

`Path.is_dir` and `Path.is_file` raise PermissionError below a folder that is closed to this user,
until Python 3.14. Such folders are nothing unusual: the HOME of root that a container hands on to
its user, or an entry of `sys.path`.
"""

from __future__ import annotations

import stat
from pathlib import Path


def is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """Return whether a path leads to a regular file."""
    return stat.S_ISREG(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return 0
