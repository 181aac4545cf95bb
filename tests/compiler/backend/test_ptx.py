"""MLIR text to PTX: what is checked on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.mlir_texts import FATAL_BODY, HERE, kernel
from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.ptx import lower_to_ptx, parse_ptx
from tilewright_compiler.capabilities import PtxFlavor

_LIBDEVICE = "llvm.func @__nv_erff(f32) -> f32"


def test_baseline_is_sm_80_and_ptx_7_0() -> None:
    ptx = lower_to_ptx(kernel())
    assert (ptx.entry, ptx.target, ptx.version) == ("k", Target(8, 0), (7, 0))
    assert ptx.text.isascii()


def test_libdevice_is_linked_and_inlined() -> None:
    ptx = lower_to_ptx(kernel("%y = llvm.call @__nv_erff(%x) : (f32) -> f32", _LIBDEVICE))
    assert "call" not in ptx.text
    assert "ex2.approx" in ptx.text


def test_failure_names_the_kernel_and_its_place() -> None:
    with pytest.raises(InternalCompilerError, match=r"kernel k did not become PTX") as caught:
        lower_to_ptx(kernel(FATAL_BODY))
    assert f"{HERE.file}:1:1: in k" in str(caught.value)


def test_version_that_llvm_does_not_know_is_refused() -> None:
    # LLVM prints only a warning and falls back to a version of its own choice.
    with pytest.raises(InternalCompilerError, match=r"\+ptx99"):
        lower_to_ptx(kernel(), flavor=PtxFlavor(Target(8, 0), (9, 9)))


def test_other_entry_is_refused() -> None:
    with pytest.raises(InternalCompilerError, match="entry k "):
        lower_to_ptx(replace(kernel(), entry="other"))


def test_two_entries_are_refused() -> None:
    text = lower_to_ptx(kernel()).text
    second = text[text.index(".visible") :].replace("k(", "l(")
    with pytest.raises(InternalCompilerError, match="2 entries"):
        parse_ptx(text + second)
