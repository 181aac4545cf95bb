"""Calls of kernels by kernels.

A kernel that is called becomes a function of the module, lowered once for each combination of
argument types and compile-time arguments. A number passed to a parameter stays the number, as if
the body stood here; so does a returned one.
"""

from __future__ import annotations

from tilewright.errors import KernelSyntaxError, KernelTypeError
from tilewright.language.kernel import Kernel
from tilewright.language.parameters import NO_DEFAULT
from tilewright_compiler.frontend.operands import Constant, Operand, describe, flatten, rebuild
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value

Positional = tuple[Operand, ...]
Keywords = dict[str, Operand]


def call_kernel(
    scope: Scope, kernel: Kernel, positional: Positional, keywords: Keywords
) -> Operand:
    """Build the call of another kernel as a function."""
    if kernel in scope.active:
        chain = " -> ".join(k.name for k in (*scope.active[scope.active.index(kernel) :], kernel))
        msg = f"kernels cannot be recursive: {chain}; use a loop"
        raise KernelSyntaxError(msg)
    arguments = bind(kernel, positional, keywords)
    specialization = scope.program.specialize(scope, kernel, arguments)
    run_time = [
        leaf
        for operand in arguments.values()
        for leaf in flatten(operand)
        if isinstance(leaf, Value)
    ]
    function = specialization.function
    operation = scope.builder.create("call", run_time, function.result_types, callee=function.name)
    results = iter(operation.results)
    leaves = [
        next(results) if isinstance(leaf, Value) else leaf
        for leaf in flatten(specialization.result)
    ]
    return rebuild(specialization.result, iter(leaves))


def bind(kernel: Kernel, positional: Positional, keywords: Keywords) -> dict[str, Operand]:
    """Return a kernel's arguments by parameter, defaults filled in; constexprs are checked."""
    signature = f"{kernel.name}({', '.join(parameter.name for parameter in kernel.parameters)})"
    if len(positional) > len(kernel.parameters):
        msg = f"{signature} takes {len(kernel.parameters)} arguments, got {len(positional)}"
        raise KernelTypeError(msg)
    given: dict[str, Operand] = {}
    for parameter, operand in zip(kernel.parameters, positional, strict=False):
        given[parameter.name] = operand
    for name, operand in keywords.items():
        if name in given:
            msg = f"{signature} got two values for `{name}`"
            raise KernelTypeError(msg)
        given[name] = operand
    arguments: dict[str, Operand] = {}
    for parameter in kernel.parameters:
        default = parameter.default
        if parameter.name in given:
            arguments[parameter.name] = given.pop(parameter.name)
        elif default is not NO_DEFAULT:
            assert not isinstance(default, type(NO_DEFAULT))
            arguments[parameter.name] = Constant(default)
        else:
            msg = f"{signature} lacks a value for `{parameter.name}`"
            raise KernelTypeError(msg)
        operand = arguments[parameter.name]
        if parameter.is_constexpr and any(isinstance(leaf, Value) for leaf in flatten(operand)):
            msg = (
                f"`{parameter.name}` of kernel `{kernel.name}` is tl.constexpr: its value must be "
                "known at "
                f"compile time, got {describe(operand)}"
            )
            raise KernelTypeError(msg)
    if given:
        msg = f"{signature} has no parameter `{next(iter(given))}`"
        raise KernelTypeError(msg)
    return arguments
