"""Elementwise functions of floats, to the accuracy that `ir.ops.math` states.

libdevice has most of them: its f32 exp reduces the range by two fused multiply-adds before
ex2.approx, and is inlined by LLVM. sqrt, floor, ceil and fma are single correctly rounded
instructions. f16 and bf16 are computed in f32 and rounded once; fma in its own type, because
through f32 it would round twice.
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
_LIBDEVICE = ("exp", "exp2", "log", "log2", "rsqrt", "sin", "cos", "tanh", "erf")
_INTRINSICS = ("sqrt", "floor", "ceil")


def _unary(text: FunctionText, function: str, name: str, dtype: DType) -> str:
    if dtype.bits == 16:
        wide = convert(text, name, dtype, float32)
        return convert(text, _unary(text, function, wide, float32), float32, dtype)
    type_ = dtype.name
    if function in _INTRINSICS:
        return text.value(f"llvm.intr.{function}({name}) : ({type_}) -> {type_}")
    suffix = "f" if dtype == float32 else ""
    return text.call(f"__nv_{function}{suffix}", (name,), (type_,), type_)


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


EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {**dict.fromkeys((*_LIBDEVICE, *_INTRINSICS), _emit_unary), "fma": _emit_fma}
)
