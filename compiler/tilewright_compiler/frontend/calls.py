"""Calls: of the language's functions, of methods, and of other kernels (`kernel_calls`)."""

from __future__ import annotations

from tilewright.abi.dtypes import DType
from tilewright.errors import KernelTypeError
from tilewright.language.types import constexpr
from tilewright_compiler.frontend.builtins import descriptor, python, registry
from tilewright_compiler.frontend.builtins import types as tile_methods
from tilewright_compiler.frontend.infer_types import dtype_name
from tilewright_compiler.frontend.kernel_calls import Keywords, Positional, call_kernel
from tilewright_compiler.frontend.operands import (
    Constant,
    FunctionReference,
    KernelReference,
    MethodReference,
    Operand,
    TensorDescriptor,
    describe,
)
from tilewright_compiler.frontend.scope import Scope


def call(scope: Scope, callee: Operand, positional: Positional, keywords: Keywords) -> Operand:
    """Build a call."""
    match callee:
        case FunctionReference(function=function) if function is constexpr:
            return _constexpr(positional, keywords)
        case FunctionReference(function=function, name=name):
            if function in python.IMPLEMENTATIONS:
                return python.call(scope, function, name, positional, keywords)
            return registry.call(scope, function, name, positional, keywords)
        case MethodReference(name=name, receiver=TensorDescriptor() as receiver):
            of_block = descriptor.METHODS[name]
            return registry.call(scope, of_block, f"d.{name}", (receiver, *positional), keywords)
        case MethodReference(name=name, receiver=receiver):
            return tile_methods.call_method(scope, name, receiver, positional, keywords)
        case KernelReference(kernel=kernel):
            return call_kernel(scope, kernel, positional, keywords)
        case Constant(value=DType() as dtype):
            msg = f"a dtype is not called; write tl.cast(x, {dtype_name(dtype)})"
            raise KernelTypeError(msg)
    msg = f"{describe(callee)} cannot be called"
    raise KernelTypeError(msg)


def _constexpr(positional: Positional, keywords: Keywords) -> Operand:
    if len(positional) != 1 or keywords:
        msg = "tl.constexpr takes one value"
        raise KernelTypeError(msg)
    if not isinstance(positional[0], Constant):
        msg = f"tl.constexpr takes a value known at compile time, got {describe(positional[0])}"
        raise KernelTypeError(msg)
    return positional[0]
