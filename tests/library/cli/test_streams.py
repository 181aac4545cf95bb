"""The command line with streams that are closed, full, or of an encoding without some letter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.fake_driver import run_program

_CLOSING = """
import os, subprocess, sys
for number in (0, 1, 2):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from tilewright.cli.main import main
code = main({words!r})
handle = os.open({file!r}, os.O_WRONLY | os.O_CREAT)
subprocess.run([sys.executable, "-c", "print('stray')"])
os.write(handle, f"{{code}} {{handle > 2}}".encode())
"""


def _command(folder: Path, *words: str, redirect: str = "", **environment: str) -> tuple[int, str]:
    """Run the command as a shell does, and return its exit code and what it printed."""
    line = f'exec "{sys.executable}" -m tilewright "$@" {redirect}'
    fixed = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TILEWRIGHT_CACHE_DIR": "off"}
    done = subprocess.run(
        ["sh", "-c", line, "tilewright", *words],
        env=os.environ | fixed | {"TILEWRIGHT_BUNDLE_PATH": str(folder)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def test_the_package_is_the_command_too(tmp_path: Path) -> None:
    code, text = _command(tmp_path, "--version")
    assert code == 0
    assert text.startswith("tilewright ")


@pytest.mark.parametrize("redirect", [">&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(tmp_path: Path, redirect: str) -> None:
    code, text = _command(tmp_path, "doctor", redirect=redirect)
    assert code == 6  # the bundle has no manifest
    assert "Traceback" not in text


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    file = tmp_path / "result"
    program = _CLOSING.format(words=["explain", "nothing"], file=str(file))
    run_program(program, tmp_path, TILEWRIGHT_BUNDLE_PATH=str(tmp_path))
    assert file.read_text() == "2 True"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_disk_is_a_message(tmp_path: Path) -> None:
    code, text = _command(tmp_path, "doctor", redirect=">/dev/full")
    assert code == 1
    assert text == "tilewright: what was written is not whole: No space left on device\n"


@pytest.mark.parametrize(
    ("encoding", "name", "shown"),
    [
        ("utf-8:strict", b"/tmp/\xff", "/tmp/\\udcff"),
        ("ascii:strict", "/tmp/\u00fc".encode(), "/tmp/\\xfc"),
    ],
)
def test_a_name_that_cannot_be_printed_is_printed_with_escapes(
    tmp_path: Path, encoding: str, name: bytes, shown: str
) -> None:
    code, text = _command(
        tmp_path,
        "doctor",
        PYTHONIOENCODING=encoding,
        TILEWRIGHT_EXTRA_BUNDLES=os.fsdecode(name),
    )
    assert code == 6
    assert f"TILEWRIGHT_EXTRA_BUNDLES = {shown}\n" in text


def test_a_launcher_that_cannot_be_loaded_is_told_of_by_every_command(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['tilewright.runtime._launcher'] = None\n"
        "from tilewright.cli.main import main\n"
        "sys.exit(main([{word!r}, *{rest!r}]))\n"
    )
    for word, rest in (("doctor", []), ("explain", ["add"])):
        done = run_program(program.format(word=word, rest=rest), tmp_path)
        assert done.code == 6
        assert done.errors.startswith("tilewright: the launcher extension")
        assert "install the wheel again" in done.errors
