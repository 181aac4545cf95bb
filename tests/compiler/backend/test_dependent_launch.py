"""Texts that wait by themselves for the kernels before them: where the wait stands, for whom."""

from __future__ import annotations

import re
from functools import cache

import pytest

from examples.vecadd import vecadd
from helpers import pointer_products
from helpers.kernel_source import signature_of
from tilewright.abi.signature import ConstexprValue
from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.dependent_launch import WAIT, with_wait
from tilewright_compiler.backend.ptx import parse_ptx
from tilewright_compiler.backend.ptxas import assemble, disassemble
from tilewright_compiler.capabilities import BASELINE, HOPPER, TARGETS
from tilewright_compiler.pipeline import CompiledKernel, compile_signature

_KERNELS = ("vecadd", "product")
# What reads or writes memory, of any kind but the constant bank of parameters.
_ACCESS = re.compile(r"\b(LDG|STG|LD|ST|RED|ATOMG?|UTMALDG|UTMASTG|LDGSTS|SYNCS|UTMACCTL)\b")


@cache
def compiled(name: str) -> CompiledKernel:
    if name == "vecadd":
        types: dict[str, ConstexprValue] = {**dict.fromkeys(("x", "y", "out"), "*f32"), "n": "i64"}
        types |= {"BLOCK": 1024}
        signature = signature_of(vecadd, types, specialization="fast")
        return compile_signature(vecadd, signature, targets=list(TARGETS))
    kernel = pointer_products.rows_and_columns
    types = {**dict.fromkeys("abc", "*f16"), **dict.fromkeys("mnk", "i64")}
    types |= {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    return compile_signature(
        kernel, signature_of(kernel, types, specialization="fast"), targets=list(TARGETS)
    )


@pytest.mark.parametrize("name", _KERNELS)
def test_cubins_for_hopper_wait_and_others_do_not(name: str) -> None:
    made = compiled(name)
    assert {key: cubin.waits for key, cubin in made.cubins.items()} == {
        key: cubin.target == HOPPER.target for key, cubin in made.cubins.items()
    }
    # The floor is what it was, for GPUs that cannot wait.
    assert WAIT not in made.ptx
    assert parse_ptx(made.ptx).version == BASELINE.version


@pytest.mark.parametrize("name", _KERNELS)
def test_nothing_touches_memory_before_the_wait(name: str) -> None:
    cubins = [c for c in compiled(name).cubins.values() if c.target == HOPPER.target]
    assert len(cubins) == (1 if name == "vecadd" else 2)
    for cubin in cubins:
        before, wait, _ = disassemble(cubin.data).partition("ACQBULK")
        assert wait
        assert not _ACCESS.search(before)


@pytest.mark.parametrize("name", _KERNELS)
def test_the_wait_costs_no_register(name: str) -> None:
    made = compiled(name)
    with_it = made.cubins[str(HOPPER.target)]
    without = assemble(made.ptx, HOPPER.target)
    assert not without.waits
    assert (with_it.registers, with_it.spill_bytes) == (without.registers, without.spill_bytes)


def test_a_target_without_the_instruction_gets_the_text_as_it_is() -> None:
    ptx = parse_ptx(compiled("vecadd").ptx)
    for target in TARGETS:
        assert (with_wait(ptx, target) is ptx) == (target != HOPPER.target)
    changed = with_wait(ptx, HOPPER.target)
    assert (changed.target, changed.version) == (HOPPER.target, HOPPER.version)
    assert parse_ptx(changed.text).target == HOPPER.target


def test_a_text_without_a_body_is_refused() -> None:
    text = ".version 7.0\n.target sm_80\n.visible .entry k()\n;\n"
    with pytest.raises(InternalCompilerError, match="no entry that a wait could begin"):
        with_wait(parse_ptx(text), Target(9, 0, "a"))
