"""Kernel source and signature -> tile IR: the first arrow of the compiler.

The kernel's body is lowered in one walk, and each kernel that it calls in a walk of its own when
the call is met. What comes out are functions that `call` each other; inlining is a pass. Whatever
is wrong with the source is a CompileError that shows the user's line and the calls that led there.
"""

from __future__ import annotations

import ast
import re

from tilewright.abi.dtypes import DType
from tilewright.abi.signature import Constexpr, KernelSignature, Pointer
from tilewright.errors import (
    InternalCompilerError,
    KernelNameError,
    KernelTypeError,
    SourceLocation,
    TilewrightError,
)
from tilewright.language.kernel import Kernel
from tilewright.language.source import bounded_nesting
from tilewright_compiler.frontend.names import check_names
from tilewright_compiler.frontend.operands import (
    NONE,
    BlockPointer,
    Constant,
    KernelReference,
    Operand,
    TensorDescriptor,
    TupleOperand,
    describe,
    flatten,
    rebuild,
)
from tilewright_compiler.frontend.scope import Program, Scope, Specialization
from tilewright_compiler.frontend.statements import execute
from tilewright_compiler.frontend.syntax import check_syntax
from tilewright_compiler.ir.builder import Builder
from tilewright_compiler.ir.core import Block, Function, Module, Value
from tilewright_compiler.ir.types import PointerType, ScalarType, Type

_SYMBOL = re.compile(r"_?[A-Za-z0-9][A-Za-z0-9_]*\Z")
_GRID = ("grid0", "grid1", "grid2")
_TAKEN = ("WARP_SZ", "vprintf", "tilewright_shared")


def lower_kernel(kernel: Kernel, signature: KernelSignature) -> Module:
    """Lower a kernel for the types and constants of a signature.

    Raises a CompileError when the source is not a kernel of the tile language, or not for these
    types; InternalCompilerError when the frontend itself fails.
    """
    program = Program(signature, specialize)
    scope = Scope(program, kernel, Builder(Block()), active=(kernel,))
    try:
        with bounded_nesting(lambda: program.reached or kernel.location):
            function = _lower_entry(scope)
    except TilewrightError:
        raise
    except Exception as error:
        # The border of the frontend: no Python traceback of ours is the answer to a kernel.
        place = program.reached or kernel.location
        msg = f"the frontend failed on kernel `{kernel.name}`: {error!r}\n  at {place.render()}"
        raise InternalCompilerError(msg) from error
    return Module(_reachable(function, program.functions), signature)


def _lower_entry(scope: Scope) -> Function:
    kernel, signature = scope.kernel, scope.program.signature
    names = tuple(name for name, _ in signature.parameters)
    declared = tuple(parameter.name for parameter in kernel.parameters)
    if names != declared:
        msg = f"kernel `{kernel.name}` has the parameters {declared}, the signature {names}"
        raise KernelTypeError(msg, (kernel.location,))
    for name in names:
        if name in _GRID:
            msg = (
                f"no parameter of a launched kernel is called `{name}`: that is the grid's extent "
                "in what a launch computes; choose another name"
            )
            raise KernelNameError(msg, (kernel.location,))
    arguments: dict[str, Operand] = {}
    types: list[Value] = []
    for name, parameter in signature.parameters:
        if isinstance(parameter, Constexpr):
            arguments[name] = Constant(parameter.value)
            continue
        dtype = parameter.dtype
        value = Value(
            PointerType(dtype) if isinstance(parameter, Pointer) else ScalarType(dtype), name
        )
        types.append(value)
        arguments[name] = value
    scope.builder = Builder(Block(tuple(types)), kernel.location)
    for name, parameter in signature.parameters:
        if not isinstance(parameter, Pointer | Constexpr) and parameter.unit:
            # Typed as the argument is, so that both specializations compute in the same types.
            arguments[name] = scope.builder.value(
                "constant", (), ScalarType(parameter.dtype), value=1
            )
    result = _lower_body(scope, arguments)
    for leaf in flatten(result):
        if leaf != NONE:
            msg = (
                f"kernel `{kernel.name}` is launched, so it returns nothing, but it returns "
                f"{describe(result)}"
            )
            raise KernelTypeError(msg, (_last_return(scope), *scope.callers))
    return _close(scope, _entry_name(kernel.name), (), is_kernel=True)


