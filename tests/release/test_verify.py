from __future__ import annotations

import dataclasses
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from helpers.second_python import VARIABLE, other_pythons
from helpers.small_checkout import ROOT, SmallCheckout
from tilewright.abi.manifest import read_manifest
from tilewright.errors import ReleaseError
from tilewright_release.against import differing_texts
from tilewright_release.main import main
from tilewright_release.verify import _copied_path, _left_out, differences, rebuild


def test_a_rebuild_with_other_hash_seeds_gives_the_same_bytes(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(bundled.root), "verify", "--sample", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "verify: 1 entries, 5 blobs built 2 times: same bytes",
        "verify: hash seed 1, hash seed 2 in another folder",
    ]


@pytest.mark.parametrize("words", [["--sample", "0"], ["--sample", "-1"], ["--jobs", "0"]])
def test_nothing_is_no_number_of_rebuilds(words: list[str], small: SmallCheckout) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--root", str(small.root), "verify", *words])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("python", "says"), [("/nope", "cannot be started"), ("/bin/true", "is it a Python?")]
)
def test_what_is_no_python_is_told(
    bundled: SmallCheckout, python: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--root", str(bundled.root), "verify", "--sample", "1", "--python", python]
    assert main(words) == ReleaseError.exit_code
    assert says in capsys.readouterr().err


def test_links_and_names_of_packages_do_not_matter(bundled: SmallCheckout) -> None:
    (bundled.root / "dangling").symlink_to("nowhere")
    kept, left = bundled.root / "mine" / "docs", bundled.root / "docs"
    for folder in (kept, left):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    copy = bundled.root.parent / "copy"
    ignore = partial(_left_out, bundled.root)
    shutil.copytree(bundled.root, copy, ignore=ignore, symlinks=True)
    assert (copy / "mine" / "docs" / "file").is_file()
    assert not (copy / "docs").exists()
    assert main(["--root", str(bundled.root), "verify", "--sample", "1"]) == 0


def test_a_whole_bundle_is_made_again(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    # One file is not what the sources give, and the rebuilds find that one alone.
    pack = next(bundled.checkout.bundle.glob("*ptx*.pack"))
    pack.write_bytes(pack.read_bytes() + b"more")
    words = ["--root", str(bundled.root), "verify", "--all", "--jobs", "1"]
    assert main(words) == ReleaseError.exit_code
    _, *problems = capsys.readouterr().err.splitlines()
    names = [problem.partition(" has sha256 ")[0].strip() for problem in problems]
    assert names == [
        f"hash seed 1: {pack.name}",
        f"hash seed 2 in another folder: {pack.name}",
    ]


def test_a_path_in_the_sources_is_found(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    # The folder of the sources enters a constant, and so the bytes of another folder's build.
    bundled.replace("kernels.py", "import tilewright", "import pathlib\nimport tilewright")
    bundled.replace(
        "kernels.py",
        "\n\n@tl.kernel\ndef square",
        "\n\nPLACE = tl.constexpr(float(len(str(pathlib.Path(__file__).parent))))"
        "\n\n\n@tl.kernel\ndef square",
    )
    bundled.replace("kernels.py", "values * values", "values * values + PLACE")
    root = ["--root", str(bundled.root)]
    assert main([*root, "bundle-kernels", "--cache", str(bundled.cache)]) == 0
    assert main([*root, "verify", "--sample", "5"]) == ReleaseError.exit_code
    assert "hash seed 2 in another folder" in capsys.readouterr().err


def test_another_python_builds_the_same(
    bundled: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = "import numpy, ml_dtypes, zstandard, mlir._mlir_libs._mlir"
    able = [
        python
        for _, python in other_pythons()
        if subprocess.run([python, "-c", tools], capture_output=True, check=False).returncode == 0
    ]
    if not able:
        pytest.skip(f"no other Python has the compiler's tools; {VARIABLE} may name one")
    words = ["--root", str(bundled.root), "verify", "--sample", "2", "--python", able[0]]
    assert main(words) == 0, capsys.readouterr().err
    assert "built 3 times: same bytes" in capsys.readouterr().out


# Two commits


def _git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(small: SmallCheckout) -> SmallCheckout:
    """The small checkout as a repository with one commit, with the compiler's sources in it."""
    for folder in ("library", "compiler", "release"):
        (small.root / folder).symlink_to(ROOT / folder)
    _git(small.root, "init", "-q")
    _git(small.root, "add", "kernels.py", "prebuilt", "pyproject.toml")
    _git(small.root, "commit", "-q", "-m", "first")
    return small


def test_commits_are_compared_by_their_ptx(
    repository: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--root", str(repository.root), "verify", "--all", "--against", "HEAD"]
    # Another name is another source key and the same PTX.
    repository.replace("kernels.py", "values", "numbers")
    assert main(words) == 0, capsys.readouterr().err
    assert "5 entries have the PTX that they have at HEAD" in capsys.readouterr().out
    repository.replace("kernels.py", "numbers * numbers", "numbers * numbers + 1")
    assert main(words) == ReleaseError.exit_code
    error = capsys.readouterr().err
    assert "1 of 5 entries have other PTX than at HEAD:\n  kernels.py:square (x:*f32" in error


def test_a_commit_that_is_not_there_is_named(
    repository: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--root", str(repository.root), "verify", "--against"]
    assert main([*words, "nosuchcommit"]) == ReleaseError.exit_code
    assert "the sources of nosuchcommit cannot be had" in capsys.readouterr().err


def test_new_and_gone_entries_differ() -> None:
    assert differing_texts({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == [
        "a is gone",
        "b",
        "c is new",
    ]


def test_other_bytes_are_named(bundled: SmallCheckout) -> None:
    entries = read_manifest(bundled.checkout.bundle / "manifest.json").entries
    key = sorted(entries)[0]
    entry = entries[key]
    blob = dataclasses.replace(entry.blobs["sm_90a"], sha256="0" * 64)
    changed = dataclasses.replace(entry, blobs={**entry.blobs, "sm_90a": blob})
    digests = {target: blob.sha256 for target, blob in entry.blobs.items()}
    assert differences({key: entry}, {key: digests}) == []
    (problem,) = differences({key: changed}, {key: digests})
    assert problem == (
        f"{entry.kernel} {entry.signature} for sm_90a: bundled {'0' * 64}, "
        f"rebuilt {digests['sm_90a']}"
    )


def test_an_entry_that_is_gone_is_an_error(bundled: SmallCheckout) -> None:
    with pytest.raises(ReleaseError, match="which is not declared any more; bundle again"):
        rebuild(bundled.checkout, ["0" * 64])


def test_an_environment_in_the_checkout_serves_the_copy_too(tmp_path: Path) -> None:
    root, copy = tmp_path / "checkout", tmp_path / "copy"
    site = root / "build" / "env-build" / "lib" / "site-packages"
    sources = root / "library"
    for folder in (site, sources, copy / "library", tmp_path / "packages"):
        folder.mkdir(parents=True)
    path = _copied_path(root, copy, [str(sources), str(site)], tmp_path / "packages")
    assert path == [str(tmp_path / "packages"), str(copy / "library"), str(site)]
