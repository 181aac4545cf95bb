"""Clean environments: what a user of a wheel has, without a download."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

# The run-time dependencies, with what the last of them needs.
_DEPENDENCIES = ("numpy", "ml_dtypes", "zstandard", "cuda-bindings", "cuda-pathfinder")


def make_environment(folder: Path) -> Path:
    """Make an environment with the run-time dependencies alone and return its interpreter.

    They are links to those of this environment: the compiler is not there, nor pip, which takes
    longer to be put there than all that is installed with it.
    """
    venv.create(folder)
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in _DEPENDENCIES:
        distribution = metadata.distribution(name)
        tops = {str(file).partition("/")[0] for file in distribution.files or ()}
        for top in sorted(tops - {"..", "__pycache__"}):
            source = Path(str(distribution.locate_file(top)))
            if not (site / top).exists():
                (site / top).symlink_to(source)
    return folder / "bin" / "python"


def install(python: Path, *files: Path) -> None:
    """Install wheels without a network and without dependencies."""
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run_checked([*pip, "install", "-q", "--no-index", "--no-deps", *map(str, files)])


def run_checked(
    command: Sequence[str], *, folder: Path | None = None, environment: dict[str, str] | None = None
) -> str:
    """Run a command that must succeed and return its output."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