def specialize(caller: Scope, kernel: Kernel, arguments: dict[str, Operand]) -> Specialization:
    """Lower a called kernel for these arguments, or return what an equal call gave."""
    program = caller.program
    key = (
        kernel,
        *(_key(leaf) for operand in arguments.values() for leaf in _with_structure(operand)),
    )
    if key in program.specializations:
        return program.specializations[key]
    location = caller.builder.location
    assert location is not None, "calls are lowered at their location"
    values: list[Value] = []
    inside: dict[str, Operand] = {}
    for name, operand in arguments.items():
        leaves = [
            Value(leaf.type, name) if isinstance(leaf, Value) else leaf for leaf in flatten(operand)
        ]
        values.extend(leaf for leaf in leaves if isinstance(leaf, Value))
        inside[name] = rebuild(operand, iter(leaves))
    scope = Scope(
        program,
        kernel,
        Builder(Block(tuple(values)), kernel.location),
        callers=(location, *caller.callers),
        active=(*caller.active, kernel),
    )
    result = _lower_body(scope, inside)
    returned = tuple(leaf for leaf in flatten(result) if isinstance(leaf, Value))
    function = _close(scope, _free_name(program, caller, kernel), returned, is_kernel=False)
    program.functions[function.name] = function
    specialization = Specialization(function, result)
    program.specializations[key] = specialization
    return specialization


def _lower_body(scope: Scope, arguments: dict[str, Operand]) -> Operand:
    tree = scope.kernel.tree
    check_syntax(scope, tree)
    check_names(scope)
    declared = (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)
    for node, (name, operand) in zip(declared, arguments.items(), strict=True):
        with scope.at(node):
            scope.assign(name, operand)
    execute(scope, tree.body)
    return NONE if scope.result is None else scope.result[0].value


def _close(scope: Scope, name: str, returned: tuple[Value, ...], *, is_kernel: bool) -> Function:
    scope.builder.create("return", returned)
    types: tuple[Type, ...] = tuple(value.type for value in returned)
    return Function(name, scope.builder.block, types, is_kernel, scope.kernel.location)


def _entry_name(name: str) -> str:
    """Return the symbol of a kernel: its name, unless PTX or the code around kernels has no room.

    PTX knows letters of ASCII, and what begins with two underscores is libdevice's.
    """
    if _SYMBOL.match(name) and name not in _TAKEN:
        return name
    return "kernel_" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}" for c in name)


def _last_return(scope: Scope) -> SourceLocation:
    returns = [node for node in ast.walk(scope.kernel.tree) if isinstance(node, ast.Return)]
    return scope.locate(returns[-1])


def _free_name(program: Program, caller: Scope, kernel: Kernel) -> str:
    taken = {_entry_name(caller.active[0].name), *program.functions}
    name, count = kernel.name, 0
    while name in taken:
        count += 1
        name = f"{kernel.name}_{count}"
    return name


def _reachable(entry: Function, functions: dict[str, Function]) -> dict[str, Function]:
    """Return the entry and what it calls; a body that was lowered twice leaves orphans."""
    found = {entry.name: entry}
    pending = [entry]
    while pending:
        for operation in pending.pop(0).body.walk():
            if operation.name == "call" and operation.attributes["callee"] not in found:
                callee = functions[operation.attributes["callee"]]
                found[callee.name] = callee
                pending.append(callee)
    return found


def _with_structure(operand: Operand) -> tuple[Operand | str, ...]:
    """Return the leaves with brackets, so that ((a, b), c) and (a, (b, c)) have different keys."""
    if isinstance(operand, BlockPointer):
        return (f"window {operand.block}", *operand.items)
    if isinstance(operand, TensorDescriptor):
        return (f"descriptor {operand.block}", *operand.items)
    if not isinstance(operand, TupleOperand):
        return (operand,)
    return ("(", *(leaf for item in operand.items for leaf in _with_structure(item)), ")")


def _key(leaf: Operand | str) -> object:
    match leaf:
        case Value(type=type_):
            return type_
        case Constant(value=DType() as dtype):
            return dtype
        case Constant(value=value):
            return (type(value), repr(value))  # 0.0 and -0.0 differ, and so do 1 and True
        case KernelReference(kernel=kernel):
            return kernel
        case _:
            return leaf
