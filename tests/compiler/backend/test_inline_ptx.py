"""PTX of the author that ptxas refuses: told at its call, whatever else the kernel has."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.kernel_source import load_kernel, signature_of
from tilewright.abi.target import Target
from tilewright.errors import AssemblyError, KernelValueError
from tilewright_compiler import driver
from tilewright_compiler.backend.inline_ptx import blame_call
from tilewright_compiler.frontend.lower import lower_kernel

SM_90A = Target.parse("sm_90a")
TEXT = """
@tl.kernel
def inner(v):
    return tl.inline_asm_elementwise(
        "{ .reg .f32 t;\\n sqrt.approx.f32 t, $1;\\n %s.approx.f32 $0, t; }",
        "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1,
    )

@tl.kernel
def outer(x, B: tl.constexpr):
    at = x + tl.arange(0, B)
    v = tl.load(at)
    w = tl.inline_asm_elementwise(
        "sqrt.approx.f32 $0, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(at, inner(v) + w)
"""


def test_refused_ptx_is_told_at_the_call_that_has_it(tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, TEXT % "foo")
    signature = signature_of(kernel, {"x": "*f32", "B": 512})
    with pytest.raises(KernelValueError) as caught:
        driver.compile_kernel(kernel, signature, [SM_90A])
    assert "ptxas refuses the PTX of this call for sm_90a" in caught.value.message
    assert "'foo'" in caught.value.message
    assert caught.value.locations[0].line == 3
    assert caught.value.locations[0].file == str(tmp_path / "kernels.py")


def test_good_ptx_compiles(tmp_path: Path) -> None:
    kernel = load_kernel(tmp_path, TEXT % "rsqrt")
    signature = signature_of(kernel, {"x": "*f32", "B": 512})
    assert driver.compile_kernel(kernel, signature, [SM_90A]).cubins


@pytest.mark.parametrize("inside", ["sqrt.approx.f32 %f1, %f2;", "mov.b32 %r1, %r2;"])
def test_only_an_error_in_the_authors_text_is_put_on_the_author(
    inside: str, tmp_path: Path
) -> None:
    kernel = load_kernel(tmp_path, TEXT % "rsqrt")
    signature = signature_of(kernel, {"x": "*f32", "B": 512})
    module = lower_kernel(kernel, signature)
    ptx = f"first\n\t// begin inline asm\n\t{inside}\n\t// end inline asm\nlast\n"

    def blamed(line: int, word: str) -> bool:
        log = f"ptxas kernel.ptx, line {line}; {word} : wrong"
        return blame_call(AssemblyError("refused", ptx, log), module, SM_90A) is not None

    is_his = inside.startswith("sqrt")
    assert [blamed(line, "error  ") for line in range(1, 6)] == [False, False, is_his, False, False]
    assert not any(blamed(line, "warning") for line in range(1, 6))
