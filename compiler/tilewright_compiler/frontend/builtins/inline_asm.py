"""PTX of the kernel's author: constraints are checked against what the registers hold."""

from __future__ import annotations

import re

import tilewright.language as tl
from tilewright.abi.dtypes import DType
from tilewright.errors import KernelTypeError, KernelValueError
from tilewright_compiler.frontend import convert
from tilewright_compiler.frontend.builtins import arguments
from tilewright_compiler.frontend.builtins.registry import implements
from tilewright_compiler.frontend.infer_types import common_shape, dtype_of_number, tile_of
from tilewright_compiler.frontend.kernel_calls import call_kernel
from tilewright_compiler.frontend.operands import (
    NONE,
    Constant,
    KernelReference,
    Operand,
    TupleOperand,
    describe,
    flatten,
)
from tilewright_compiler.frontend.scope import Scope
from tilewright_compiler.ir.core import Value
from tilewright_compiler.ir.ops.inline_asm import MAX_PACK, letters_complaint, parse_constraints
from tilewright_compiler.ir.types import ScalarType, element_dtype

_WHAT = "tl.inline_asm_elementwise"
# A `$` that is neither doubled nor before a number, alone or in braces.
_STRAY = re.compile(r"(?<!\$)(?:\$\$)*\$(?!\$|\d|\{\d+\}).{0,8}", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OPERAND = re.compile(r"\$\{[^}]*\}")
_REGISTER = re.compile(r"(?<!\$)(?:\$\$)*\$\{?(\d+)")


@implements(tl.inline_asm_elementwise)
def inline_asm_elementwise(
    scope: Scope,
    asm: Operand,
    constraints: Operand,
    args: Operand,
    dtype: Operand,
    is_pure: Operand,
    pack: Operand,
    reference: Operand,
) -> Operand:
    """Build PTX on the elements of tiles."""
    given = args.items if isinstance(args, TupleOperand) else (args,)
    wanted = dtype.items if isinstance(dtype, TupleOperand) else (dtype,)
    dtypes = tuple(arguments.dtype(item, f"`dtype` of {_WHAT}") for item in wanted)
    for operand in given:
        dtype_of_number(operand, _WHAT)  # refuses what is no number
    shape = common_shape(given)
    values = [
        convert.broadcast(scope, convert.as_value(scope, operand, _WHAT), shape)
        for operand in given
    ]
    number = arguments.integer(pack, f"`pack` of {_WHAT}")
    if not 1 <= number <= MAX_PACK:
        msg = f"`pack` of {_WHAT} is {number}; it is 1 to {MAX_PACK}"
        raise KernelValueError(msg)
    letters = _text(constraints, "constraints")
    _check(letters, dtypes, values, number)
    text = _text(asm, "asm")
    _check_form(text)
    _check_registers(text, letters)
    name = "inline_asm" if arguments.flag(is_pure, f"`is_pure` of {_WHAT}") else "inline_asm_effect"
    types = [tile_of(shape, ScalarType(result)) for result in dtypes]
    references = _references(scope, reference, values, shape, dtypes)
    operation = scope.builder.create(
        name,
        (*values, *references),
        types,
        asm=text,
        constraints=letters,
        pack=number,
        arguments=len(values),
    )
    if isinstance(dtype, TupleOperand):
        return TupleOperand(operation.results)
    return operation.result


def _text(operand: Operand, name: str) -> str:
    if not isinstance(operand, Constant) or not isinstance(operand.value, str):
        msg = f"`{name}` of {_WHAT} is a string known at compile time, got {describe(operand)}"
        raise KernelTypeError(msg)
    if not operand.value.isascii():
        msg = f"`{name}` of {_WHAT} has characters that PTX does not know: {operand.value!r}"
        raise KernelValueError(msg)
    return operand.value


def _check(text: str, dtypes: tuple[DType, ...], values: list[Value], pack: int) -> None:
    parts = parse_constraints(text)
    complaint = parts if isinstance(parts, str) else None
    what = f"in {text!r}"
    if not isinstance(parts, str):
        complaint = letters_complaint(dtypes, pack, parts.results)
        names = ", ".join(map(str, dtypes))
        what = f"results of {names}, {pack} at a time"
        if complaint is None:
            given = tuple(element_dtype(value.type) for value in values)
            complaint = letters_complaint(given, pack, parts.arguments)
            what = f"arguments of {', '.join(map(str, given))}, {pack} at a time"
    if complaint is not None:
        msg = f"`constraints` of {_WHAT}, {what}: {complaint}"
        raise KernelValueError(msg)


def _check_form(text: str) -> None:
    """Demand whole statements: of others the assembler complains about what follows them."""
    code = _OPERAND.sub("", _COMMENT.sub("", text)).strip()
    depth = lowest = 0
    for character in code:
        depth += {"{": 1, "}": -1}.get(character, 0)
        lowest = min(lowest, depth)
    if depth or lowest < 0 or code[-1:] not in ("", ";", "}"):
        msg = (
            f"`asm` of {_WHAT} is no list of whole statements, each with `;` at its end and `}}` "
            f"for every `{{`: {text!r}"
        )
        raise KernelValueError(msg)


def _check_registers(text: str, constraints: str) -> None:
    """Demand that PTX names the registers that there are: LLVM would end the process of others."""
    parts = parse_constraints(constraints)
    count = 0 if isinstance(parts, str) else len(parts.results) + len(parts.arguments)
    stray = _STRAY.search(_COMMENT.sub("", text))
    if stray is not None:
        msg = (
            f"`asm` of {_WHAT} has {stray[0]!r}; a register is written `$0` or `${{0}}`, and a `$` "
            "of PTX `$$`"
        )
        raise KernelValueError(msg)
    for name in _REGISTER.findall(text):
        if int(name) >= count:
            msg = (
                f"`asm` of {_WHAT} names the register ${name}, and `constraints` {constraints!r} "
                f"has {count}, from $0 on; a `$` of PTX is written `$$`"
            )
            raise KernelValueError(msg)


def _references(
    scope: Scope,
    reference: Operand,
    values: list[Value],
    shape: tuple[int, ...],
    dtypes: tuple[DType, ...],
) -> list[Value]:
    """Build what the reference kernel gives, in the types of the results."""
    if reference == NONE:
        return []
    if not isinstance(reference, KernelReference):
        msg = f"`reference` of {_WHAT} is a kernel, got {describe(reference)}"
        raise KernelTypeError(msg)
    returned = call_kernel(scope, reference.kernel, tuple(values), {})
    leaves = list(flatten(returned))
    if len(leaves) != len(dtypes):
        msg = (
            f"`reference` of {_WHAT} returns {describe(returned)}, `dtype` names {len(dtypes)} "
            "results"
        )
        raise KernelTypeError(msg)
    results = []
    for leaf, dtype in zip(leaves, dtypes, strict=True):
        if isinstance(leaf, Value) and dtype_of_number(leaf, _WHAT) != dtype:
            msg = f"`reference` of {_WHAT} returns {describe(leaf)} where `dtype` says {dtype}"
            raise KernelTypeError(msg)
        number = convert.as_number(scope, leaf, dtype, _WHAT)
        results.append(convert.broadcast(scope, number, shape, f"`reference` of {_WHAT}"))
    return results
