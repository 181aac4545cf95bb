"""Importing does nothing: no driver, no compiler's tools, no process, no file, no environment."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright
import tilewright_compiler
import tilewright_release

_HEAVY = ("mlir", "cuda", "torch", "triton")

# Imported by the process in which LLVM runs, and by nothing else.
_DOOR_TO_MLIR = "tilewright_compiler.backend.llvm"

_PROGRAM = """
import json, os, sys
events = []
def watch(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn"):
        events.append(event)
    elif event.startswith("socket."):
        events.append(event)
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & 3:
        events.append(f"writes {arguments[0]}")
    elif event == "ctypes.dlopen" and "cuda" in str(arguments[0]):
        events.append(f"opens {arguments[0]}")
sys.dont_write_bytecode = True
sys.path[:] = PATH
sys.addaudithook(watch)
for name in NAMES:
    __import__(name)
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"events": events, "loaded": loaded}))
"""


def _import(*names: str) -> dict[str, list[str]]:
    program = _PROGRAM.replace("PATH", repr(sys.path)).replace("NAMES", repr(names))
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, list[str]] = json.loads(done.stdout)
    return report


def _modules() -> Iterator[str]:
    for package in (tilewright, tilewright_compiler, tilewright_release):
        yield package.__name__
        for item in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield item.name


def test_import_tilewright_loads_the_library_alone() -> None:
    report = _import("tilewright", "tilewright.language")
    assert report["events"] == []
    for name in (*_HEAVY, "tilewright_compiler", "tilewright_release", "numpy", "zstandard"):
        assert name not in report["loaded"]
    assert "tilewright" in report["loaded"]


def test_a_compilation_waits_for_nothing_that_it_does_not_need() -> None:
    # Each of these takes 10 ms or more, and a new process imports all of this before it compiles.
    loaded = _import("tilewright_compiler.driver", "tilewright_compiler.pipeline")["loaded"]
    assert not {"numpy", "ml_dtypes", "zstandard", "email", "tomllib", "concurrent"} & set(loaded)


def test_data_classes_that_a_compilation_imports_write_their_methods_later() -> None:
    root = Path(__file__).resolve().parents[2]
    library = root / "library" / "tilewright"
    standard = {
        path.relative_to(root).as_posix()
        for folder in (root / "compiler", library / "abi", library / "language")
        for path in folder.rglob("*.py")
        if re.search(r"^from dataclasses import .*\bdataclass\b", path.read_text(), re.MULTILINE)
    }
    # Ordered classes are the standard decorator's.
    assert standard <= {"library/tilewright/abi/target.py"}


def test_no_module_does_anything_when_imported() -> None:
    modules = [name for name in _modules() if name != _DOOR_TO_MLIR]
    assert len(modules) > 100
    report = _import(*modules)
    assert report["events"] == []
    assert not set(_HEAVY) & set(report["loaded"])


@pytest.mark.parametrize("name", ["tilewright.cli.main", "tilewright_release.main"])
def test_every_command_module_can_be_imported_first(name: str) -> None:
    assert _import(name)["events"] == []


def test_only_the_settings_read_the_environment() -> None:
    root = Path(__file__).resolve().parents[2]
    # A process that these start gets the environment with something added; nothing is read from it.
    allowed = {
        "library/tilewright/settings.py",
        "release/tilewright_release/build_wheel.py",
        "release/tilewright_release/verify.py",
    }
    found = {
        path.relative_to(root).as_posix()
        for path in _sources(root)
        if any(word in path.read_text(encoding="utf-8") for word in ("os.environ", "os.getenv"))
    }
    assert found == allowed


def test_only_the_tools_and_the_factory_start_processes() -> None:
    root = Path(__file__).resolve().parents[2]
    words = ("import subprocess", "import multiprocessing", "os.exec", "os.posix_spawn")
    found = {
        path.relative_to(root).as_posix()
        for path in _sources(root)
        if any(word in path.read_text(encoding="utf-8") for word in words)
    }
    assert {name for name in found if not name.startswith("release/")} == {
        "compiler/tilewright_compiler/backend/ptxas.py",
        "compiler/tilewright_compiler/backend/worker.py",
    }


def _sources(root: Path) -> list[Path]:
    folders = ("library/tilewright", "compiler/tilewright_compiler", "release/tilewright_release")
    return [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
