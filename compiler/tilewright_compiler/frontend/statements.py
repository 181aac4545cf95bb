"""Statements of a kernel, lowered in order: assignment, `if`, loops, return.

An `if` on a compile-time condition chooses now and never lowers the other branch, as the author of
a specialised kernel expects; any other `if` becomes an operation whose branches are joined.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial

from tilewright.errors import KernelSyntaxError, KernelTypeError
from tilewright_compiler.frontend import escapes, loops, names, operators
from tilewright_compiler.frontend.expressions import BINARY_SYMBOLS, evaluate
from tilewright_compiler.frontend.joins import merge_variables
from tilewright_compiler.frontend.operands import (
    NONE,
    Constant,
    FunctionReference,
    KernelReference,
    Namespace,
    Operand,
    TupleOperand,
    describe,
    flatten,
)
from tilewright_compiler.frontend.scope import Rest, Returned, Scope
from tilewright_compiler.ir.core import Value


def execute(scope: Scope, statements: Sequence[ast.stmt]) -> None:
    """Lower statements until the end or a `return`, `break` or `continue`."""
    pending = scope.pending
    for index, statement in enumerate(statements, 1):
        later = statements[index:]
        rest = Rest("statements", partial(execute, scope, later), later)
        scope.pending = (*pending, rest)
        with scope.at(statement):
            _execute(scope, statement)
        if scope.is_left:
            break
    scope.pending = pending


def _execute(scope: Scope, statement: ast.stmt) -> None:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
            return
        case ast.Expr(value=value):
            evaluate(scope, value)
        case ast.Assign(targets=targets, value=value):
            operand = _storable(evaluate(scope, value))
            for target in targets:
                _assign(scope, target, operand)
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            # The target's own node is in store context; reading it is a lookup all the same.
            current = evaluate(scope, ast.copy_location(ast.Name(name, ast.Load()), target))
            result = operators.binary(
                scope, BINARY_SYMBOLS[type(op)], current, evaluate(scope, value)
            )
            scope.assign(name, result)
        case ast.AnnAssign(
            target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value
        ):
            if names.is_tile_annotation(scope, annotation):
                scope.assign(name, _storable(evaluate(scope, value)))
            else:
                _assign_constexpr(scope, name, annotation, value)
        case ast.If():
            _execute_if(scope, statement)
        case ast.For():
            loops.execute_for(scope, statement, execute)
        case ast.While():
            loops.execute_while(scope, statement, execute)
        case ast.Break():
            escapes.leave(scope, "break")
        case ast.Continue():
            escapes.leave(scope, "continue")
        case ast.Return(value=value):
            _execute_return(scope, value)
        case _:
            msg = (
                f"`{ast.unparse(statement).splitlines()[0]}` is not a statement of the tile "
                "language"
            )
            raise KernelSyntaxError(msg)


def _storable(operand: Operand) -> Operand:
    for leaf in flatten(operand):
        if not isinstance(leaf, Value | Constant | KernelReference | FunctionReference | Namespace):
            msg = f"{describe(leaf)} cannot be kept in a variable; write it where it is used"
            raise KernelTypeError(msg)
    return operand


def _assign(scope: Scope, target: ast.expr, operand: Operand) -> None:
    with scope.at(target):
        match target:
            case ast.Name(id=name):
                scope.assign(name, operand)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if not isinstance(operand, TupleOperand) or len(operand.items) != len(targets):
                    msg = f"{len(targets)} names cannot be unpacked from {describe(operand)}"
                    raise KernelTypeError(msg)
                for element, item in zip(targets, operand.items, strict=True):
                    _assign(scope, element, item)
            case _:
                msg = (
                    f"cannot assign to `{ast.unparse(target)}`: tiles are values without places; "
                    "write to "
                    "memory with tl.store, or choose lane by lane with tl.where"
                )
                raise KernelSyntaxError(msg)


def _assign_constexpr(scope: Scope, name: str, annotation: ast.expr, value: ast.expr) -> None:
    if not names.is_constexpr_annotation(scope, annotation):
        msg = (
            f"`{ast.unparse(annotation)}` is not an annotation of the tile language: only "
            "tl.constexpr and tl.tensor are; choose a dtype with .to(...)"
        )
        raise KernelSyntaxError(msg)
    operand = evaluate(scope, value)
    for leaf in flatten(operand):
        if isinstance(leaf, Value):
            msg = (
                f"`{name}` is annotated tl.constexpr, but its value is known only at run time: "
                f"{describe(leaf)}"
            )
            raise KernelTypeError(msg)
    scope.assign(name, operand, is_constexpr=True)


def _execute_if(scope: Scope, statement: ast.If) -> None:
    with scope.at(statement.test):
        condition = operators.truth(scope, evaluate(scope, statement.test), "`if`")
    if isinstance(condition, Constant):
        execute(scope, statement.body if condition.value else statement.orelse)
        return
    description = f"the `if` at line {statement.lineno}"
    ways_out = escapes.escapes_of((*statement.body, *statement.orelse))
    if ways_out:
        bodies = partial(execute, scope, statement.body), partial(execute, scope, statement.orelse)
        build = escapes.meet if escapes.is_followed_twice(scope, statement) else escapes.branch
        build(scope, condition, ways_out, bodies, description)
        return
    with scope.nested(description, is_loop=False) as then:
        execute(scope, statement.body)
    with scope.nested(description, is_loop=False) as otherwise:
        execute(scope, statement.orelse)
    merge_variables(scope, condition, then, otherwise)


def _execute_return(scope: Scope, value: ast.expr | None) -> None:
    if scope.enclosing:
        msg = (
            f"`return` inside {scope.enclosing[-1]}, which runs on the device: assign the result "
            "to a variable and return it after the loop"
        )
        raise KernelSyntaxError(msg)
    scope.result = (Returned(NONE if value is None else evaluate(scope, value)),)
