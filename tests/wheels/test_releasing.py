"""docs/releasing.md: its commands are run on a small copy of the project, as its table says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.environments import run_checked
from helpers.small_checkout import ROOT, SmallCheckout
from tilewright.errors import ReleaseError
from tilewright_release.checkout import Checkout
from tilewright_release.main import main
from tilewright_release.release_check import STEPS

# One process builds the wheels that all of these tests look at.
pytestmark = pytest.mark.xdist_group("wheels")

_TEXT = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
_WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
_COMMANDS = [
    command
    for block in re.findall(r"^```sh\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
    for command in block.splitlines()
]

# `make release` cut short: a sample, one processor, an environment that is here.
_CHEAP = ("--rehearse", "--skip", "audit", "--sample", "1", "--machine", "x86_64")


def _git(root: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    return run_checked(["git", "-C", str(root), *names, *words])


@pytest.fixture(scope="module")
def project(
    sources: Checkout, small_project: SmallCheckout, tmp_path_factory: pytest.TempPathFactory
) -> Checkout:
    """The sources with the few kernels of the small project, as a tagged commit."""
    root = tmp_path_factory.mktemp("release") / "checkout"
    shutil.copytree(sources.root, root, ignore=shutil.ignore_patterns("dist", "wheel-*"))
    shutil.rmtree(root / "prebuilt")
    shutil.copytree(small_project.root / "prebuilt", root / "prebuilt")
    shutil.copy(small_project.root / "kernels.py", root)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"], ["tag", "v0.1.0"]):
        _git(root, *words)
    return Checkout(root)


def _check(project: Checkout, *words: str) -> int:
    return main(["--root", str(project.root), "release-check", *words])


def test_the_page_lists_the_steps_and_the_makefile_runs_them() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", _TEXT, re.MULTILINE)
    assert rows == [step.name for step in STEPS]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "$(tilewright) dev release-check --python $(clean_python) $(RELEASE)" in makefile
    assert _COMMANDS[:3] == ["make wheel", "make test", "make release"]


def test_the_workflow_runs_the_commands_of_the_page() -> None:
    runs = re.findall(r"^      - run: (.+)$", _WORKFLOW, re.MULTILINE)
    build, aarch64 = runs[:3], runs[3:]
    assert [run.partition(" RELEASE=")[0] for run in build] == _COMMANDS[:3]
    assert aarch64[0] == "pip install dist/tilewright-*_aarch64.whl"
    for command in aarch64[1:]:
        _, *words = command.split()
        if words[0] == "-I":
            assert (ROOT / words[1]).is_file()
        else:
            # As on a machine without a GPU, with the wheel of this checkout.
            run_checked(
                [sys.executable, "-m", "tilewright.cli.main", words[0], "--help"],
                environment={"PYTHONPATH": ":".join(sys.path)},
            )


def test_every_command_of_the_page_runs(
    project: Checkout, small_project: SmallCheckout, tmp_path: Path, small_bundle: Path
) -> None:
    assert small_bundle.is_dir()  # its caches are full
    command_line = f'"{sys.executable}" -m tilewright.cli.main "$@"'
    program = tmp_path / "tilewright"
    program.write_text(
        f'#!/bin/sh\nif [ "$2" = check-wheel ]; then set -- "$@" --python "{sys.executable}"; fi\n'
        f"exec {command_line}\n"
    )
    program.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.defpath}",
        "PYTHONPATH": ":".join(sys.path),
        # Where zig keeps what it compiled of libc.
        "HOME": str(Path.home()),
    }
    cheap = f"{' '.join(_CHEAP)} --python {sys.executable} --cache {small_project.cache}"
    outputs = []
    for command in _COMMANDS[2:]:
        if command.startswith("openssl") and shutil.which("openssl") is None:
            continue
        shown = command.replace("make release", f"tilewright dev release-check {cheap}")
        outputs.append(
            run_checked(["sh", "-c", shown], folder=project.root, environment=environment)
        )
    checklist = outputs[0].partition("== the checklist")[2]
    assert re.findall(r"  ok    (\w+) \(", checklist) == [
        s.name for s in STEPS if s.name != "audit"
    ]
    # Built again from a clone in another folder.
    assert "1 wheels, the same bytes" in checklist
    assert f"1 wheels of 0.1.0 at {_git(project.root, 'rev-parse', 'HEAD').strip()}" in checklist
    assert "2 files to sign" in checklist
    assert "2 files are by the key release.key.pub" in outputs[3]

    # A byte of the sdist, after it was signed.
    (sdist,) = (project.root / "dist").glob("*.tar.gz")
    data = bytearray(sdist.read_bytes())
    data[-9] ^= 1
    sdist.write_bytes(data)
    key = str(project.root / "release.key.pub")
    assert _check(project, "--only", "signatures", "--key", key) == ReleaseError.exit_code


def test_a_wheel_that_is_built_with_other_bytes_is_told(
    project: Checkout, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The wheel of `sources` has no commit in its provenance, the one of a clone has.
    root = tmp_path / "clone"
    _git(tmp_path, "clone", "-q", str(project.root), str(root))
    shutil.copytree(project.bundle, root / "build" / "bundle")
    (root / "dist").mkdir()
    shutil.copy(wheel, root / "dist")
    words = ("--only", "again", "--machine", "x86_64")
    assert _check(Checkout(root), *words) == ReleaseError.exit_code
    assert f"{wheel.name} built in another folder has other bytes" in capsys.readouterr().out


def test_only_a_tagged_commit_without_changes_is_released(
    project: Checkout,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 0))
    root = tmp_path / "clone"
    _git(tmp_path, "clone", "-q", str(project.root), str(root))
    clone = Checkout(root)
    assert _check(clone, "--only", "commit") == 0
    (root / "README.md").write_text("changed")
    assert _check(clone, "--only", "commit") == ReleaseError.exit_code
    assert "files differ from the commit" in capsys.readouterr().out
    assert _check(clone, "--only", "commit", "--rehearse") == 0
    assert "files differ from the commit (a rehearsal)" in capsys.readouterr().out
    _git(root, "commit", "-q", "-a", "-m", "y")
    assert _check(clone, "--only", "commit") == ReleaseError.exit_code
    assert "has no tag v0.1.0" in capsys.readouterr().out
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert _check(clone, "--only", "commit") == ReleaseError.exit_code
    assert "Python is 3.13; release with 3.11" in capsys.readouterr().out


def test_all_that_is_in_the_way_is_shown_in_one_run(
    project: Checkout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "checkout"
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("build", "dist", ".git"))
    for fragment in (root / "release" / "changelog.d").glob("*.added.md"):
        fragment.unlink()
    for fragment in (root / "release" / "changelog.d").glob("*.*.md"):
        fragment.unlink()
    text = (root / "prebuilt" / "budgets.toml").read_text(encoding="utf-8")
    (root / "prebuilt" / "budgets.toml").write_text(text.replace("entries = 10", "entries = 1"))
    skipped = [word for name in ("audit", "sdist") for word in ("--skip", name)]
    assert _check(Checkout(root), "--rehearse", *skipped) == ReleaseError.exit_code
    captured = capsys.readouterr()
    failed = "changelog, bundle, coverage, kernels, wheels, again, provenance"
    assert f"0.1.0 is not fit to be released: {failed}" in captured.err
    assert "not tried, because bundle failed" in captured.out
    assert "bundle: 7 entries, the budget is 1" in captured.out


def test_a_wheel_of_another_commit_is_told(
    project: Checkout, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "clone"
    _git(tmp_path, "clone", "-q", str(project.root), str(root))
    (root / "dist").mkdir()
    shutil.copy(wheel, root / "dist")
    assert _check(Checkout(root), "--only", "provenance") == ReleaseError.exit_code
    out = capsys.readouterr().out
    assert f"{wheel.name} is of 0.1.0 at None" in out
    assert "no wheel for aarch64" in out


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (
            ("--platform", "linux", "--archs", "x86_64,aarch64", "--print-build-identifiers"),
            0,
            "cp311-manylinux_x86_64\ncp311-manylinux_aarch64\n",
        ),
        # What is said where the container engine is dead: the configuration was read and accepted.
        (("--only", "cp311-manylinux_x86_64"), 7, ""),
    ],
    ids=["identifiers", "dead engine"],
)
def test_cibuildwheel_takes_its_configuration(
    sources: Checkout, tmp_path: Path, words: tuple[str, ...], code: int, output: str
) -> None:
    engine = tmp_path / "docker"
    engine.write_text('#!/bin/sh\n[ "$1" = --version ]\n')
    engine.chmod(0o755)
    done = _cibuildwheel(
        sources.root / "wheels" / "cibuildwheel.toml", sources.root, *words, path=tmp_path
    )
    assert (done.returncode, done.stdout if code == 0 else "") == (code, output), done.stderr


def test_cibuildwheel_refuses_a_misspelt_option(sources: Checkout, tmp_path: Path) -> None:
    text = (ROOT / "wheels" / "cibuildwheel.toml").read_text(encoding="utf-8")
    (tmp_path / "wrong.toml").write_text(text.replace("test-command", "tset-command"))
    done = _cibuildwheel(
        tmp_path / "wrong.toml", sources.root, "--platform", "linux", "--print-build-identifiers"
    )
    assert done.returncode == 2
    assert "tset-command" in done.stderr


def _cibuildwheel(
    configuration: Path, root: Path, *words: str, path: Path = Path("/nonexistent")
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cibuildwheel", "--config-file", str(configuration)]
    return subprocess.run(
        [*command, *words, str(root)],
        cwd=root,
        # No container engine of the machine's.
        env={"PATH": str(path), "HOME": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
