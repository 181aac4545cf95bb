"""`make wheel` says at once what a machine lacks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).resolve().parents[2] / "wheels" / "check_machine.py"


def _missing() -> list[str]:
    spec = importlib.util.spec_from_file_location("check_machine", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[str] = module.missing()
    return found


def test_this_machine_lacks_nothing() -> None:
    done = subprocess.run([sys.executable, str(_SCRIPT)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_missing_headers_and_venv_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find(name)
    )
    assert _missing() == [
        "venv with pip: apt-get install python3-venv",
        "Python's headers, for the launcher: apt-get install python3-dev",
    ]


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    (lack,) = _missing()
    assert lack.startswith("Python 3.11 or later (this is ")
