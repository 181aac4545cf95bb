"""docs/writing-kernels.md: its programs and commands run, in a folder that is no checkout."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

_PAGE = (Path(__file__).parents[2] / "docs" / "writing-kernels.md").read_text(encoding="utf-8")
_PROGRAMS = {
    match[1]: match[2]
    for match in re.finditer(r"^```python\n# (\S+)\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
}
_COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def _run(words: list[str], folder: Path) -> str:
    for name, text in _PROGRAMS.items():
        (folder / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_block_is_a_program_or_a_command() -> None:
    assert len(_PROGRAMS) == _PAGE.count("```python\n") == 2
    assert len(_COMMANDS) == 3
    assert _PAGE.count("```") == 2 * (len(_PROGRAMS) + 1)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_program_runs(name: str, tmp_path: Path) -> None:
    _run([name], tmp_path)


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_command_shows_what_the_page_says(command: str, tmp_path: Path) -> None:
    program, *words = shlex.split(command)
    assert program == "tilewright"
    shown = _run(["-m", "tilewright.cli.main", *words], tmp_path)
    expected = {"ptx": r"ld\.global\.v2\.b32", "resources": "spills", "tile": r"\) general "}
    assert re.search(expected[words[-1]], shown)
