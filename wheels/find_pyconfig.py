"""Prints the path of this Python's real pyconfig.h, for CMakeLists.txt.

Debian's own is a list of `#include`, one for each processor, of files in a folder that only
Debian's compiler searches.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path


def find_pyconfig() -> Path:
    """Return the file that holds the values."""
    include = Path(sysconfig.get_path("include"))
    processor = sysconfig.get_config_var("MULTIARCH") or ""
    of_processor = include.parent / processor / include.name / "pyconfig.h"
    return of_processor if of_processor.is_file() else Path(sysconfig.get_config_h_filename())


if __name__ == "__main__":
    print(find_pyconfig())  # noqa: T201  # what CMake reads
