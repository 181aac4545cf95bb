"""Elementwise functions of floats, to the accuracy that `ir.ops.math` states.

libdevice has most of them: its f32 exp reduces the range by two fused multiply-adds before
ex2.approx, and is inlined by LLVM. exp2 and fdiv are hardware approximations that flush subnormal
numbers: the cheap forms, for kernels bound by exponentials. sqrt, floor, ceil and fma are single
correctly rounded instructions. f16 and bf16 are computed in f32 and rounded once; fma in its own
type, because through f32 it would round twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tilewright.abi.dtypes import DType, float32
from tilewright_compiler.emit.arithmetic import convert
from tilewright_compiler.emit.kernel import Emit, KernelEmitter
from tilewright_compiler.emit.text import FunctionText
from tilewright_compiler.ir.core import Operation
from tilewright_compiler.ir.types import element_dtype

# libdevice: __nv_<name> for f64, with an f after it for f32.
_LIBDEVICE = ("exp", "expm1", "log", "log2", "log1p", "rsqrt", "sin", "cos", "tanh", "erf")
_INTRINSICS = ("sqrt", "floor", "ceil")


def _unary(text: FunctionText, function: str, name: str, dtype: DType) -> str:
    if dtype.bits == 16:
        wide = convert(text, name, dtype, float32)
        return convert(text, _unary(text, function, wide, float32), float32, dtype)
    type_ = dtype.name
    if function == "exp2" and dtype == float32:
        return _approximate(text, "ex2.approx.ftz.f32 $0, $1;", name)
    if function in _INTRINSICS:
        return text.value(f"llvm.intr.{function}({name}) : ({type_}) -> {type_}")
    suffix = "f" if dtype == float32 else ""
    return text.call(f"__nv_{function}{suffix}", (name,), (type_,), type_)


def _approximate(text: FunctionText, instruction: str, *names: str) -> str:
    """Return the result of a hardware approximation; without side effects, so LLVM may move it."""
    constraints = ",".join(["=f", *["f"] * len(names)])
    return text.value(
        f'llvm.inline_asm asm_dialect = att "{instruction}", "{constraints}" '
        f"{', '.join(names)} : ({', '.join(['f32'] * len(names))}) -> f32"
    )


def _divide(text: FunctionText, left: str, right: str, dtype: DType) -> str:
    if dtype.bits == 16:
        left, right = (convert(text, name, dtype, float32) for name in (left, right))
        return convert(text, _divide(text, left, right, float32), float32, dtype)
    if dtype == float32:
        return _approximate(text, "div.approx.ftz.f32 $0, $1, $2;", left, right)
    return text.value(f"llvm.fdiv {left}, {right} : {dtype.name}")


def _emit_fdiv(emitter: KernelEmitter, operation: Operation) -> None:
    dtype = element_dtype(operation.result.type)
    emitter.elementwise(operation, lambda a, b: _divide(emitter.text, a, b, dtype))


def _emit_unary(emitter: KernelEmitter, operation: Operation) -> None:
    dtype = element_dtype(operation.result.type)
    emitter.elementwise(operation, lambda name: _unary(emitter.text, operation.name, name, dtype))


def _emit_fma(emitter: KernelEmitter, operation: Operation) -> None:
    type_ = element_dtype(operation.result.type).name
    emitter.elementwise(
        operation,
        lambda a, b, c: emitter.text.value(
            f"llvm.intr.fma({a}, {b}, {c}) : ({type_}, {type_}, {type_}) -> {type_}"
        ),
    )


def _emit_extremum(emitter: KernelEmitter, operation: Operation) -> None:
    type_ = element_dtype(operation.result.type).name
    emitter.elementwise(
        operation,
        lambda a, b: emitter.text.value(
            f"llvm.intr.{operation.name}({a}, {b}) : ({type_}, {type_}) -> {type_}"
        ),
    )


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        **dict.fromkeys((*_LIBDEVICE, *_INTRINSICS, "exp2"), _emit_unary),
        "minnum": _emit_extremum,
        "maxnum": _emit_extremum,
        "fma": _emit_fma,
        "fdiv": _emit_fdiv,
    }
)
