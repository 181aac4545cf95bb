"""Programs of Triton's words that the language lacks, as in `wrong_programs`."""

from __future__ import annotations

from helpers.wrong_programs import WrongProgram, in_kernel
from tilewright.errors import CompileError, KernelNameError, KernelTypeError


def _wrong(
    name: str, says: tuple[str, ...], body: str, caret: str, error: type[CompileError]
) -> WrongProgram:
    return WrongProgram(f"triton's {name}", error, says, in_kernel(f"{body}  # here"), caret)


def _name(name: str, says: str, body: str) -> WrongProgram:
    return _wrong(name, (f"has no `{name}`: ", says), body, f"tl.{name}", KernelNameError)


def _decorator(name: str, says: str, value: str) -> WrongProgram:
    text = f"@tl.kernel({name}={value})  # here\ndef wrong(n):\n    pass\n"
    said = f"@tl.kernel has no `{name}`: leave it out", says
    return WrongProgram(f"triton's {name}", KernelTypeError, said, text, f"{name}={value}")


PROGRAMS = (
    _name(
        "pointer_type",
        "pointers come from arguments of the kernel",
        "p = n.to(tl.pointer_type(tl.float32))",
    ),
    _name("map_elementwise", "with tl.where", "a = tl.map_elementwise(n, tl.arange(0, B))"),
    _name("add", "write `x + y`", "a = tl.add(n, 1)"),
    _name("sub", "write `x - y`", "a = tl.sub(n, 1)"),
    _name("mul", "write `x * y`", "a = tl.mul(n, 1)"),
    _name("float8e4b8", "tl.float8e4nv and tl.float8e5", "a = f.to(tl.float8e4b8)"),
    _name("float8e4b15", "load others as tl.uint8", "a = f.to(tl.float8e4b15)"),
    _name("float8e5b16", "tl.float8e4nv and tl.float8e5", "a = f.to(tl.float8e5b16)"),
    _name("dot_scaled", "multiply the operands by their scales", "a = tl.dot_scaled(n, n, n)"),
    _name("to_tensor", "tl.cast(x, dtype)", "a = tl.to_tensor(3)"),
    _name("dtype", "a tl.constexpr parameter", "a = tl.dtype('fp32')"),
    _name("tuple", "`(a, b)`", "a = tl.tuple((n, f))"),
    _name("condition", "`while condition:`", "go_on = tl.condition(n > 0)"),
    _wrong(
        "PropagateNan",
        ("has no `PropagateNan`: write propagate_nan=True",),
        "a = tl.maximum(f, f, propagate_nan=tl.PropagateNan.ALL)",
        "tl.PropagateNan.ALL",
        KernelNameError,
    ),
    _wrong(
        "core",
        ("has no `core`: its functions are names of tl",),
        "a = tl.core.float32",
        "tl.core.float32",
        KernelNameError,
    ),
    _wrong(
        "methods of dtypes",
        ("dtype f32 has no attribute `is_fp32`", "is_float", "compared by `==`"),
        "a = f.dtype.is_fp32()",
        "f.dtype.is_fp32",
        KernelTypeError,
    ),
    _decorator("do_not_specialize", "two forms", "['n']"),
    _decorator("do_not_specialize_on_alignment", "divisible=", "['n']"),
    _decorator("noinline", "changes no result", "True"),
    _decorator("debug", "tl.device_assert is always compiled", "True"),
    _decorator("repr", "called what its function is", "str"),
    _decorator("launch_metadata", "profilers", "None"),
)
