"""CMake is told of the pyconfig.h with the values, also where Debian keeps it by processor."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).resolve().parents[2] / "wheels" / "find_pyconfig.py"


def _find() -> Path:
    spec = importlib.util.spec_from_file_location("find_pyconfig", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Path = module.find_pyconfig()
    return found


def test_this_python_has_one_with_values() -> None:
    assert "SIZEOF_LONG" in _find().read_text(encoding="utf-8")


def test_debian_has_one_for_each_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = tmp_path / "include" / "python3.11"
    of_processor = tmp_path / "include" / "x86_64-linux-gnu" / "python3.11"
    for folder in (include, of_processor):
        folder.mkdir(parents=True)
        (folder / "pyconfig.h").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(include))
    monkeypatch.setattr(sysconfig, "get_config_h_filename", lambda: str(include / "pyconfig.h"))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: "x86_64-linux-gnu")
    assert _find() == of_processor / "pyconfig.h"
    (of_processor / "pyconfig.h").unlink()
    assert _find() == include / "pyconfig.h"
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: None)
    assert _find() == include / "pyconfig.h"
