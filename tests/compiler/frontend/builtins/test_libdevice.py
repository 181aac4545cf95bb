"""Which overload a call of libdevice means, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.kernel_source import lower_text
from tilewright.errors import KernelNameError, KernelTypeError
from tilewright.language.registry import FUNCTIONS as STUBS
from tilewright_compiler.ir.ops.libdevice import FUNCTIONS
from tilewright_compiler.ir.types import element_dtype


def test_every_function_has_a_stub_and_overloads() -> None:
    stubs = {name.partition(".")[2] for name in STUBS if name.startswith("libdevice.")}
    assert set(FUNCTIONS) <= stubs
    assert stubs - set(FUNCTIONS) == {
        "float_as_int", "float_as_uint", "int_as_float", "uint_as_float",
        "double_as_longlong", "longlong_as_double",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "operands", "result"),
    [
        ("cbrt(f)", ["f32"], "f32"),
        ("cbrt(d)", ["f64"], "f64"),
        ("cbrt(h)", ["f32"], "f16"),
        ("cbrt(n)", ["f32"], "f32"),
        ("cbrt(2)", ["f32"], "f32"),
        ("pow(f, f)", ["f32", "f32"], "f32"),
        ("pow(f, i)", ["f32", "i32"], "f32"),
        ("pow(f, 2)", ["f32", "f32"], "f32"),
        ("pow(f, d)", ["f64", "f64"], "f64"),
        ("pow(h, f)", ["f32", "f32"], "f32"),
        ("ldexp(d, 3)", ["f64", "i32"], "f64"),
        ("isnan(h)", ["f32"], "i1"),
        ("clz(n)", ["i64"], "i32"),
        ("fast_expf(h)", ["f32"], "f16"),
    ],
)
def test_the_overload_is_the_nearest(
    call: str, operands: list[str], result: str, tmp_path: Path
) -> None:
    text = f"@tl.kernel\ndef k(h, f, d, i, n):\n    x = tl.libdevice.{call}\n"
    module = lower_text(tmp_path, text, h="f16", f="f32", d="f64", i="i32", n="i64")
    (operation,) = [o for o in module.kernel.body.operations if o.name == "libdevice"]
    assert [str(value.type) for value in operation.operands] == operands
    last = module.kernel.body.operations[-2]
    assert str(element_dtype(last.result.type)) == result


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("clz(f)", r"tl.libdevice.clz takes i32; u32; i64; u64, got f32 scalar; cast"),
        ("fast_expf(d)", r"tl.libdevice.fast_expf takes f32, got f64 scalar"),
        ("ldexp(f, f)", r"tl.libdevice.ldexp takes f32, i32; f64, i32, got f32 scalar, f32 scalar"),
        ("float_as_int(d)", r"tl.libdevice.float_as_int takes f32, got f64 scalar"),
        ("hypot(f)", r"tl.libdevice.hypot\(x, y\): missing a required argument: 'y'"),
        ("cbrt(tl.zeros(8, tl.float8e5))", r"tl.libdevice.cbrt takes f32; f64, got f8e5m2 tile"),
    ],
)
def test_what_has_no_overload_is_refused(call: str, message: str, tmp_path: Path) -> None:
    text = f"@tl.kernel\ndef k(f, d):\n    x = tl.libdevice.{call}\n"
    with pytest.raises(KernelTypeError, match=message):
        lower_text(tmp_path, text, f="f32", d="f64")


def test_a_name_that_libdevice_lacks_is_told(tmp_path: Path) -> None:
    text = "@tl.kernel\ndef k(f):\n    x = tl.libdevice.acoss(f)\n"
    with pytest.raises(KernelNameError, match="acos"):
        lower_text(tmp_path, text, f="f32")


def test_a_module_of_its_own_is_followed(tmp_path: Path) -> None:
    text = (
        "from tilewright.language.extra import libdevice\n"
        "@tl.kernel\ndef k(f):\n    x = libdevice.tan(f)\n"
    )
    operations = lower_text(tmp_path, text, f="f32").kernel.body.operations
    assert [o.attributes.get("function") for o in operations] == ["tan", None]
