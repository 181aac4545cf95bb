"""Cubins of the pinned ptxas as the ELF reader sees them, whole and damaged."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.mlir_texts import kernel
from tilewright.abi.arguments import AbiParameter, LaunchAbi
from tilewright.abi.dtypes import float32, int32
from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.cubin import check_cubin, read_cubin
from tilewright_compiler.backend.ptx import lower_to_ptx
from tilewright_compiler.backend.ptxas import assemble
from tilewright_compiler.capabilities import TARGETS

_ABI = LaunchAbi("k", (AbiParameter("pointer", "p"), AbiParameter("scalar", "n")), num_threads=128)
_WRONG_ABI = {
    "entry": replace(_ABI, entry="other"),
    "threads": replace(_ABI, num_threads=256),
    "fewer parameters": replace(_ABI, parameters=_ABI.parameters[:1]),
    "narrower parameter": replace(
        _ABI, parameters=(_ABI.parameters[0], AbiParameter("scalar", "n", int32))
    ),
    "further parameter": replace(
        _ABI, parameters=(*_ABI.parameters, AbiParameter("scalar", "e", float32))
    ),
}


@pytest.fixture(scope="module")
def cubins() -> dict[Target, bytes]:
    text = lower_to_ptx(kernel()).text
    others = (Target(9, 0), Target(10, 0), Target(10, 0, "a"), Target(12, 0))
    return {target: assemble(text, target).data for target in (*TARGETS, *others)}


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_reader_sees_what_was_asked_for(cubins: dict[Target, bytes], target: Target) -> None:
    header = check_cubin(cubins[target], target=target, abi=_ABI)
    assert (header.major, header.minor) == (target.major, target.minor)
    assert header.is_exact == (target.suffix == "a")
    assert header.entries == ("k",)
    assert header.parameters == ((0, 8), (8, 8))
    assert header.required_threads == (128, 1, 1)


@pytest.mark.parametrize("wanted", TARGETS, ids=str)
def test_cubin_of_another_target_is_refused(cubins: dict[Target, bytes], wanted: Target) -> None:
    for target, data in cubins.items():
        if target != wanted:
            with pytest.raises(InternalCompilerError, match="not what was asked for"):
                check_cubin(data, target=wanted, abi=_ABI)


@pytest.mark.parametrize("abi", _WRONG_ABI.values(), ids=_WRONG_ABI)
def test_other_launch_abi_is_refused(cubins: dict[Target, bytes], abi: LaunchAbi) -> None:
    with pytest.raises(InternalCompilerError, match="not what was asked for"):
        check_cubin(cubins[Target(8, 0)], target=Target(8, 0), abi=abi)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_cut_file_is_refused(cubins: dict[Target, bytes], target: Target) -> None:
    data = cubins[target]
    for length in (0, 3, 63, 64, len(data) // 2, len(data) - 1):
        with pytest.raises(InternalCompilerError):
            check_cubin(data[:length], target=target, abi=_ABI)


def test_something_else_is_refused() -> None:
    with pytest.raises(InternalCompilerError, match="not a cubin"):
        read_cubin(b"MZ" + bytes(4000))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(position=st.integers(0, 5000), value=st.integers(0, 255))
def test_damage_gives_our_error_or_none(
    cubins: dict[Target, bytes], position: int, value: int
) -> None:
    data = bytearray(cubins[Target(9, 0, "a")])
    data[position % len(data)] = value
    with contextlib.suppress(InternalCompilerError):
        check_cubin(bytes(data), target=Target(9, 0, "a"), abi=_ABI)
