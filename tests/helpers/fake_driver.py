"""Build the fake CUDA driver and run Python programs that find it as libcuda.so.1."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("fake_driver.c")
_TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished program: exit code, output and the lines of the driver's log."""

    code: int
    output: str
    errors: str
    log: tuple[str, ...]

    def lines(self, *starts: str) -> list[str]:
        """Return the log lines that begin with one of `starts`."""
        return [line for line in self.log if line.startswith(starts)]


def run_with_fake_driver(
    program: str, folder: Path, *, has_library_api: bool = True, **environment: str
) -> Finished:
    """Run a program with the fake driver; `FAKE_CUDA_*` and `TILEWRIGHT_*` go by keyword.

    The program must end with exit code 0, else the test fails with what it printed.
    """
    fixed = {
        "LD_LIBRARY_PATH": str(_build(has_library_api)),
        "FAKE_CUDA_LOG": str(folder / "driver.log"),
    }
    finished = run_program(program, folder, **(fixed | environment))
    if finished.code != 0:
        pytest.fail(f"exit code {finished.code}\n{finished.output}\n{finished.errors}")
    return finished


def run_program(program: str, folder: Path, **environment: str) -> Finished:
    """Run a Python program in a fresh process that sees no setting of this one."""
    script = folder / "program.py"
    script.write_text(program)
    log = folder / "driver.log"
    log.unlink(missing_ok=True)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TILEWRIGHT_", "FAKE_CUDA_", "LD_LIBRARY"))
    }
    settings = {
        "PYTHONPATH": os.pathsep.join((str(_TESTS), *filter(None, sys.path))),
        "TILEWRIGHT_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env=inherited | settings | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = tuple(log.read_text().splitlines()) if log.exists() else ()
    return Finished(done.returncode, done.stdout, done.stderr, lines)


def driver_folder() -> Path:
    """Return the folder that holds the fake driver, for LD_LIBRARY_PATH."""
    return _build(True)


@cache
def _build(has_library_api: bool) -> Path:
    """Return the folder with the built driver, made once for each state of its source."""
    flags = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
    flags += [] if has_library_api else ["-DWITHOUT_LIBRARY"]
    compiler = ["gcc"] if shutil.which("gcc") else [sys.executable, "-m", "ziglang", "cc"]
    state = hashlib.sha256(_SOURCE.read_bytes() + repr((flags, compiler)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"tilewright-fake-driver-{os.getuid()}-{state}"
    library = folder / "libcuda.so.1"
    if not library.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        partial = folder / f"{os.getpid()}.so"
        command = [*compiler, *flags, str(_SOURCE), "-o", str(partial), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        partial.replace(library)
    return folder
