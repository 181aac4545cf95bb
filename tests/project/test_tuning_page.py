"""docs/tuning.md: its commands run, as far as they go without a GPU, and its lines are points."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tilewright import settings
from tilewright.cli.main import main
from tilewright.errors import NoDriverError
from tilewright_release.tuning.plan import read_plan
from tilewright_release.tuning.points import parse_point

_PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
_COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"^```sh\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
_WITHOUT_GPU = [words for words in _COMMANDS if words[1] == "compile"]
_NONE = "are tuned from now on: the program launched no kernel with configurations on a GPU"
_WITH_GPU = [words for words in _COMMANDS if words[1] in ("run", "time")]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", _WITHOUT_GPU, ids=" ".join)
def test_a_command_for_the_compiler_runs(words: list[str]) -> None:
    # All that it would compile is too much for a test; what it does with points is the same.
    assert main([*words, "--declared"]) == 0
    folder = Path(words[words.index("--out") + 1])
    families = {planned.point.family for planned in read_plan(folder).points}
    assert families == set(words) & {"matmul", "attention"}


@pytest.mark.parametrize("words", _WITH_GPU, ids=" ".join)
def test_a_command_for_a_gpu_is_understood_and_says_that_there_is_none(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_index: int) -> object:
        msg = "no CUDA driver"
        raise NoDriverError(msg)

    monkeypatch.setattr("tilewright_release.tuning.command.device_of", refuse)
    assert main(words) == NoDriverError.exit_code
    assert "no CUDA driver" in capsys.readouterr().err


def test_a_program_is_run_with_its_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (words,) = (words for words in _COMMANDS if words[1] == "program")
    (tmp_path / words[2]).write_text("import sys; print(sys.argv, __name__)")
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [f"{words[2:]} __main__", f"tune: 0 launches {_NONE}"]


def test_its_points_and_settings_exist() -> None:
    lines = re.findall(r"[`\"]((?:matmul|attention) \w+[^`\"]* [^`\"]+)[`\"]", _PAGE)
    assert len(lines) == 4
    for line in lines:
        assert str(parse_point(line)) == line
    variables = {settings.variable(name) for name in ("trace", "extra_bundles")}
    assert variables <= set(re.findall(r"TILEWRIGHT_\w+", _PAGE))
