"""The factory works on the kernels of other projects, named by their import package."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.small_checkout import KERNELS, ROOT, SIGNATURES, SmallCheckout
from tilewright.abi.manifest import read_manifest
from tilewright.errors import FormatError, ReleaseError
from tilewright_release.bundle import bundle_kernels
from tilewright_release.checkout import Checkout, find_checkout, of_package
from tilewright_release.main import main
from tilewright_release.signatures import read_signatures
from tilewright_release.targets import read_targets


@pytest.fixture
def project(small: SmallCheckout, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallCheckout]:
    """The small checkout as another project: its kernels in a package under src/."""
    (small.root / "kernels.py").unlink()
    (small.root / "prebuilt" / "targets.toml").unlink()
    small.write("src/acme/__init__.py", "")
    small.write("src/acme/kernels.py", KERNELS)
    small.write("pyproject.toml", '[project]\nname = "acme"\ndynamic = ["version"]\n')
    signatures = SIGNATURES.replace("kernels.py:", "acme.kernels:")
    small.write("prebuilt/signatures/small.toml", signatures)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield small
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def test_a_project_without_targets_builds_for_ours(project: SmallCheckout) -> None:
    checkout = of_package(find_checkout(project.root / "src"), "acme")
    assert checkout == Checkout(project.root, "acme")
    assert read_targets(checkout.targets) == read_targets(ROOT / "prebuilt" / "targets.toml")


def test_its_kernels_are_bundled_by_worker_processes(project: SmallCheckout) -> None:
    summary = bundle_kernels(
        of_package(Checkout(project.root), "acme"),
        output=project.checkout.bundle,
        cache=project.cache,
        jobs=2,
        stream=io.StringIO(),
    )
    assert (summary.entries, summary.built) == (5, 5)
    manifest = read_manifest(project.checkout.bundle / "manifest.json")
    assert manifest.version == "dynamic"
    assert set(manifest.kernels) == {"acme.kernels.double", "acme.kernels.square"}
    for command in (["coverage"], ["why", "double"], ["verify", "--sample", "1"]):
        assert main(["--root", str(project.root), *command, "--package", "acme"]) == 0


def test_a_kernel_from_elsewhere_is_refused(project: SmallCheckout) -> None:
    project.write("src/acmes/__init__.py", "")
    checkout = of_package(Checkout(project.root), "acmes")
    with pytest.raises(FormatError, match=r"acme\.kernels:double, which is not in package acmes"):
        read_signatures(checkout)


def test_a_package_that_is_nowhere_is_named(
    project: SmallCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--root", str(project.root)]
    code = main([*root, "bundle-kernels", "--package", "nosuchpackage"])
    assert code == ReleaseError.exit_code
    assert "package nosuchpackage is neither in" in capsys.readouterr().err


def test_an_installed_package_is_taken_from_where_it_is(
    small: SmallCheckout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "acme").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "elsewhere")])
    before = list(sys.path)
    assert of_package(small.checkout, "acme").package == "acme"
    assert sys.path == before
