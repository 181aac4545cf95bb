"""The import rules of `.importlinter`: the project keeps them, and each catches what it is for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    folders = [str(root / folder) for folder in ("library", "compiler", "release")]
    program = (
        f"import sys; sys.path[:0] = {folders!r}; "
        "from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("layers")
    for folder in ("library/tilewright", "compiler/tilewright_compiler", "release"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(_ROOT / folder, root / folder, ignore=ignored)
    shutil.copy(_ROOT / ".importlinter", root)
    return root


def test_the_project_keeps_every_rule() -> None:
    done = _lint(_ROOT)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("library/tilewright/abi/dtypes.py", "import tilewright.language", "Library layers"),
        ("library/tilewright/kernels/softmax.py", "import numpy", "Kernels are pure DSL"),
        ("library/tilewright/runtime/launch.py", "import torch", "Nothing imports torch"),
        ("library/tilewright/tensor/rows.py", "import tilewright_compiler", "Packages"),
        ("compiler/tilewright_compiler/emit/math.py", "import mlir", "One door to MLIR"),
        (
            "compiler/tilewright_compiler/emit/math.py",
            "import tilewright_compiler.backend.ptxas",
            "Compiler stages",
        ),
        (
            "compiler/tilewright_compiler/frontend/lower.py",
            "import tilewright.tensor.rows",
            "The compiler sees only",
        ),
    ],
    ids=lambda value: value if " " in value else "",
)
def test_a_planted_import_is_caught(copy: Path, file: str, line: str, broken: str) -> None:
    path = copy / file
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(f"{text}\n{line}\n", encoding="utf-8")
        done = _lint(copy)
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode == 1
    rows = [row for row in done.stdout.splitlines() if " BROKEN" in row]
    assert any(row.startswith(broken) for row in rows), done.stdout[-3000:]


def test_a_new_folder_must_be_placed(copy: Path) -> None:
    folder = copy / "library" / "tilewright" / "graphs"
    folder.mkdir()
    try:
        (folder / "__init__.py").write_text('"""New."""\n', encoding="utf-8")
        done = _lint(copy)
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 1
    assert "graphs" in done.stdout
