"""Another project's kernels: built, installed and launched as docs/kernel-package.md says."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.environments import install, make_environment, run_checked
from helpers.fake_driver import driver_folder
from helpers.small_checkout import ROOT

# One process builds the wheels that all of these tests look at.
pytestmark = pytest.mark.xdist_group("wheels")

_EXAMPLE = ROOT / "examples" / "kernel-package"
_TEXT = (ROOT / "docs" / "kernel-package.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_LAUNCH = """
import sys
import numpy as np
import tilewright as tw
from gates import swiglu, swiglu_backward
from tilewright.runtime import store
arrays = [tw.from_numpy(np.ones(1000, np.float32)) for _ in range(5)]
swiglu(*arrays[:3])
swiglu_backward(*arrays)
print("\\n".join(map(str, tw.resolved())))
print([module for module in sys.modules if module.startswith(("tilewright_compiler", "mlir"))])
"""


@dataclass(frozen=True, slots=True)
class Built:
    """The copy of the example, its wheel, and the environment that both wheels are in."""

    root: Path
    wheel: Path
    python: Path

    def environment(self, **settings: str) -> dict[str, str]:
        """Return the variables of a user of the environment, who has no home and no compiler."""
        return {"PATH": f"{self.python.parent}", "HOME": "/nonexistent"} | settings


def _blocks(language: str) -> list[str]:
    return [body for name, body in _BLOCK.findall(_TEXT) if name == language]


@pytest.fixture(scope="module")
def built(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("package")
    root = folder / "checkout"
    shutil.copytree(_EXAMPLE, root, ignore=shutil.ignore_patterns("build", "dist", "__pycache__"))
    tools = folder / "tools"
    tools.mkdir()
    for name, words in {
        "tilewright": "-m tilewright.cli.main",
        "python": "",
    }.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.defpath}",
        "PYTHONPATH": ":".join(sys.path),
        "HOME": str(folder),
    }
    build, use, *rest = _blocks("sh")
    assert not rest
    for command in build.splitlines():
        run_checked(["sh", "-c", command], folder=root, environment=environment)
    (package,) = (root / "dist").glob("*.whl")
    python = make_environment(folder / "environment")
    install(python, wheel)
    made = Built(root, package, python)
    first, *others = use.splitlines()
    assert first == f"pip install {package.name}"
    install(python, package)
    for command in others:
        run_checked(["/bin/sh", "-c", command], folder=folder, environment=made.environment())
    return made


def test_the_page_shows_what_the_example_declares() -> None:
    declared = (_EXAMPLE / "prebuilt" / "signatures" / "gates.toml").read_text(encoding="utf-8")
    (block,) = _blocks("toml")
    assert declared.startswith(block)
    for name in re.findall(r"^\| `(.+?)` \|", _TEXT, re.MULTILINE):
        assert (_EXAMPLE / name).exists() or name == "prebuilt/targets.toml"
    assert {name for name, _ in _BLOCK.findall(_TEXT)} == {"toml", "sh", "python"}


def test_the_wheel_is_for_every_platform_and_has_its_bundle(built: Built) -> None:
    assert built.wheel.name == "gates-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(built.wheel) as archive:
        names = archive.namelist()
    packs = [name for name in names if name.endswith(".pack")]
    assert len(packs) == 5
    assert "gates/_prebuilt/manifest.json" in names
    assert not [name for name in names if not name.startswith(("gates/", "gates-1.0.0.dist-info/"))]


def test_the_program_of_the_page_runs_without_a_driver(built: Built, tmp_path: Path) -> None:
    (program,) = _blocks("python")
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    run_checked([str(built.python), str(file)], folder=tmp_path, environment=built.environment())


@pytest.mark.parametrize(
    ("gpu", "choice"), [("9.0", "prebuilt sm_90a"), ("8.6", "family sm_80"), ("13.0", "ptx")]
)
def test_launches_are_served_from_the_package_without_a_compiler(
    built: Built, tmp_path: Path, gpu: str, choice: str
) -> None:
    log = tmp_path / "driver.log"
    environment = built.environment(
        LD_LIBRARY_PATH=str(driver_folder()),
        FAKE_CUDA_DEVICES=gpu,
        FAKE_CUDA_VERSION="13000",
        FAKE_CUDA_LOG=str(log),
        TILEWRIGHT_JIT="off",
        TILEWRIGHT_CACHE_DIR="off",
    )
    output = run_checked(
        [str(built.python), "-c", _LAUNCH], folder=tmp_path, environment=environment
    )
    *lines, modules = output.splitlines()
    assert len(lines) == 2
    assert all(choice in line for line in lines)
    assert modules == "[]"
    launched = [line for line in log.read_text().splitlines() if line.startswith("launch")]
    assert [line.split()[1] for line in launched] == ["swiglu_kernel", "swiglu_backward_kernel"]


def test_doctor_reports_the_damaged_bundle_of_a_package(built: Built, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nimport gates\n"
        "from tilewright.cli.main import main\n"
        "sys.exit(main(['doctor']))"
    )
    site = tmp_path / "site"
    shutil.copytree(next(built.python.parents[1].glob("lib/*/site-packages/gates")), site / "gates")
    pack = next((site / "gates" / "_prebuilt").glob("gates-sm_90a-*.pack"))
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    environment = built.environment(PYTHONPATH=str(site))
    with pytest.raises(AssertionError, match=rf"FAULT: .*{pack.name}"):
        run_checked([str(built.python), "-c", script], environment=environment)


def test_without_a_bundle_the_wheel_is_good_and_smaller(built: Built, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    shutil.copytree(built.root, root, ignore=shutil.ignore_patterns("build", "dist"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    run_checked([*build, "--outdir", str(tmp_path), str(root)])
    with zipfile.ZipFile(tmp_path / built.wheel.name) as archive:
        assert not [name for name in archive.namelist() if "_prebuilt" in name]
