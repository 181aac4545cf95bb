"""PTX to cubins with the pinned ptxas."""

from __future__ import annotations

import re

import pytest

from helpers.mlir_texts import kernel
from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError
from tilewright_compiler.backend.ptx import lower_to_ptx, parse_ptx
from tilewright_compiler.backend.ptxas import assemble, disassemble
from tilewright_compiler.capabilities import TARGETS


@pytest.fixture(scope="module")
def text() -> str:
    return lower_to_ptx(kernel()).text


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_one_text_assembles_for_every_target(text: str, target: Target) -> None:
    cubin = assemble(text, target)
    assert cubin.data.startswith(b"\x7fELF")
    assert (cubin.entry, cubin.target) == ("k", target)
    assert 0 < cubin.registers < 32
    assert cubin.spill_bytes == cubin.stack_bytes == cubin.static_shared_bytes == 0
    assert cubin.warnings == ()


def test_assembling_twice_gives_equal_records(text: str) -> None:
    assert assemble(text, Target(9, 0, "a")) == assemble(text, Target(9, 0, "a"))


def test_resources_are_read() -> None:
    text = lower_to_ptx(kernel()).text
    body = text.index("{", text.index(".reqntid"))
    static = text[: body + 1] + "\n.shared .align 4 .b8 pad[1024];\n" + text[body + 1 :]
    assert assemble(static, Target(8, 0)).static_shared_bytes == 1024


def test_refusal_says_what_ptxas_says(text: str) -> None:
    broken = text.replace("neg.f32", "frobnicate.f32")
    with pytest.raises(InternalCompilerError, match=r"ptxas refused k for sm_80.*frobnicate"):
        assemble(broken, Target(8, 0))


def test_unknown_target_is_refused(text: str) -> None:
    with pytest.raises(InternalCompilerError, match="sm_77"):
        assemble(text, Target(7, 7))


def test_too_slow_is_given_up(text: str) -> None:
    with pytest.raises(InternalCompilerError, match=r"within 0\.0001 s"):
        assemble(text, Target(8, 0), timeout_s=0.0001)


def test_kernel_place_is_in_the_message() -> None:
    ptx = lower_to_ptx(kernel())
    assert ptx.location is not None
    with pytest.raises(InternalCompilerError, match="in k"):
        assemble(ptx, Target(7, 7))


def test_spills_are_avoided_where_a_thread_may_have_more_registers(text: str) -> None:
    # 112 floats alive at once: more than occupancy would like, fewer than the hardware has.
    cubin = assemble(parse_ptx(with_floats(text, 112)), Target(12, 0, "f"))
    assert cubin.registers > 112
    assert cubin.spill_bytes == 0


@pytest.mark.parametrize(("floats", "most"), [(16, 32), (112, 255)])
def test_room_for_programs_gives_way_before_registers_are_spilled(
    floats: int, most: int, text: str
) -> None:
    """16 programs of 128 threads leave a thread 32 registers."""
    ptx = with_floats(text, floats)
    threads = re.search(r"^\.reqntid (\d+).*$", ptx, re.MULTILINE)
    assert threads is not None
    asked = f".minnctapersm {65536 // 32 // int(threads[1])}"
    cubin = assemble(
        parse_ptx(ptx.replace(threads[0], f"{threads[0]}\n{asked}")), Target(9, 0, "a")
    )
    assert floats < cubin.registers <= most
    assert cubin.spill_bytes == 0


def with_floats(text: str, count: int) -> str:
    """Return PTX with the body of one that keeps `count` floats alive at once."""
    loads = "\n".join(f"ld.volatile.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(count))
    stores = "\n".join(f"st.volatile.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(count))
    body = text.index("{", text.index(".reqntid"))
    return f"""{text[:body]}{{
.reg .f32 %f<{count}>;
.reg .b64 %rd<2>;
ld.param.b64 %rd1, [k_param_0];
{loads}
{stores}
ret;
}}
"""


def test_disassembly_shows_instructions(text: str) -> None:
    assert "STG.E" in disassemble(assemble(text, Target(8, 0)).data)


def test_disassembling_garbage_is_refused() -> None:
    with pytest.raises(InternalCompilerError, match="nvdisasm refused"):
        disassemble(b"garbage")
