"""Text compared with a stored file under `tests/golden/`, one folder a test file.

A test takes the fixture `golden` and calls it with the text it got. `--update-golden` writes the
files; a missing file fails, so that a new golden is always looked at and committed on purpose.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest


def golden_directory(tests: Path, test_file: Path) -> Path:
    """Return the folder of a test file's goldens."""
    return tests / "golden" / test_file.relative_to(tests).with_suffix("")


@dataclass(frozen=True, slots=True)
class Golden:
    """Compares text with files of one folder."""

    directory: Path
    node_id: str
    test_name: str
    is_updating: bool

    def __call__(self, text: str, *, name: str | None = None, suffix: str = ".txt") -> None:
        """Fail unless `text` equals the file `name`, by default the test's name with `suffix`."""
        path = self.directory / (name or _file_stem(self.test_name) + suffix)
        if self.is_updating:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        how = f"pytest '{self.node_id}' --update-golden"
        if not path.exists():
            pytest.fail(f"golden file {path} does not exist; create it with\n  {how}\nand read it")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            difference = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), "golden", "got", lineterm=""
            )
            body = "\n".join(difference)
            pytest.fail(f"{path} differs; if the new text is right, run\n  {how}\n{body}")


def _file_stem(test_name: str) -> str:
    """Return a file name for a test's name: `test_add[f32-odd]` gives `test_add-f32-odd`."""
    return re.sub(r"[^A-Za-z0-9_.=]+", "-", test_name).strip("-")
