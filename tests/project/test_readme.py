"""The README's commands and programs: each block is run, here or by `.ci/run`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_README = _ROOT / "README.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What runs each command outside the set-up: the recipe of `make wheel`, or a test.
_RUN_BY = {
    "pip install dist/tilewright-*.whl": "make wheel",
    "tilewright doctor": "test_doctor_runs",
}


def _blocks(language: str) -> list[str]:
    text = _README.read_text(encoding="utf-8")
    return [body for name, body in _BLOCK.findall(text) if name == language]


def _sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", _README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_set_up_is_two_commands_and_ci_runs_them() -> None:
    assert _blocks("sh")[0].splitlines() == ["make wheel", "make test"]
    script = (_ROOT / ".ci" / "run").read_text(encoding="utf-8")
    extraction = next(line for line in script.splitlines() if line.startswith("commands="))
    done = subprocess.run(
        ["bash", "-c", f'{extraction}; printf "%s\\n" "$commands"'],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["make wheel", "make test"]


def test_every_other_command_is_run_somewhere() -> None:
    commands = [line for block in _blocks("sh")[1:] for line in block.splitlines() if line]
    assert set(commands) == set(_RUN_BY)
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    assert "pip install" in makefile
    assert "dist/tilewright-*.whl" in makefile


def test_doctor_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.cli.main", "doctor"],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "tilewright" in done.stdout


@pytest.mark.parametrize("program", _blocks("python"), ids=lambda text: text.split("\n")[0])
def test_a_program_of_the_readme_runs(program: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_block_is_of_a_known_language() -> None:
    text = _README.read_text(encoding="utf-8")
    assert {name for name, _ in _BLOCK.findall(text)} <= {"sh", "python", "text"}
    assert "The way of the data" in _sections()
